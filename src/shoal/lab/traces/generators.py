"""Generate workloads without a trace: three models, each from a seed.

All but `lublin`, which is as published, have the shape of what they are named after,
not its exact parameters: use them to compare policies, and a trace to predict.
"""

from __future__ import annotations

from math import log, log2, pi, sin
from typing import TYPE_CHECKING, Final

from shoal.errors import UsageError
from shoal.lab.traces.lublin import LublinShape, lublin_jobs
from shoal.lab.traces.values import Trace, TraceJob

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from random import Random

JOBS_MAX: Final = 10_000_000
DAY_S: Final = 86_400.0
LOAD: Final = 0.9
"""Work that comes in, as a part of what the cluster can do."""

GPU_SIZES: Final = ((1, 0.70), (2, 0.08), (4, 0.10), (8, 0.09), (16, 0.02), (32, 0.01))
"""How many GPUs jobs want, and how often, about as in Philly."""


def poisson(count: int, slots: int, rng: Random) -> list[TraceJob]:
    """Jobs that come at random, with exponential lengths of ten minutes on average."""
    sized = [
        (rng.expovariate(1 / 600.0), min(slots, 1 << rng.randrange(4)))
        for _ in range(count)
    ]
    return _spread(sized, slots, rng, lambda _: 1.0)


def lublin(count: int, slots: int, rng: Random) -> list[TraceJob]:
    """Batch jobs by the model of Lublin and Feitelson, with loose requests."""
    return lublin_jobs(count, slots, rng, LublinShape(LOAD, "loose"))


def philly(count: int, slots: int, rng: Random) -> list[TraceJob]:
    """Training jobs: mostly of one GPU, with lengths from a minute to weeks."""
    sizes = [size for size, _ in GPU_SIZES]
    weights = [weight for _, weight in GPU_SIZES]
    drawn = rng.choices(sizes, weights, k=count)
    sized = [
        (
            min(
                30 * DAY_S,
                max(30.0, rng.lognormvariate(log(1_500.0) + 0.25 * log2(n), 2.0)),
            ),
            min(n, slots),
        )
        for n in drawn
    ]
    return _spread(sized, slots, rng, _by_day)


MODELS: Final[Mapping[str, Callable[[int, int, Random], list[TraceJob]]]] = {
    "poisson": poisson,
    "lublin": lublin,
    "philly": philly,
}


def generate(spec: str, slots: int, rng: Random) -> Trace:
    """Make a workload from text such as `lublin:1000`, for a cluster of this size."""
    model, colon, count = spec.partition(":")
    if model not in MODELS or not count.isdecimal() or not colon:
        raise UsageError(
            f"'{spec}' is no workload",
            because=f"a workload is MODEL:JOBS, and models are {', '.join(MODELS)}",
            hint="for example lublin:1000",
        )
    if not 1 <= int(count) <= JOBS_MAX:
        raise UsageError(f"{count} jobs are not between 1 and {JOBS_MAX}")
    jobs = MODELS[model](int(count), slots, rng)
    return Trace(name=spec, jobs=tuple(jobs), slots=slots)


def _by_day(at_s: float) -> float:
    """Return how much more often jobs come at this time than on average."""
    return 1.0 + 0.6 * sin(2 * pi * (at_s / DAY_S - 0.25))


def _spread(
    sized: list[tuple[float, int]],
    slots: int,
    rng: Random,
    intensity: Callable[[float], float],
) -> list[TraceJob]:
    """Let jobs come so that the cluster is loaded to nine tenths on average."""
    work = sum(run_s * size for run_s, size in sized)
    gap_s = work / (LOAD * slots) / max(1, len(sized))
    at_s, jobs = 0.0, list[TraceJob]()
    for number, (run_s, size) in enumerate(sized):
        jobs.append(
            TraceJob(
                id=str(number),
                submitted_s=at_s,
                run_s=run_s,
                requested_s=run_s * rng.uniform(1.0, 3.0),
                slots=size,
            )
        )
        at_s += rng.expovariate(1.0) * gap_s / intensity(at_s)
    return jobs
