"""What ran is counted once, however it ended, and outlives jobs and crashes."""

from random import Random

import pytest

from shoal.core.deadlines import DeadlineHeap
from shoal.core.durability.journal import (
    Assigned,
    AttemptPlace,
    Entry,
    Submitted,
    UsageAdded,
    decode,
    encode,
)
from shoal.core.events import (
    DeadlineReached,
    Effect,
    Record,
    Tell,
    WallClockRead,
)
from shoal.core.housekeeping import usage_ledger
from shoal.core.housekeeping.events import MeteredRun, RunsMetered
from shoal.core.housekeeping.run_meter import RunMeter
from shoal.core.housekeeping.usage_ledger import DAY_S, WRITE_S, UsageLedger
from shoal.core.scheduling.job_book import JobBook
from shoal.core.timing import METER_S
from shoal.model.ids import (
    Attempt,
    GroupId,
    JobId,
    LeaseId,
    NodeId,
    OwnerId,
    TaskId,
)
from shoal.model.job import Group, Job, Task
from shoal.model.resources import GpuNeed, Profile

TASK = TaskId("j.main.0")
GPU = Profile(cpu_milli=2_000, gpu=GpuNeed(2, 2))


def booked() -> JobBook:
    group = GroupId("j.main")
    task = Task(id=TASK, job=JobId("j"), group=group, profiles=(GPU,))
    groups = (Group(id=group, tasks=(task,)),)
    book = JobBook(0.0)
    job = Job(id=JobId("j"), owner=OwnerId("ann"), name="net", groups=groups)
    book.submit(Submitted(job, 0.0), 0.0)
    return book


def assign(book: JobBook, number: int, now: float) -> None:
    attempt = Attempt(NodeId("s"), 1, number)
    place = AttemptPlace(TASK, attempt, NodeId("w"), LeaseId(f"w/1/{number}"))
    assert isinstance(book.assign((place,), now)[-1], Assigned)


def metered(effects: list[Effect]) -> list[tuple[str, float, int, int]]:
    return [
        (run.node, run.spent_s, run.cpu_milli, run.gpu_milli)
        for effect in effects
        if isinstance(effect, Tell) and isinstance(effect.event, RunsMetered)
        for run in effect.event.runs
    ]


def test_an_attempt_counts_from_its_start_however_it_ends() -> None:
    book = booked()
    meter = RunMeter(book, DeadlineHeap())
    assign(book, 1, 10.0)
    [run] = book.runs.values()
    run.move("start", 15.0)
    book.put_back(run, "preempted")
    assert metered(meter.look(book.take_ended_runs(), 20.0)) == [
        ("w", 5.0, 2_000, 2_000)
    ]

    assign(book, 2, 30.0)
    book.put_back(next(iter(book.runs.values())), "it never started")
    assert meter.look(book.take_ended_runs(), 40.0) == []

    assign(book, 3, 50.0)
    [run] = book.runs.values()
    run.move("start", 50.0)
    book.finish(TASK, "failed", 58.0)
    assert metered(meter.look(book.take_ended_runs(), 58.0)) == [
        ("w", 8.0, 2_000, 2_000)
    ]
    assert meter.look(book.take_ended_runs(), 59.0) == []


def test_what_goes_on_is_counted_from_time_to_time_and_nothing_twice() -> None:
    book = booked()
    heap = DeadlineHeap()
    meter = RunMeter(book, heap)
    assign(book, 1, 0.0)
    [run] = book.runs.values()
    run.move("start", 0.0)
    meter.look(book.take_ended_runs(), 0.0)
    assert heap.next() == METER_S

    assert metered(meter.due(METER_S)) == [("w", METER_S, 2_000, 2_000)]
    book.finish(TASK, "done", METER_S + 5.0)
    assert metered(meter.look(book.take_ended_runs(), METER_S + 5.0)) == [
        ("w", 5.0, 2_000, 2_000)
    ]


def ran(spent_s: float, *, job: str = "j", node: str = "w") -> RunsMetered:
    run = MeteredRun(
        kind="used",
        owner=OwnerId("ann"),
        node=NodeId(node),
        job=JobId(job),
        spent_s=spent_s,
        cpu_milli=1_500,
        gpu_milli=0,
    )
    return RunsMetered((run,))


def entries(effects: list[Effect]) -> list[Entry]:
    found = [each for each in effects if isinstance(each, Record)]
    assert all(not each.durable for each in found)
    return [decode(encode(each.entry)[1]) for each in found]


def test_a_ledger_adds_up_by_day_and_a_restart_changes_nothing() -> None:
    ledger = UsageLedger((), wall_at_zero_s=3 * DAY_S)
    journal = entries(ledger.handle(ran(2.0), 0.0))
    assert ledger.handle(ran(4.0), 0.1) == [], "it is written a little later"
    assert ledger.next_deadline() == pytest.approx(WRITE_S)
    journal += entries(ledger.handle(DeadlineReached(), WRITE_S))
    ledger.handle(WallClockRead(4 * DAY_S + 10.0), 10.0)
    journal += entries(ledger.handle(ran(1.0), 10.0))

    sums = [(row.day, row.cpu_milli_s) for row in ledger.rows]

    assert sums == [(3, 9_000), (4, 1_500)]
    again = UsageLedger(journal, 0.0)
    assert again.rows == ledger.rows
    assert UsageLedger(again.kept(), 0.0).rows == ledger.rows


def test_a_ledger_is_bounded_and_loses_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(usage_ledger, "ROWS_MAX", 40)
    ledger = UsageLedger((), 0.0)
    rng = Random(1)
    total = 0
    for n in range(1_000):
        spent_s = float(rng.randrange(10))
        total += round(spent_s * 1_500)
        ledger.handle(ran(spent_s, job=f"j{n}", node=f"w{n % 3}"), n * DAY_S / 20)
        assert len(ledger.rows) <= 41

    assert sum(row.cpu_milli_s for row in ledger.rows) == total
    [kept] = ledger.kept()
    assert isinstance(kept, UsageAdded)
