"""Who is next when lengths count, who may jump, and who shares."""

from collections.abc import Callable
from random import Random

import pytest

from shoal.errors import PolicyError
from shoal.lab.replay.queues import SomeJobs
from shoal.policy.queueing.braid import (
    Braid,
    Candidate,
    Disturbances,
    SharingGroup,
    Step,
    round_s,
)
from shoal.policy.queueing.easy_backfill import reserve
from shoal.policy.queueing.queue_orders import ORDERS, order_named

NARROW_SHORT = SomeJobs(10.0, 1.0, 60.0, 60.0, 0.0)
WIDE_SHORT = SomeJobs(10.0, 8.0, 60.0, 60.0, 0.0)
NARROW_LONG = SomeJobs(5.0, 1.0, 600.0, 30.0, 4_000.0)
LOADER = Step(0.5, (0.45, 0.05, 0.0))
COMPUTER = Step(0.5, (0.05, 0.45, 0.0))


@pytest.mark.parametrize(
    ("name", "first", "second"),
    [
        ("fcfs", NARROW_LONG, NARROW_SHORT),
        ("sjf", NARROW_SHORT, NARROW_LONG),
        ("srtf", NARROW_LONG, NARROW_SHORT),
        ("srsf", NARROW_SHORT, WIDE_SHORT),
        ("las", NARROW_SHORT, NARROW_LONG),
        ("f1", NARROW_SHORT, WIDE_SHORT),
        ("wfp3", WIDE_SHORT, NARROW_SHORT),
        ("unicep", NARROW_SHORT, WIDE_SHORT),
        ("minnow", NARROW_SHORT, WIDE_SHORT),
    ],
)
def test_each_order_prefers_what_it_says(
    name: str, first: SomeJobs, second: SomeJobs
) -> None:
    order = order_named(name)

    assert order.key(first, 100.0) < order.key(second, 100.0)


def test_minnow_weighs_slots_against_the_square_of_the_time() -> None:
    """Twice as long counts as much as four times as wide; short jobs count alike."""
    key = ORDERS["minnow"]().key
    four_wide = SomeJobs(0.0, 4.0, 60.0, 60.0, 0.0)
    twice_long = SomeJobs(0.0, 1.0, 120.0, 120.0, 0.0)

    assert key(four_wide, 0.0) == key(twice_long, 0.0)
    short, shorter = (SomeJobs(0.0, 1.0, t, t, 0.0) for t in (10.0, 5.0))
    assert key(short, 0.0) == 2 * key(shorter, 0.0)


def test_orders_go_by_other_names_too_and_an_unknown_one_is_told() -> None:
    assert order_named("Tiresias").name == "las"
    assert order_named("FIFO").name == "fcfs"
    with pytest.raises(PolicyError) as told:
        order_named("minow")
    assert "minnow" in told.value.hint


def test_a_promise_is_for_when_enough_slots_come_free() -> None:
    promise = reserve(5, 1, [(90.0, 2), (30.0, 3), (60.0, 2)], now=10.0)

    assert (promise.at_s, promise.spare) == (60.0, 1)
    assert promise.lets_pass(9, ends_s=60.0)
    assert promise.lets_pass(1, ends_s=99.0)
    assert not promise.lets_pass(2, ends_s=99.0)
    assert not promise.without(1, ends_s=99.0).lets_pass(1, ends_s=99.0)
    assert promise.without(9, ends_s=60.0) == promise


# Sharing GPUs.


def test_a_round_of_two_takes_turns_at_loading_and_computing() -> None:
    alike = round_s([(0.4, 0.1, 0.0), (0.4, 0.1, 0.0)])
    unlike = round_s([(0.4, 0.1, 0.0), (0.1, 0.4, 0.0)])

    assert alike == pytest.approx(0.6)  # One reads while the other prepares.
    assert unlike == pytest.approx(0.5)


def test_a_round_is_no_shorter_than_the_step_of_any_member() -> None:
    steps = [(0.3, 0.2, 0.1), (0.1, 0.5, 0.2), (0.2, 0.2, 0.2), (0.6, 0.1, 0.1)]

    for count in (1, 2, 3, 4):
        resources = [sum(step[n] for step in steps[:count]) for n in range(3)]
        assert round_s(steps[:count]) >= max(steps[0][:2]) - 1e-9
        assert round_s(steps[:count]) >= max(resources) / 2 - 1e-9


