"""Large arrays: tasks derived when needed, states without records, compact journals."""

import tracemalloc
from random import Random

import msgspec
import pytest

from shoal.core.durability.compaction import compacted
from shoal.core.durability.journal import (
    ArrayKept,
    Entry,
    Finished,
    RestEnded,
    Returned,
    Submitted,
    decode,
    encode,
)
from shoal.core.durability.journal import AttemptPlace as Place
from shoal.core.records import census
from shoal.core.scheduling.job_book import JobBook
from shoal.core.scheduling.job_validation import flaw
from shoal.model.derive import derive
from shoal.model.ids import Attempt, GroupId, JobId, LeaseId, NodeId, OwnerId, TaskId
from shoal.model.job import Job, TaskArray, TaskState
from shoal.model.spec.submission import load_spec
from shoal.protocol.messages import Outcome

ANN, OTTER, HERON = OwnerId("ann"), NodeId("otter"), NodeId("heron")
G = GroupId("j.main")
DONE = Outcome(kind="exited", exit_code=0, memory_bytes=1_234_567)


def derived(document: dict[str, object]) -> Job:
    spec = load_spec(msgspec.json.encode(document), "json")
    return derive(spec, JobId("j"), ANN)


def job(**fields: object) -> Job:
    document = {"command": "work --part {index}", **fields}
    return derived(document)


def book_with(one: Job) -> JobBook:
    book = JobBook(wall_at_zero_s=1_000.0)
    book.submit(Submitted(one, 1_000.0), 0.0)
    return book


def task(place: int) -> TaskId:
    return TaskId(f"{G}.{place}")


def run(book: JobBook, place: int, number: int, now: float = 1.0) -> Attempt:
    attempt = Attempt(OTTER, 1, number)
    book.assign((Place(task(place), attempt, HERON, LeaseId(f"l{number}")),), now)
    return attempt


def finish(book: JobBook, place: int, number: int, now: float = 2.0) -> list[Entry]:
    attempt = run(book, place, number)
    ended = book.finish(task(place), "done", now, attempt=attempt, outcome=DONE)
    book.tasks.settle()
    return ended


def again(book: JobBook) -> JobBook:
    """Return what a restart makes of the compact journal of a book."""
    entries = [decode(encode(entry)[1]) for entry in compacted(book)]
    other = JobBook(wall_at_zero_s=1_000.0)
    for entry in entries:
        other.replay(entry, 5.0, 1_005.0)
    other.tasks.settle()
    return other


def told(book: JobBook) -> list[tuple[object, ...]]:
    """Return all that is known of each task."""
    found = [book.tasks[each.id] for each in book.jobs[JobId("j")].job.tasks()]
    return [
        (
            record.state,
            record.attempts,
            record.failures,
            record.reason,
            record.worker,
            record.outcome,
            record.began_wall_s,
            record.ended_wall_s,
        )
        for record in found
    ]


def test_a_large_array_is_the_same_tasks_as_a_listed_one() -> None:
    large = job(array=1_000, env={"A": "b"}, params={"x": 2})
    listed = job(array="0-998,1000", env={"A": "b"}, params={"x": 2})
    odd = job(array="3-2999:3")

    assert isinstance(large.groups[0].tasks, TaskArray)
    assert isinstance(listed.groups[0].tasks, tuple)
    assert tuple(large.groups[0].tasks)[:-1] == listed.groups[0].tasks[:-1]
    assert odd.groups[0].tasks[7].work.argv == ("work", "--part", "24")
    assert odd.groups[0].tasks[7].label == "24"


@pytest.mark.parametrize(
    "fields",
    [
        {"verify": {"copies": 2}, "outputs": ["o"]},
        {"keepers": 2},
        {"nodes": 2, "array": 200},
    ],
)
def test_what_is_compared_kept_or_together_is_listed(fields: dict[str, object]) -> None:
    one = job(**{"array": 1_000, **fields})

    assert all(isinstance(group.tasks, tuple) for group in one.groups)


def test_an_array_that_was_not_derived_is_refused() -> None:
    one = job(array=2_000)
    [group] = one.groups
    tasks = group.tasks
    assert isinstance(tasks, TaskArray)
    assert flaw(one) is None

    for changed in (
        msgspec.structs.replace(group, gang_min=2),
        msgspec.structs.replace(
            group, tasks=msgspec.structs.replace(tasks, count=1_000_001)
        ),
        msgspec.structs.replace(
            group, tasks=msgspec.structs.replace(tasks, first=tasks[1])
        ),
    ):
        assert flaw(msgspec.structs.replace(one, groups=(changed,))) is not None


def test_a_million_waiting_tasks_take_few_bytes_and_one_small_entry() -> None:
    one = job(array=1_000_000)
    tracemalloc.start()

    book = book_with(one)

    used, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert used < 10 * 1_000_000
    assert len(book.groups[G].waiting) == 1_000_000
    assert census.counts_of(book, one) == {"waiting": 1_000_000}
    assert sum(len(encode(entry)[1]) for entry in compacted(book)) < 2_000


def test_tasks_run_in_order_and_those_that_wait_again_come_last() -> None:
    book = book_with(job(array=1_000))
    first = next(iter(book.groups[G].waiting))
    attempt = run(book, 0, 1)

    book.put_back(book.runs[attempt], "exit 1", failed=True)
    book.tasks.settle()

    assert first == task(0)
    order = list(book.groups[G].waiting)
    assert order[0] == task(1)
    assert order[-1] == task(0)
    assert len(order) == 1_000
    assert task(0) in book.groups[G].waiting
    assert book.tasks[task(0)].failures == 1


