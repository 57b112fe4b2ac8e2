"""The coarse engine against simulators that are too simple to be wrong.

They go through time second by second, or look at everything at each event, with no
index, no shortcut and no numpy.
"""

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.lab.replay.clusters import CountedSlots
from shoal.lab.replay.preemption_rules import rule_named
from shoal.lab.replay.preemptive import Preemptive, PreemptiveOptions
from shoal.lab.replay.protocols import rlscheduler, rlscheduler_jobs
from shoal.lab.replay.queues import JobColumns, Ordered, SomeJobs
from shoal.lab.replay.run_to_completion import Backfill, InOrder
from shoal.lab.traces.values import TraceJob
from shoal.policy.queueing.queue_orders import ORDERS, QueueOrder, order_named

SLOTS = 4
WORKLOADS = st.lists(
    st.tuples(
        st.integers(0, 6), st.integers(1, 8), st.integers(0, 5), st.integers(1, SLOTS)
    ),
    min_size=1,
    max_size=12,
)
BATCH_ORDERS = ["fcfs", "sjf", "minnow", "f1", "wfp3", "unicep"]

Drawn = list[tuple[int, int, int, int]]


def jobs_of(drawn: Drawn) -> list[TraceJob]:
    """Gaps, lengths, how much more was requested, and slots."""
    at, jobs = 1, list[TraceJob]()
    for number, (gap, run, more, slots) in enumerate(drawn):
        at += gap
        jobs.append(
            TraceJob(
                id=str(number),
                submitted_s=at,
                run_s=run,
                requested_s=run + more,
                slots=slots,
            )
        )
    return jobs


def key_of(order: QueueOrder, job: TraceJob, now: float) -> float:
    one = SomeJobs(
        float(job.submitted_s), float(job.slots), float(job.requested_s), 0.0, 0.0
    )
    return float(order.key(one, now))


def naive_again(
    jobs: list[TraceJob], order: QueueOrder, *, backfill: bool
) -> list[float]:
    """Think everything over each second in which something happens."""
    started: dict[int, int] = {}
    now = 0
    while len(started) < len(jobs):
        ends = [at + jobs[n].run_s for n, at in started.items()]
        if now not in [*ends, *(job.submitted_s for job in jobs)]:
            now += 1
            continue
        running = [n for n, at in started.items() if at + jobs[n].run_s > now]
        free = SLOTS - sum(jobs[n].slots for n in running)
        here = [
            n
            for n in range(len(jobs))
            if jobs[n].submitted_s <= now and n not in started
        ]
        here.sort(key=lambda n: (key_of(order, jobs[n], now), jobs[n].submitted_s, n))
        promise: tuple[float, int] | None = None
        for n in here:
            job = jobs[n]
            if promise is None and job.slots > free:
                if not backfill:
                    break
                room, at = free, float(now)
                latest = sorted((started[k] + jobs[k].requested_s, k) for k in running)
                for end, k in latest:
                    room, at = room + jobs[k].slots, end
                    if room >= job.slots:
                        break
                promise = (at, room - job.slots)
                continue
            if job.slots > free:
                continue
            if promise is not None:
                late = now + job.requested_s > promise[0]
                if late and job.slots > promise[1]:
                    continue
                promise = (promise[0], promise[1] - job.slots * late)
            started[n] = now
            running.append(n)
            free -= job.slots
        now += 1
    return [float(started[n]) for n in range(len(jobs))]


def naive_preemptive(
    jobs: list[TraceJob], key: Callable[[TraceJob, int], float]
) -> list[float]:
    """Decide anew each second who runs; lengths are whole seconds."""
    left = [int(job.run_s) for job in jobs]
    ended = [0.0] * len(jobs)
    listed: list[int] = []
    now = 0
    while any(left):
        # Whoever was first among equals stays so.
        came = [n for n in range(len(jobs)) if jobs[n].submitted_s == now]
        listed = [n for n in [*listed, *came] if left[n]]
        listed.sort(key=lambda n: key(jobs[n], left[n]))
        free = SLOTS
        for n in listed:
            if jobs[n].slots <= free:
                free -= jobs[n].slots
                left[n] -= 1
                if left[n] == 0:
                    ended[n] = now + 1.0
        now += 1
    return ended