def plenty(_: int) -> bool:
    return True


def room_for(gpus: int) -> Callable[[int], bool]:
    left = [gpus]

    def fits(wanted: int) -> bool:
        left[0] -= wanted
        return left[0] >= 0

    return fits


def test_nobody_shares_when_nobody_waits() -> None:
    jobs = [Candidate(1, 1, LOADER), Candidate(2, 1, COMPUTER)]

    groups = Braid().select(jobs, plenty, None)

    assert groups == [SharingGroup((1,), (1.0,)), SharingGroup((2,), (1.0,))]


def test_jobs_that_complement_each_other_share_when_others_wait() -> None:
    jobs = [
        Candidate(1, 1, COMPUTER),
        Candidate(2, 1, COMPUTER),
        Candidate(3, 1, LOADER),
    ]
    fits = room_for(1)

    groups = Braid(members_max=2).select(jobs, fits, jobs[1])

    [group] = groups
    assert group.members == (1, 3)
    assert all(0.5 < speed < 1.0 for speed in group.speeds)


def total_s(lengths: list[float], speeds: list[float]) -> float:
    """Return the sum of ends if the first two share one GPU, and the others follow."""
    first, second, *others = lengths
    at_s = min(first / speeds[0], second / speeds[1])
    left = [first - at_s * speeds[0], second - at_s * speeds[1]]
    ends = [at_s, at_s + max(left)]
    for length in others:
        ends.append(ends[-1] + length)
    return sum(ends)


def step_of(parts: list[float]) -> Step:
    return Step(sum(parts), (parts[0], parts[1], parts[2]))


def test_two_jobs_share_exactly_if_all_who_wait_end_sooner_by_it() -> None:
    rng, shared = Random(1), 0
    for _ in range(300):
        steps = [step_of([rng.random() ** 3 for _ in range(3)]) for _ in range(2)]
        lengths = sorted(rng.lognormvariate(3, 2) for _ in range(rng.randint(2, 9)))
        jobs = [Candidate(n, 1, step) for n, step in enumerate(steps)]
        # The others would gain nothing by sharing.
        slow = Step(0.01, (10.0, 10.0, 10.0))
        jobs += [Candidate(n, 1, slow) for n in range(2, len(lengths))]

        braid = Braid(members_max=2)
        [group] = braid.select(jobs, room_for(1), jobs[1])

        in_turn = sum(sum(lengths[: n + 1]) for n in range(len(lengths)))
        speeds = braid.speeds(steps)
        if lengths[0] / speeds[0] > lengths[1] / speeds[1]:
            continue  # The longer one would end first, so the order would change.
        together = total_s(lengths, speeds)
        assert (group.members == (0, 1)) == (together < in_turn)
        shared += len(group.members) - 1
    assert 50 < shared < 250


def test_only_jobs_of_the_same_size_share() -> None:
    jobs = [Candidate(1, 1, LOADER), Candidate(2, 2, COMPUTER)]
    fits = room_for(2)

    groups = Braid().select(jobs, fits, jobs[1])

    assert groups == [SharingGroup((1,), (1.0,))]


def test_a_group_runs_in_what_is_left_of_pauses_once_it_has_started() -> None:
    disturbances = Disturbances()
    assert disturbances.running_share(50.0) == 1.0
    for at_s in (100.0, 110.0, 110.0, 140.0, 200.0):
        disturbances.happened(at_s)

    assert disturbances.running_share(0.0) == 1.0
    assert disturbances.running_share(20.0) == pytest.approx((10 + 40) / 100)
    assert disturbances.running_share(60.0) == 0.0


def test_jobs_that_are_disturbed_often_share_only_if_they_start_soon() -> None:
    disturbances = Disturbances()
    for event in range(20):
        disturbances.happened(30.0 * event)

    def members(start_s: float) -> list[tuple[int, ...]]:
        jobs = [
            Candidate(1, 1, LOADER, start_s),
            Candidate(2, 1, COMPUTER, start_s),
        ]
        rooms = iter((True, False))
        chosen = Braid().select(jobs, lambda _: next(rooms), jobs[1], disturbances)
        return [group.members for group in chosen]

    assert members(1.0) == [(1, 2)]
    assert members(12.0) == [(1,)]
