"""Cut, shuffle and inflate workloads before a replay.

All of these are pure: the same seed gives the same workload.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import msgspec

from shoal.errors import UsageError
from shoal.lab.traces.values import Pod, TraceJob

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from random import Random

T = TypeVar("T")


def window(jobs: Sequence[T], start: int, length: int) -> Sequence[T]:
    """Return `length` jobs from this index on; an error if there are none."""
    found = jobs[start : start + length]
    if start < 0 or not found:
        raise UsageError(
            f"there is no window of {length} jobs at {start}",
            because=f"the trace has {len(jobs)} jobs",
        )
    return found


def shuffled(items: Iterable[T], rng: Random) -> list[T]:
    """Return the items in another order."""
    mixed = list(items)
    rng.shuffle(mixed)
    return mixed


def all_at_once(jobs: Iterable[TraceJob]) -> list[TraceJob]:
    """Let all jobs come at time 0, in the same order."""
    return [msgspec.structs.replace(job, submitted_s=0.0) for job in jobs]


def from_zero(jobs: Sequence[TraceJob]) -> list[TraceJob]:
    """Let the first job come at time 0, and all others as much earlier."""
    first_s = min((job.submitted_s for job in jobs), default=0.0)
    replace = msgspec.structs.replace
    return [replace(job, submitted_s=job.submitted_s - first_s) for job in jobs]


def fitting(jobs: Iterable[TraceJob], slots: int) -> list[TraceJob]:
    """Leave out the jobs that a cluster of this size could never run."""
    return [job for job in jobs if job.slots <= slots]


def at_demand(pods: Sequence[Pod], target_milli: float, rng: Random) -> list[Pod]:
    """Append pods drawn with replacement until the next would pass the demand.

    As published with FGD: the test before each draw counts `gpu_milli` once for a pod,
    however many GPUs it wants.
    """
    if not any(pod.gpu_milli_all for pod in pods):
        raise UsageError("the demand cannot be raised: no pod wants a GPU")
    inflated = list(pods)
    demand = sum(pod.gpu_milli_all for pod in pods)
    while demand + (pod := rng.choice(pods)).gpu_milli <= target_milli:
        inflated.append(pod)
        demand += pod.gpu_milli_all
    return inflated
