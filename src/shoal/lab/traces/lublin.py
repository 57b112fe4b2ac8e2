"""Make up batch jobs by the model of Lublin and Feitelson (JPDC 2003).

Sizes are powers of two in steps of probability, log-uniform in two stages; lengths are
the exponential of one of two gammas, of which wide jobs take the long one more often;
gaps between jobs are powers of two of a gamma, and pass faster by day. The defaults are
meant to be those of the paper, but were not checked against it. What the model does not
have is what users request: `requests` says how well they know it.
"""

from __future__ import annotations

from math import exp, log2
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

import msgspec

from shoal.lab.traces.values import TraceJob

if TYPE_CHECKING:
    from random import Random

Requests: TypeAlias = Literal["exact", "close", "loose", "usual", "longest", "short"]
"""Up to a half too long; up to twenty times; the same, rounded up to what people type;
the same, but three in ten always request 18 h; from half to three times the length."""

HALF_HOUR_S: Final = 1_800.0
LONGEST_S: Final = 172_800.0
ALWAYS_S: Final = 64_800.0
USUAL_MIN: Final = (5, 10, 15, 30, 60, 120, 180, 240, 300, 360, 480, 600, 720)
USUAL_S: Final = (*(60.0 * m for m in USUAL_MIN), ALWAYS_S, 86_400.0, LONGEST_S)


class LublinShape(msgspec.Struct, frozen=True):
    """Parameters of the model; `load` is the work that comes, by what can be done."""

    load: float = 0.75
    requests: Requests = "exact"
    serial: float = 0.244  # part of the jobs with one slot
    power_of_two: float = 0.576  # and with a power of two of them
    narrow: float = 0.86  # part of the others that are in the lower stage of sizes
    stage: float = 2.5  # doublings in the upper stage
    smallest: float = 0.8  # doublings at least
    short: float = 0.78  # part of narrow jobs with a length of the short kind
    short_by_slot: float = -0.0054


def lublin_jobs(
    count: int, slots: int, rng: Random, shape: LublinShape
) -> list[TraceJob]:
    """Make up jobs for a cluster of this size; times are whole seconds."""
    sized = [_size_and_length(slots, rng, shape) for _ in range(count)]
    times = _arrivals(count, rng)
    work = sum(size * run_s for size, run_s in sized)
    stretch = work / (shape.load * slots) / max(times[-1], 1.0)
    return [
        TraceJob(
            id=str(number),
            submitted_s=float(round(at_s * stretch)),
            run_s=run_s,
            requested_s=_requested(run_s, rng, shape.requests),
            slots=size,
        )
        for number, (at_s, (size, run_s)) in enumerate(zip(times, sized, strict=True))
    ]


def _size_and_length(slots: int, rng: Random, shape: LublinShape) -> tuple[int, float]:
    size, kind = 1, rng.random()
    if kind > shape.serial:
        widest = log2(slots)
        middle = max(shape.smallest, widest - shape.stage)
        lower = rng.random() < shape.narrow
        bounds = (shape.smallest, middle) if lower else (middle, widest)
        doublings = rng.uniform(*bounds)
        if kind <= shape.serial + shape.power_of_two:
            doublings = round(doublings)
        size = max(1, min(slots, round(2**doublings)))
    run_s = LONGEST_S + 1
    while run_s > LONGEST_S:
        is_short = rng.random() < shape.short + shape.short_by_slot * size
        gamma = (4.2, 0.94) if is_short else (312.0, 0.03)
        run_s = float(max(1, round(exp(rng.gammavariate(*gamma)))))
    return size, run_s


def _arrivals(count: int, rng: Random) -> list[float]:
    """Return when jobs come, from 0 on: at night, gaps last longer."""
    weights = [_weight(n) for n in range(48)]
    mean = sum(weights) / len(weights)
    at_s, times = 0.0, list[float]()
    for _ in range(count):
        left_s = 2 ** rng.gammavariate(10.2303, 0.4871)
        while left_s > 0:
            number = int(at_s // HALF_HOUR_S)
            speed = weights[number % 48] / mean
            passes_s = (number + 1) * HALF_HOUR_S - at_s
            if passes_s * speed > left_s:
                at_s, left_s = at_s + left_s / speed, 0.0
            else:
                at_s, left_s = (number + 1) * HALF_HOUR_S, left_s - passes_s * speed
        times.append(at_s)
    return [at_s - times[0] for at_s in times]


def _weight(half_hour: int) -> float:
    """Return how much comes in a half hour: a gamma over a day from 5:30 on."""
    at = half_hour + 0.5 if half_hour >= 11 else half_hour + 48.5
    return float(at ** (8.1737 - 1) * exp(-at / 3.9631))


def _requested(run_s: float, rng: Random, requests: Requests) -> float:
    match requests:
        case "exact":
            return run_s
        case "close":
            return float(round(run_s * rng.uniform(1.0, 1.5)))
        case "short":
            return float(max(1, round(run_s * rng.uniform(0.5, 3.0))))
        case "loose":
            return float(round(run_s / rng.uniform(0.05, 1.0)))
        case "usual" | "longest":
            guessed_s = run_s / rng.uniform(0.05, 1.0)
            if requests == "longest" and rng.random() < 0.3:
                guessed_s = ALWAYS_S
            typed_s = next((s for s in USUAL_S if s >= guessed_s), USUAL_S[-1])
            return max(typed_s, run_s)
