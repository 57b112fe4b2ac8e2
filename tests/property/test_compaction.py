"""A compacted journal, read into an empty book, gives what the long one gives."""

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.property.test_jobs import STEPS, step
from tests.unit.core.builders import job

from shoal.core.durability.compaction import compacted
from shoal.core.durability.journal import Entry, Returned, Submitted, decode, encode
from shoal.core.scheduling.job_book import ENDED_JOBS_MAX, JobBook
from shoal.model.ids import JobId

NOW, WALL = 100.0, 1_000.0

Steps = list[tuple[str, int, dict[str, tuple[int, tuple[str, ...]]]]]


def lived(steps: Steps, book: JobBook, since: int = 1) -> list[Entry]:
    """Change a book step by step; return its journal."""
    journal: list[Entry] = []
    book.wall_at_zero_s = WALL
    for n, (do, number, shape) in enumerate(steps, since):
        journal += step(book, do, number, shape, float(n))
    return journal


def replayed(journal: list[Entry]) -> JobBook:
    book = JobBook()
    for entry in journal:
        book.replay(entry, NOW, WALL)
    return book


def through_bytes(journal: list[Entry]) -> list[Entry]:
    return [decode(encode(entry)[1]) for entry in journal]


def everything(book: JobBook) -> list[object]:
    """Return all that a book holds, with the order of all that has one."""
    return [
        book.generation,
        list(book.jobs.items()),
        list(book.groups.items()),
        [list(group.waiting) for group in book.groups.values()],
        [list(group.exited) for group in book.groups.values()],
        [list(group.seconds) for group in book.groups.values()],
        list(book.tasks.items()),
        [list(record.live) for record in book.tasks.values()],
        list(book.runs.items()),
        book.ended,
        book._dependents,
    ]


def lasting(book: JobBook) -> list[object]:
    """Return the same without what a crash may lose: reasons, and who waits first."""
    for record in book.tasks.values():
        record.reason = record.reason if record.ended else ""
    for group in book.groups.values():
        group.waiting = dict.fromkeys(sorted(group.waiting))
    return everything(book)


@given(STEPS)
@settings(max_examples=300)
def test_a_book_that_was_read_is_compacted_without_any_loss(steps: Steps) -> None:
    book = replayed(lived(steps, JobBook()))

    short = through_bytes(compacted(book))

    assert everything(replayed(short)) == everything(book)


@given(STEPS)
@settings(max_examples=300)
def test_a_book_in_use_is_compacted_to_what_its_journal_says(steps: Steps) -> None:
    book = JobBook()
    journal = lived(steps, book)

    short = through_bytes(compacted(book))

    assert lasting(replayed(short)) == lasting(replayed(journal))


@given(STEPS, STEPS)
def test_a_journal_goes_on_after_it_was_compacted(first: Steps, then: Steps) -> None:
    book = JobBook()
    journal = lived(first, book)
    short = compacted(book)

    later = lived(then, book, since=1_000)

    assert lasting(replayed(short + later)) == lasting(replayed(journal + later))


@given(STEPS)
def test_compacting_twice_is_compacting_once(steps: Steps) -> None:
    once = compacted(replayed(lived(steps, JobBook())))

    assert compacted(replayed(once)) == once


@given(st.integers(1, 200))
@settings(max_examples=5)
def test_a_task_that_was_tried_often_leaves_one_entry(tries: int) -> None:
    book = JobBook()
    book.submit(Submitted(job(), 0.0), 0.0)
    for n in range(1, tries + 1):
        entries = lived([("assign", 0, {}), ("back", 0, {})], book, since=2 * n)
        assert isinstance(entries[-1], Returned)

    assert len(compacted(book)) == 3


def test_ended_jobs_beyond_those_kept_are_dropped() -> None:
    book = JobBook()
    journal: list[Entry] = []
    for n in range(ENDED_JOBS_MAX + 5):
        journal += book.submit(Submitted(job(f"j{n}"), 0.0), 0.0)
        journal += book.cancel(JobId(f"j{n}"), "enough", 0.0)

    short = compacted(book)

    named = [entry.job.id for entry in short if isinstance(entry, Submitted)]
    assert named == [f"j{n}" for n in range(5, ENDED_JOBS_MAX + 5)]
    assert everything(replayed(short)) == everything(replayed(journal))
