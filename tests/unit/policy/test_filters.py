"""Each no says why, with numbers."""

import msgspec
import pytest
from tests.unit.policy.pools import capacity, gpus, worker

from shoal.model.ids import NodeId
from shoal.model.resources import GIB, GpuNeed, Profile
from shoal.policy.filters import FILTERS, reason
from shoal.policy.table.task_shapes import TaskShape
from shoal.policy.table.worker_table import WorkerView

BUSY = msgspec.structs.replace(
    worker("a", cpus=4, devices=gpus(2, gib=8), path_cost_us=80_000),
    capacity=capacity(4, gpus(2, gib=8), (("region", "us"),)),
    gpu_milli=(1000, 300),
)
BARE = msgspec.structs.replace(
    BUSY, capacity=msgspec.structs.replace(BUSY.capacity, lacks=("sklearn", "torch"))
)
DRAINING = msgspec.structs.replace(BUSY, draining=True)


def gpu(count: int = 1, gib: int = 0, models: tuple[str, ...] = ()) -> TaskShape:
    need = GpuNeed(count, count, memory_min_bytes=gib * GIB, models=models)
    return TaskShape(Profile(gpu=need))


@pytest.mark.parametrize(
    ("shape", "view", "words"),
    [
        (TaskShape(), DRAINING, "draining"),
        (TaskShape(nodes=(NodeId("b"),)), DRAINING, "the job names other nodes"),
        (TaskShape(nodes=(NodeId("a"), NodeId("b"))), BUSY, None),
        (TaskShape(driver="container"), BUSY, "driver container not offered"),
        (TaskShape(Profile(modules=("torch", "sklearn"))), BARE, "no torch here"),
        (TaskShape(Profile(modules=("torch",))), BUSY, None),
        (TaskShape(rtt_max_us=50_000), BUSY, "rtt 80 ms > 50 ms"),
        (TaskShape(Profile(cpu_milli=8_500)), BUSY, "cpu 4 < 8.5"),
        (TaskShape(Profile(memory_bytes=65 * GIB)), BUSY, "memory 64 GiB < 65 GiB"),
        (TaskShape(Profile(disk_bytes=200 * GIB)), BUSY, "disk 100 GiB < 200 GiB"),
        (
            TaskShape(Profile(labels=(("region", "eu"),))),
            BUSY,
            "label region is us, not eu",
        ),
        (
            TaskShape(Profile(labels=(("zone", "1"),))),
            BUSY,
            "label zone is absent, not 1",
        ),
        (gpu(gib=24), BUSY, "gpu memory 8 GiB < 24 GiB"),
        (gpu(models=("T4",)), BUSY, "gpu model A100 is not T4"),
        (gpu(count=3), BUSY, "2 such gpus < 3"),
        (gpu(count=2), BUSY, "1 free gpus < 2"),
        (gpu(), BUSY, None),
    ],
)
def test_a_filter_says_why_not_in_numbers(
    shape: TaskShape, view: WorkerView, words: str | None
) -> None:
    assert reason(shape, view) == words


def test_the_first_filter_that_says_no_is_heard() -> None:
    shape = TaskShape(Profile(cpu_milli=99_000), driver="container")

    assert reason(shape, BUSY) == "driver container not offered"
    assert reason(shape, DRAINING) == "draining"


def test_filters_have_distinct_names() -> None:
    names = [condition.name for condition in FILTERS]

    assert len(names) == len({*names})