@pytest.mark.parametrize("backfill", [False, True])
@pytest.mark.parametrize("name", BATCH_ORDERS)
@given(drawn=WORKLOADS)
@settings(max_examples=40)
def test_a_queue_that_is_thought_over_is_that_of_the_naive_simulator(
    name: str, backfill: bool, drawn: Drawn
) -> None:
    jobs, order = jobs_of(drawn), order_named(name)

    queue = Ordered(order, JobColumns(jobs))
    rule: Backfill = "easy" if backfill else "none"
    outcome = InOrder(jobs, CountedSlots(SLOTS), queue, rule).run()

    naive = naive_again(jobs, order, backfill=backfill)
    assert outcome.started_s.tolist() == naive


def test_whole_nodes_are_given_out_and_orders_go_by_slots() -> None:
    """Three slots of nine take two of five nodes, so that two jobs run at once."""
    jobs = jobs_of([(0, 5, 0, 3), (0, 5, 0, 3), (0, 5, 0, 3)])

    by_slots = rlscheduler(jobs, 9, "sjf", backfill=False)
    by_nodes = rlscheduler(jobs, 9, "sjf", backfill=False, nodes=5)

    assert by_slots.started_s.tolist() == [1, 1, 1]
    assert by_nodes.started_s.tolist() == [1, 1, 6]
    assert by_nodes.slots.tolist() == [3, 3, 3]
    assert by_nodes.capacity == 9


def test_a_job_of_unknown_length_gets_one_but_no_request() -> None:
    known, unknown, never = jobs_of([(0, 5, 0, 1), (0, -1, 0, 1), (0, 0, 0, 1)])

    listed = rlscheduler_jobs([never, unknown, known])

    assert [(job.run_s, job.requested_s) for job in listed] == [(5, 5), (10, -1)]


@given(drawn=WORKLOADS)
def test_a_plan_for_all_delays_nobody_behind_whom_it_was_submitted(
    drawn: Drawn,
) -> None:
    """With true lengths, jumping ahead is allowed only at nobody's cost."""
    jobs = jobs_of([(gap, run, 0, slots) for gap, run, _, slots in drawn])

    def starts(backfill: Backfill) -> list[float]:
        queue = Ordered(order_named("fcfs"), JobColumns(jobs))
        outcome = InOrder(jobs, CountedSlots(SLOTS), queue, backfill).run()
        return list(outcome.started_s)

    pairs = zip(starts("conservative"), starts("none"), strict=True)
    assert all(planned <= in_turn for planned, in_turn in pairs)


def test_a_plan_lets_pass_only_who_is_in_nobodys_way() -> None:
    first, wide = (0, 10, 0, 3), (1, 10, 0, 4)
    jobs = jobs_of([first, wide, (1, 100, 0, 1), (1, 5, 0, 1)])

    queue = Ordered(order_named("fcfs"), JobColumns(jobs))
    outcome = InOrder(jobs, CountedSlots(SLOTS), queue, "conservative").run()

    assert outcome.started_s.tolist() == [1, 11, 21, 4]


KEYS: dict[str, Callable[[TraceJob, int], float]] = {
    "fcfs": lambda job, _: job.submitted_s,
    "srtf": lambda _, left: left,
    "srsf": lambda job, left: left * job.slots,
}


@pytest.mark.parametrize("name", KEYS)
@given(drawn=WORKLOADS)
@settings(max_examples=60)
def test_stopping_jobs_is_as_in_the_naive_simulator(name: str, drawn: Drawn) -> None:
    jobs = jobs_of(drawn)

    outcome = Preemptive(
        jobs,
        lambda: CountedSlots(SLOTS),
        rule_named(name),
        work_s=[job.run_s for job in jobs],
        overhead_s=[0.0] * len(jobs),
        options=PreemptiveOptions("none"),
    ).run()

    naive = naive_preemptive(jobs, KEYS[name])
    assert outcome.ended_s.tolist() == naive


@pytest.mark.parametrize("name", sorted(ORDERS))
@given(drawn=WORKLOADS)
@settings(max_examples=20)
def test_whatever_the_order_every_job_runs_its_time_and_no_slot_is_used_twice(
    name: str, drawn: Drawn
) -> None:
    jobs = jobs_of(drawn)

    outcome = Preemptive(
        jobs,
        lambda: CountedSlots(SLOTS),
        rule_named(name),
        work_s=[job.run_s for job in jobs],
        overhead_s=[1.0] * len(jobs),
        options=PreemptiveOptions("when started"),
    ).run()

    assert (outcome.jcts_s >= outcome.run_s).all()
    assert (outcome.waits_s >= 0).all()
    work = sum(job.run_s * job.slots for job in jobs)
    span_s = outcome.ended_s.max() - outcome.submitted_s.min()
    assert work <= span_s * SLOTS