def test_only_tasks_that_run_have_a_record() -> None:
    book = book_with(job(array=1_000))
    for place in range(500):
        finish(book, place, place + 1)
    run(book, 500, 501)
    book.tasks.settle()

    assert list(book.tasks.keys()) == [task(500)]
    assert census.counts_of(book, book.jobs[JobId("j")].job) == {
        "done": 500,
        "running": 1,
        "waiting": 499,
    }
    assert book.tasks[task(3)].outcome == DONE
    assert book.tasks[task(3)].worker == HERON


def test_an_end_is_told_once_and_stays() -> None:
    book = book_with(job(array=1_000))
    finish(book, 7, 1)

    assert book.finish(task(7), "failed", 3.0) == []
    assert book.tasks[task(7)].state == "done"
    with pytest.raises(AssertionError):
        run(book, 7, 2)


@pytest.mark.parametrize(
    "name", ["j.main.1000", "j.main.01", "j.main.-1", "j.x.1", "7"]
)
def test_only_tasks_of_the_array_are_found(name: str) -> None:
    book = book_with(job(array=1_000))

    assert name not in book.tasks
    assert book.tasks.get(TaskId(name)) is None


def test_a_cancelled_array_has_one_entry_for_what_never_ran() -> None:
    book = book_with(job(array=100_000))
    finish(book, 0, 1)
    attempt = run(book, 1, 2)
    book.put_back(book.runs[run(book, 2, 3)], "lost")

    entries = book.cancel(JobId("j"), "enough", 3.0)
    book.tasks.settle()

    assert len(entries) == 1
    assert attempt not in book.runs
    assert book.jobs[JobId("j")].state == "cancelled"
    assert not book.groups[G].waiting
    assert census.counts_of(book, book.jobs[JobId("j")].job) == {
        "done": 1,
        "cancelled": 99_999,
    }
    assert told(again(book))[:5] == told(book)[:5]


def test_what_needs_a_failed_array_ends_with_one_entry() -> None:
    steps = {
        "a": {"command": "x"},
        "b": {"command": "y", "array": 5_000, "needs": ["a"]},
    }
    book = book_with(derived({"steps": steps}))

    entries = book.finish(TaskId("j.a.0"), "failed", 2.0, reason="exit 1")

    assert [type(entry) for entry in entries] == [Finished, RestEnded]
    assert book.jobs[JobId("j")].state == "failed"
    other = JobBook()
    other.submit(Submitted(book.jobs[JobId("j")].job, 1_000.0), 0.0)
    for entry in entries:
        other.replay(entry, 3.0, 1_003.0)
    assert other.jobs[JobId("j")].state == "failed"


def test_an_array_waits_for_what_it_needs() -> None:
    steps = {
        "a": {"command": "x"},
        "b": {"command": "y", "array": 5_000, "needs": ["a"]},
    }
    book = book_with(derived({"steps": steps}))
    group = book.groups[GroupId("j.b")]
    blocked = len(group.waiting)

    book.finish(TaskId("j.a.0"), "done", 2.0)

    assert blocked == 0
    assert len(group.waiting) == 5_000
    assert book.tasks[TaskId("j.b.9")].state == "waiting"


@pytest.mark.parametrize("seed", range(20))
def test_a_compact_journal_says_all_that_the_book_knows(seed: int) -> None:
    rng, one = Random(seed), job(array=1_000 + 5_000 * (seed % 2))
    book = book_with(one)
    live: list[Attempt] = []
    for number in range(1, rng.randint(1, 300)):
        if live and rng.random() < 0.6:
            ended = book.runs[live.pop(rng.randrange(len(live)))]
            if rng.random() < 0.5:
                state: TaskState = "failed" if rng.random() < 0.5 else "done"
                book.finish(ended.task, state, 9.0, attempt=ended.attempt, outcome=DONE)
            else:
                book.put_back(ended, f"exit {rng.randint(1, 3)}", failed=True)
        else:
            waiting = list(book.groups[G].waiting)
            place = int(waiting[rng.choice([0, -1])].rpartition(".")[2])
            live.append(run(book, place, number, now=rng.random()))
        if rng.random() < 0.5:
            book.tasks.settle()

    other = again(again(book))

    assert told(other) == told(book)
    assert list(other.groups[G].waiting) == list(book.groups[G].waiting)
    assert other.groups[G].open == book.groups[G].open
    assert other.runs.keys() == book.runs.keys()
    assert census.counts_of(other, one) == census.counts_of(book, one)


def test_ends_of_a_large_array_are_compact_in_a_journal() -> None:
    book = book_with(job(array=20_000))
    for place in range(20_000):
        finish(book, place, place + 1)

    entries = compacted(book)

    size = sum(len(encode(entry)[1]) for entry in entries)
    assert sum(isinstance(entry, ArrayKept) for entry in entries) == 5
    assert size < 32 * 20_000
    assert again(book).jobs[JobId("j")].state == "done"


def test_a_failure_of_an_ended_task_in_a_replay_changes_nothing() -> None:
    book = book_with(job(array=1_000))
    finish(book, 3, 1)

    book.replay(Returned(task(3), Attempt(OTTER, 1, 1), 1, 0), 3.0, 1_003.0)

    assert book.tasks[task(3)].failures == 0
