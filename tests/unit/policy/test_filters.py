"""Each no says why, with numbers."""

import msgspec
import pytest
from tests.unit.policy.pools import capacity, gpus, worker

from shoal.model.ids import NodeId
from shoal.model.resources import GIB, GpuNeed, Profile
from shoal.policy.filters import CLOSED, FILTERS, reason
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
        (TaskShape(), DRAINING, CLOSED),
        (TaskShape(driver="container"), BUSY, "does not offer the driver container"),
        (TaskShape(nodes=(NodeId("b"),)), DRAINING, "the job names other nodes"),
        (TaskShape(nodes=(NodeId("a"), NodeId("b"))), BUSY, None),
        (TaskShape(Profile(modules=("torch", "sklearn"))), BARE, "no torch here"),
        (TaskShape(Profile(modules=("torch",))), BUSY, None),
        (TaskShape(rtt_max_us=50_000), BUSY, "80 ms away, 50 ms is the most"),
        (TaskShape(Profile(cpu_milli=8_500)), BUSY, "has 4 CPUs, 8.5 needed"),
        (
            TaskShape(Profile(memory_bytes=65 * GIB)),
            BUSY,
            "has 64 GiB of memory, 65 GiB needed",
        ),
        (
            TaskShape(Profile(disk_bytes=200 * GIB)),
            BUSY,
            "has 100 GiB of disk, 200 GiB needed",
        ),
        (
            TaskShape(Profile(labels=(("region", "eu"),))),
            BUSY,
            "its label region is us, eu needed",
        ),
        (
            TaskShape(Profile(labels=(("zone", "1"),))),
            BUSY,
            "has no label zone, zone=1 needed",
        ),
        (gpu(gib=24), BUSY, "its A100 has 8 GiB of memory, 24 GiB needed"),
        (gpu(models=("T4",)), BUSY, "has no T4, only A100"),
        (gpu(count=3), BUSY, "has 2 GPUs, 3 needed"),
        (gpu(count=2), BUSY, "1 of 2 GPUs free, 2 needed"),
        (gpu(), BUSY, None),
    ],
)
def test_a_filter_says_why_not_in_numbers(
    shape: TaskShape, view: WorkerView, words: str | None
) -> None:
    assert reason(shape, view) == words


def test_the_first_filter_that_says_no_is_heard() -> None:
    shape = TaskShape(Profile(cpu_milli=99_000), driver="container")

    assert reason(shape, BUSY) == "does not offer the driver container"
    assert reason(shape, DRAINING) == "does not offer the driver container"


def test_filters_have_distinct_names() -> None:
    names = [condition.name for condition in FILTERS]

    assert len(names) == len({*names})
