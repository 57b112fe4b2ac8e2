"""Jobs, records and runs as short as tests want them."""

import msgspec

from shoal.core.dispatch.run_states import TaskRun
from shoal.core.durability.journal import AttemptPlace, Submitted
from shoal.core.records.records import TaskRecord
from shoal.core.scheduling.job_book import JobBook
from shoal.model.ids import Attempt, GroupId, JobId, LeaseId, NodeId, OwnerId, TaskId
from shoal.model.job import Group, Job, Retry, Task
from shoal.model.resources import Profile

SCHEDULER = NodeId("s")


class Batch(msgspec.Struct, frozen=True):
    """A message of a reliable stream, with nothing else in it."""

    first: int
    taken: int
    items: tuple[bytes, ...] = ()
    open: bool = True
    probe: bool = False
    turn: int = 0


def job(
    id_: str = "j",
    *,
    groups: dict[str, tuple[int, tuple[str, ...]]] | None = None,
    gang_min: int = 0,
    **fields: object,
) -> Job:
    """Return a job; of each group the number of tasks and the groups it needs."""
    shape = groups or {"g": (1, ())}
    made = Job(
        id=JobId(id_),
        owner=OwnerId("ann"),
        groups=tuple(
            _group(id_, name, size, needs, gang_min)
            for name, (size, needs) in shape.items()
        ),
        retry=Retry(),
    )
    return msgspec.structs.replace(made, **fields)


def _group(
    job_id: str, name: str, size: int, needs: tuple[str, ...], gang_min: int
) -> Group:
    group = GroupId(f"{job_id}.{name}")
    return Group(
        id=group,
        tasks=tuple(
            Task(
                id=TaskId(f"{group}.{n}"),
                job=JobId(job_id),
                group=group,
                index=n,
                size=size,
                profiles=(Profile(cpu_milli=1_000),),
            )
            for n in range(size)
        ),
        gang_min=gang_min,
        needs=tuple(GroupId(f"{job_id}.{need}") for need in needs),
    )


def attempt(sequence: int, generation: int = 1) -> Attempt:
    """Return an attempt of the one scheduler of these tests."""
    return Attempt(SCHEDULER, generation, sequence)


def place(task: str, sequence: int, worker: str = "w") -> AttemptPlace:
    """Return where an attempt of a task runs."""
    lease = LeaseId(f"{worker}/1/{sequence}")
    return AttemptPlace(TaskId(task), attempt(sequence), NodeId(worker), lease)


def book_with(job_: Job, now: float = 0.0) -> JobBook:
    """Return a book with one job in it."""
    book = JobBook()
    book.submit(Submitted(job_, now), now)
    return book


def running(book: JobBook, task: str, sequence: int, now: float = 0.0) -> TaskRun:
    """Start an attempt of a task and return it, as a worker confirmed it."""
    book.assign((place(task, sequence),), now)
    run = book.runs[attempt(sequence)]
    run.move("start", now)
    return run


def record(book: JobBook, task: str = "j.g.0") -> TaskRecord:
    """Return what a book knows of a task."""
    return book.tasks[TaskId(task)]
