"""What no worker has is said in one sentence, with the best that there is."""

import msgspec
import pytest
from tests.unit.policy.pools import capacity, gpus, needs, table_of, worker

from shoal.model.ids import NodeId
from shoal.model.resources import GIB, Capacity, GpuNeed, Profile
from shoal.policy.explanation import explain
from shoal.policy.table.task_shapes import TaskShape
from shoal.policy.worker_view import WorkerView

LABELLED = WorkerView.idle(
    NodeId("eu"), capacity(16, gpus(2, "RTX3090", 24), (("region", "eu-west"),))
)
FAR = msgspec.structs.replace(
    worker("far", devices=gpus(1, "T4", 16)), path_cost_us=900
)
BUSY = msgspec.structs.replace(
    FAR, node=NodeId("busy"), cpu_milli=0, gpu_milli=(0,), active=1
)
BARE = WorkerView.idle(NodeId("bare"), Capacity(16_000, lacks=("sklearn", "torch")))
MEAN = msgspec.structs.replace(
    worker("mean"), drivers=(), terms="this worker is not lent to others"
)


def shape(
    profile: Profile, driver: str = "process", rtt: int | None = None
) -> TaskShape:
    return TaskShape(profile, driver, rtt)


@pytest.mark.parametrize(
    ("asked", "views", "words"),
    [
        (
            shape(needs(cpus=1, count=1, models=("A100",))),
            (BUSY, LABELLED),
            "no node has an A100: there are RTX3090, T4",
        ),
        (shape(needs(count=1)), (worker("a"),), "no node has a GPU"),
        (
            shape(needs(count=1, gib=80)),
            (FAR, LABELLED),
            "no node has a GPU of 80 GiB or more: the most is 24 GiB",
        ),
        (
            shape(needs(count=3)),
            (FAR, LABELLED),
            "no node has 3 GPUs: the most is 2, all nodes together have 3",
        ),
        (
            shape(Profile(gpu=GpuNeed(vendor="amd"))),
            (FAR,),
            "no node has an amd GPU: there are T4",
        ),
        (
            shape(needs(cpus=64)),
            (FAR, BUSY),
            "no node has 64 CPUs: the most is 16",
        ),
        (
            shape(Profile(memory_bytes=65 * GIB)),
            (FAR,),
            "no node has 65 GiB of memory: the most is 64 GiB",
        ),
        (
            shape(Profile(disk_bytes=200 * GIB)),
            (FAR,),
            "no node lends 200 GiB of disk: the most is 100 GiB",
        ),
        (
            shape(Profile(labels=(("region", "eu-vest"),))),
            (FAR, LABELLED),
            "no node has the label region=eu-vest: did you mean region=eu-west?",
        ),
        (
            shape(Profile(labels=(("region", "asia"),))),
            (LABELLED,),
            "no node has the label region=asia: there are region=eu-west",
        ),
        (
            shape(Profile(labels=(("team", "x"),))),
            (LABELLED,),
            "no node has the label team=x",
        ),
        (
            shape(Profile(modules=("torch",))),
            (BARE,),
            "no node has the Python module torch",
        ),
        (
            shape(Profile(), "container"),
            (FAR,),
            "no node offers the driver container",
        ),
        (
            shape(Profile(), "process+network"),
            (FAR,),
            "no node gives tasks of driver process a network",
        ),
        (
            shape(Profile()),
            (MEAN,),
            (
                "no node takes tasks of driver process from you: "
                "this worker is not lent to others"
            ),
        ),
        (
            shape(Profile(), rtt=500),
            (FAR,),
            "no node is within 0.5 ms: the nearest is 0.9 ms away",
        ),
        (
            shape(msgspec.structs.replace(needs(count=1), modules=("torch",))),
            (BARE, FAR),
            None,
        ),
        (
            shape(msgspec.structs.replace(needs(count=2), modules=("torch",))),
            (BARE, FAR),
            "no node has 2 GPUs: the most is 1",
        ),
        (
            shape(
                msgspec.structs.replace(
                    needs(count=1, models=("T4",)), labels=(("region", "eu-west"),)
                )
            ),
            (FAR, LABELLED),
            (
                "no node has all that it asks for: "
                "has no label region, region=eu-west needed at 1 of 2, "
                "has no T4, only RTX3090 at 1 of 2"
            ),
        ),
    ],
)
def test_what_nobody_has_is_said_in_one_sentence(
    asked: TaskShape, views: tuple[WorkerView, ...], words: str | None
) -> None:
    answer = explain(
        asked.profile,
        table_of(*views),
        driver=asked.driver,
        rtt_max_us=asked.rtt_max_us,
    )

    assert answer.never == (words or "")


def test_what_others_hold_is_no_never_and_comes_before_what_nodes_lack() -> None:
    answer = explain(needs(cpus=1, count=1), table_of(worker("a"), worker("b"), BUSY))

    assert answer.never == ""
    assert answer.summary == (
        ("0 of 1 GPU free, 1 needed", 1),
        ("has no GPU", 2),
    )
    assert answer.able == 1
    assert answer.helps == (
        "wait until tasks end on the one worker that is large enough",
    )


def test_a_full_node_that_lacks_a_gpu_lacks_the_gpu() -> None:
    full = msgspec.structs.replace(worker("a"), cpu_milli=0, memory_bytes=0)

    answer = explain(needs(cpus=1, count=1), table_of(full))

    assert [each.reason for each in answer.rejected] == ["has no GPU"]


def test_what_would_help_is_measured_by_idle_nodes_if_none_could_ever() -> None:
    full = msgspec.structs.replace(worker("a", cpus=4), cpu_milli=0)

    assert explain(needs(cpus=8), table_of(full)).helps == ("--cpus 4",)


def test_more_gpus_are_not_waited_for_where_something_else_is_missing() -> None:
    pair = WorkerView.idle(
        NodeId("pair"), Capacity(16_000, devices=gpus(2), lacks=("torchvision",))
    )
    asked = msgspec.structs.replace(
        needs(count=2), modules=("torchvision",), uses=("data:imagenet",)
    )

    assert explain(asked, table_of(pair)).helps == ()
