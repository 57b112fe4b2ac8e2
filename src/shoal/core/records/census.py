"""How a job fares, told without a look at each task of a large array."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from shoal.core.records.array_states import name_of
from shoal.model.job import ENDS, TaskState

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from shoal.core.records.records import GroupRecord, TaskRecord
    from shoal.core.scheduling.job_book import JobBook
    from shoal.model.ids import TaskId
    from shoal.model.job import Job


def counts_in(book: JobBook, group: GroupRecord) -> Counter[TaskState]:
    """Return how many tasks of a group are in each state."""
    if group.array is not None:
        return group.array.counts()
    return Counter(record.state for record in book.records_in(group))


def counts_of(book: JobBook, job: Job) -> Counter[TaskState]:
    """Return how many tasks of a job are in each state."""
    counts = Counter[TaskState]()
    for group in _groups(book, job):
        counts.update(counts_in(book, group))
    return counts


def examples_in(book: JobBook, group: GroupRecord) -> Iterable[TaskRecord]:
    """Go through all tasks of a group, but of a large array one of each sort."""
    array = group.array
    return book.records_in(group) if array is None else array.examples()


def examples_of(book: JobBook, job: Job) -> list[TaskRecord]:
    """Return all tasks of a job, but of large arrays one of each sort."""
    groups = _groups(book, job)
    return [record for group in groups for record in examples_in(book, group)]


def with_outputs(book: JobBook, job: Job) -> Iterator[TaskId]:
    """Go through the tasks of a job that may have left outputs."""
    for group in _groups(book, job):
        if group.array is None:
            yield from (task.id for task in group.group.tasks)
        elif group.group.tasks[0].work.outputs:
            for place in group.array.places(ENDS, fresh=False):
                yield name_of(group.id, place)


def began_wall_s(book: JobBook, job: Job) -> float:
    """Return the wall-clock time when the first task began; 0 if none has."""
    groups = _groups(book, job)
    records = (each for group in groups for each in book.records_in(group))
    arrays = [group.array.began_s for group in groups if group.array is not None]
    all_s = (*arrays, *(record.began_wall_s for record in records))
    return min(filter(None, all_s), default=0.0)


def ended_wall_s(book: JobBook, job: Job) -> float:
    """Return the wall-clock time when the latest task ended; 0 if unknown."""
    groups = _groups(book, job)
    records = (each for group in groups for each in book.records_in(group))
    arrays = [group.array.ended_s for group in groups if group.array is not None]
    return max([*arrays, *(each.ended_wall_s for each in records)], default=0.0)


def _groups(book: JobBook, job: Job) -> list[GroupRecord]:
    return [book.groups[group.id] for group in job.groups]
