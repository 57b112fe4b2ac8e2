"""The journal of a book of jobs, read into an empty book, gives the same jobs."""

from hypothesis import given
from hypothesis import strategies as st
from tests.unit.core.builders import job, place

from shoal.core.durability.journal import Entry, Submitted
from shoal.core.scheduling.job_book import JobBook
from shoal.model.job import TaskState
from shoal.protocol.messages import Outcome

SHAPES = st.sampled_from(
    [
        {"g": (3, ())},
        {"a": (2, ()), "b": (1, ("a",)), "c": (2, ("a", "b"))},
        {"a": (1, ()), "b": (1, ("a",))},
    ]
)
STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            ["submit", "assign", "second", "back", "lose", "end", "exit", "cancel"]
        ),
        st.integers(0, 50),
        SHAPES,
    ),
    max_size=40,
)
ENDS: tuple[TaskState, ...] = ("done", "done", "failed", "unknown")


def step(
    book: JobBook,
    do: str,
    number: int,
    shape: dict[str, tuple[int, tuple[str, ...]]],
    now: float,
) -> list[Entry]:
    """Change the book in one way, if that is possible now."""
    waiting = [task for group in book.groups.values() for task in group.waiting]
    runs = list(book.runs.values())
    open_jobs = [id_ for id_, told in book.jobs.items() if told.state == "active"]
    match do:
        case "submit" if len(book.jobs) < 4:
            gang_min = number % 2
            made = job(f"j{len(book.jobs)}", groups=shape, gang_min=gang_min)
            return book.submit(Submitted(made, now), now)
        case "assign" if waiting:
            return book.assign((place(waiting[number % len(waiting)], int(now)),), now)
        case "second" if runs:
            book.want_second(runs[number % len(runs)].task)
        case "back" if runs:
            run = runs[number % len(runs)]
            return book.put_back(run, "why", failed=number > 25, crashed=number % 3 > 1)
        case "lose" if runs:
            book.wait_again(runs[number % len(runs)].task)
        case "exit" if runs:
            run = runs[number % len(runs)]
            if book.group_of(run.task).is_gang and len(book.tasks[run.task].live) == 1:
                return book.exit(run, Outcome("exited", exit_code=0))
        case "end" if runs:
            run = runs[number % len(runs)]
            state = ENDS[number % len(ENDS)]
            return book.finish(run.task, state, now, attempt=run.attempt)
        case "cancel" if open_jobs:
            return book.cancel(open_jobs[number % len(open_jobs)], "", now)
        case _:
            pass
    return []


def told(book: JobBook) -> dict[str, object]:
    """Return what must be the same after a replay."""
    return {
        "jobs": {id_: (r.state, r.open) for id_, r in book.jobs.items()},
        "groups": {id_: (g.open, g.needs_open) for id_, g in book.groups.items()},
        "exited": {id_: list(g.exited) for id_, g in book.groups.items()},
        "tasks": {
            id_: (r.ended, r.failures, r.crashes, r.attempts, sorted(r.live))
            for id_, r in book.tasks.items()
        },
        "ends": {id_: (r.state, r.reason) for id_, r in book.tasks.items() if r.ended},
        "runs": {a: (r.task, r.worker, r.lease, r.gang) for a, r in book.runs.items()},
        "dependents": book._dependents,
    }


@given(STEPS)
def test_a_replay_gives_the_same_jobs(
    steps: list[tuple[str, int, dict[str, tuple[int, tuple[str, ...]]]]],
) -> None:
    book = JobBook()
    journal: list[Entry] = []
    for n, (do, number, shape) in enumerate(steps):
        journal += step(book, do, number, shape, float(n + 1))

    again = JobBook()
    for entry in journal:
        again.replay(entry, 100.0, 100.0)

    assert told(again) == told(book)


@given(STEPS)
def test_what_neither_runs_nor_has_ended_nor_exited_waits_after_a_replay(
    steps: list[tuple[str, int, dict[str, tuple[int, tuple[str, ...]]]]],
) -> None:
    book = JobBook()
    journal: list[Entry] = []
    for n, (do, number, shape) in enumerate(steps):
        journal += step(book, do, number, shape, float(n + 1))

    again = JobBook()
    for entry in journal:
        again.replay(entry, 100.0, 100.0)

    for group in again.groups.values():
        for task in group.group.tasks:
            told_of = again.tasks[task.id]
            idle = not (told_of.ended or told_of.live or task.id in group.exited)
            assert (task.id in group.waiting) == (idle and group.needs_open == 0)


@given(STEPS)
def test_a_group_knows_how_many_of_its_runs_are_live(
    steps: list[tuple[str, int, dict[str, tuple[int, tuple[str, ...]]]]],
) -> None:
    book = JobBook()
    for now, (do, number, shape) in enumerate(steps):
        step(book, do, number, shape, float(now))
        for group in book.groups.values():
            assert group.live == len(book.live_in(group))
