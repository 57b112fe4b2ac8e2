"""Workloads that are cut, shuffled, inflated, and made up."""

from random import Random

import pytest

from shoal.errors import UsageError
from shoal.lab.traces.generators import LOAD, MODELS, generate
from shoal.lab.traces.lublin import LublinShape, Requests, lublin_jobs
from shoal.lab.traces.transforms import (
    all_at_once,
    at_demand,
    fitting,
    from_zero,
    shuffled,
    window,
)
from shoal.lab.traces.values import Pod, TraceJob


def job(number: int, slots: int = 1) -> TraceJob:
    return TraceJob(
        id=str(number), submitted_s=100.0 + number, run_s=5, requested_s=5, slots=slots
    )


def test_a_window_is_so_many_jobs_from_an_index_on() -> None:
    jobs = [job(n) for n in range(10)]

    assert [j.id for j in window(jobs, 3, 2)] == ["3", "4"]
    assert len(window(jobs, 8, 5)) == 2
    for wrong in (10, -1):
        with pytest.raises(UsageError, match="no window"):
            window(jobs, wrong, 2)


def test_submits_can_be_moved_to_the_beginning_or_all_to_it() -> None:
    jobs = [job(n) for n in range(3)]

    assert [j.submitted_s for j in from_zero(jobs)] == [0.0, 1.0, 2.0]
    assert [j.submitted_s for j in all_at_once(jobs)] == [0.0] * 3


def test_jobs_that_can_never_run_can_be_left_out() -> None:
    assert [j.id for j in fitting([job(0, 4), job(1, 9)], 8)] == ["0"]


def test_the_same_seed_shuffles_alike() -> None:
    items = list(range(50))

    assert shuffled(items, Random(1)) == shuffled(items, Random(1))
    assert shuffled(items, Random(1)) != shuffled(items, Random(2))
    assert sorted(shuffled(items, Random(1))) == items


def test_demand_is_raised_until_the_next_pod_would_pass_it() -> None:
    """A pod of two GPUs counts once in the test, and twice in the demand."""
    pods = [Pod(name="a", cpu_milli=1, memory_mib=1, gpus=2, gpu_milli=1_000)]

    inflated = at_demand(pods, 5_000, Random(1))

    # After the first, 2,000 were demanded; 3,000 and 5,000 do not pass the target.
    assert len(inflated) == 3


def test_demand_cannot_be_raised_by_pods_without_gpus() -> None:
    with pytest.raises(UsageError):
        at_demand([Pod(name="a", cpu_milli=1, memory_mib=1)], 5_000, Random(1))


@pytest.mark.parametrize("model", MODELS)
def test_a_workload_that_is_made_up_loads_the_cluster_and_follows_its_seed(
    model: str,
) -> None:
    trace = generate(f"{model}:800", 64, Random(3))

    jobs = trace.jobs
    work = sum(j.run_s * j.slots for j in jobs)
    span_s = jobs[-1].submitted_s

    assert jobs == generate(f"{model}:800", 64, Random(3)).jobs
    assert all(1 <= j.slots <= 64 and j.run_s > 0 for j in jobs)
    assert all(j.requested_s >= j.run_s for j in jobs)
    assert work / (span_s * 64) == pytest.approx(LOAD, rel=0.5)


@pytest.mark.parametrize("wrong", ["tides:5", "lublin", "lublin:x", "poisson:0"])
def test_a_workload_that_nobody_can_make_up_is_refused(wrong: str) -> None:
    with pytest.raises(UsageError):
        generate(wrong, 64, Random(3))


@pytest.mark.parametrize("slots", [1, 2, 64, 240])
def test_jobs_of_the_published_model_fit_and_make_the_load(slots: int) -> None:
    shape = LublinShape(load=0.6)
    jobs = lublin_jobs(800, slots, Random(1), shape)

    span_s = jobs[-1].submitted_s - jobs[0].submitted_s
    assert sum(j.run_s * j.slots for j in jobs) / slots / span_s == pytest.approx(
        0.6, rel=0.01
    )
    assert all(1 <= j.slots <= slots and j.run_s >= 1 for j in jobs)
    assert [j.submitted_s for j in jobs] == sorted(j.submitted_s for j in jobs)
    assert jobs == lublin_jobs(800, slots, Random(1), shape)


def test_the_published_model_has_serial_jobs_powers_of_two_and_longer_wide_jobs() -> (
    None
):
    jobs = lublin_jobs(4_000, 256, Random(2), LublinShape())

    def mean_s(chosen: list[TraceJob]) -> float:
        return sum(j.run_s for j in chosen) / len(chosen)

    serial = sum(j.slots == 1 for j in jobs) / len(jobs)
    powers = sum(j.slots.bit_count() == 1 for j in jobs) / len(jobs)
    assert serial == pytest.approx(0.244, abs=0.08)  # some others are rounded to one
    assert 0.8 < powers < 0.95
    wide = [j for j in jobs if j.slots > 64]
    assert mean_s(wide) > 2 * mean_s([j for j in jobs if j.slots <= 8])


@pytest.mark.parametrize(
    ("requests", "least", "most"),
    [
        ("exact", 1.0, 1.0),
        ("close", 0.9, 1.6),
        ("loose", 0.9, 21.0),
        ("usual", 1.0, 400.0),
        ("longest", 1.0, 70_000.0),
        ("short", 0.4, 3.6),
    ],
)
def test_users_know_lengths_as_well_as_is_said(
    requests: Requests, least: float, most: float
) -> None:
    jobs = lublin_jobs(300, 64, Random(3), LublinShape(requests=requests))

    ratios = [j.requested_s / j.run_s for j in jobs]

    assert least <= min(ratios)
    assert max(ratios) <= most
    assert (requests == "short") == (min(ratios) < 0.9)
