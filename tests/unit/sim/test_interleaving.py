"""Muri's rules, to compare ours with: who is taken, and who shares with whom."""

from functools import partial
from itertools import combinations

import pytest

from shoal.lab.replay.clusters import HostSlots
from shoal.lab.replay.interleaving import Interleaved, step_of
from shoal.lab.replay.preemptive import Preemptive, PreemptiveOptions
from shoal.lab.traces.values import TraceJob
from shoal.policy.queueing.braid import SLOWED_BY_SHARING, round_s

LOADS, COMPUTES = (400.0, 50.0, 0.0), (20.0, 430.0, 0.0)
TALKS = (10.0, 100.0, 390.0)


def job(
    number: int, stages: tuple[float, ...], steps: int = 100, gpus: int = 1
) -> TraceJob:
    step_ms = sum(stages)
    run_s = steps * step_ms / 1_000
    return TraceJob(
        id=str(number),
        submitted_s=0.0,
        run_s=run_s,
        requested_s=run_s,
        slots=gpus,
        steps=steps,
        step_ms=step_ms,
        stages_ms=stages,
    )


def first_choice(
    jobs: list[TraceJob], gpus: int, *, lengths_known: bool = True
) -> dict[int, float]:
    """Return who runs first, and how fast."""
    rule = Interleaved(lengths_known=lengths_known)
    rule.begin(jobs)
    state = Preemptive(
        jobs,
        partial(HostSlots, 1, 1, gpus),
        rule,
        work_s=[each.run_s for each in jobs],
        overhead_s=[0.0] * len(jobs),
        options=PreemptiveOptions("at every event"),
    )
    state.columns.remaining_s = state.columns.time_s
    return rule.choose(state, list(range(len(jobs))))


def speed_of(jobs: list[TraceJob], number: int) -> float:
    """Return how fast one of some jobs is that share."""
    steps = [step_of(each) for each in jobs]
    slowed = SLOWED_BY_SHARING[len(jobs)]
    return steps[number].alone_s / (slowed * round_s([step.stages for step in steps]))


def test_nobody_shares_where_all_fit_side_by_side() -> None:
    jobs = [job(0, LOADS), job(1, COMPUTES), job(2, TALKS)]

    assert first_choice(jobs, 3) == {0: 1.0, 1: 1.0, 2: 1.0}


def test_jobs_are_joined_so_that_least_of_the_resources_is_unused() -> None:
    """Of four jobs on two GPUs: the pairs that a search through all would choose."""
    jobs = [job(0, LOADS), job(1, COMPUTES, 110), job(2, COMPUTES, 120), job(3, TALKS)]

    def used(pair: tuple[int, ...]) -> float:
        chosen = [step_of(jobs[number]) for number in pair]
        took_s = SLOWED_BY_SHARING[2] * round_s([step.stages for step in chosen])
        return sum(sum(step.stages) for step in chosen) / took_s

    def all_used(one: tuple[int, ...]) -> float:
        return used(one) + used(tuple(n for n in range(4) if n not in one))

    best = max(all_used(one) for one in combinations(range(4), 2))

    speeds = first_choice(jobs, 2)

    pairs = [one for one in combinations(range(4), 2) if all_used(one) == best]
    told = [
        {n: speed_of([jobs[one[0]], jobs[one[1]]], one.index(n)) for n in one}
        for one in pairs
    ]
    assert any(
        all(speeds[n] == pytest.approx(speed) for n, speed in each.items())
        for each in told
    )


def test_jobs_that_are_slower_together_than_in_turn_do_not_share() -> None:
    """Then the first in order runs, by what is left of it times its GPUs."""
    only_computes = (0.0, 500.0, 0.0)
    jobs = [job(0, only_computes, 300), job(1, only_computes, 100)]

    assert first_choice(jobs, 1) == {1: 1.0}


def test_without_lengths_the_first_to_come_of_equal_service_is_first() -> None:
    only_computes = (0.0, 500.0, 0.0)
    jobs = [job(0, only_computes, 300), job(1, only_computes, 100)]

    assert first_choice(jobs, 1, lengths_known=False) == {0: 1.0}


def test_four_jobs_are_taken_for_each_place_and_only_of_one_size() -> None:
    jobs = [job(n, LOADS, 100 + n) for n in range(6)] + [job(6, COMPUTES, 400, 2)]

    speeds = first_choice(jobs, 1)

    assert set(speeds) <= {0, 1, 2, 3}
