"""Compact a journal: the shortest one whose replay gives the same state.

A journal grows with everything that happens; the state does not. From time to time the
host replaces all entries so far with the ones that `compacted` returns.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from shoal.core.durability.journal import (
    ArrayWaits,
    AttemptPlace,
    Cancelled,
    Entry,
    Incarnated,
    Led,
    RestEnded,
    Revoked,
    RunKept,
    SecretsSealed,
    Submitted,
    TaskKept,
)
from shoal.core.records.waiting_tasks import WaitingTasks
from shoal.model.job import ENDS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from shoal.core.dispatch.run_states import TaskRun
    from shoal.core.records.array_states import ArrayStates
    from shoal.core.records.records import GroupRecord, JobRecord, TaskRecord
    from shoal.core.scheduling.job_book import JobBook
    from shoal.model.ids import TaskId
    from shoal.protocol.messages import Revocation


PLACES_TOGETHER: Final = 10_000
"""Tasks of a large array that one entry names."""


def compacted(
    book: JobBook, revocations: Iterable[Revocation] = (), others: Iterable[Entry] = ()
) -> list[Entry]:
    """Return entries whose replay gives what a replay of all so far would give.

    Forgotten jobs are left out, and so is state that a crash may lose: lost workers,
    back-offs, wanted second runs. `revocations` are the node's standing revocations;
    `others` are entries of machines that share the journal.
    """
    entries: list[Entry] = [Incarnated(book.generation, book.numbered)]
    entries += map(Revoked, revocations)
    entries += others
    entries += book.standings.kept()
    entries += map(_submitted, book.jobs.values())
    entries += [sealed for job in book.jobs.values() for sealed in _sealed(job)]
    entries += book.schedules.values()
    # Ends come first: they unblock what waits or runs. Jobs end in the same order.
    ended = [book.jobs[id_] for id_ in book.ended]
    active = [job for job in book.jobs.values() if job.state == "active"]
    for job in ended + active:
        entries += _ends(book, job)
    entries += [_run_kept(run) for run in book.runs.values()]
    for job in active:
        entries += _open_tasks(book, job)
    return entries + [Led(j.job.id, j.term) for j in book.jobs.values() if j.term > 1]


def job_entries(book: JobBook, job: JobRecord) -> list[Entry]:
    """Return entries whose replay into an empty book gives this job alone."""
    entries: list[Entry] = [_submitted(job), *_sealed(job), *_ends(book, job)]
    for group in job.job.groups:
        entries += map(_run_kept, book.live_in(book.groups[group.id]))
    return entries if job.state != "active" else entries + _open_tasks(book, job)


def _submitted(job: JobRecord) -> Submitted:
    return Submitted(
        job.job,
        job.wall_s,
        job.quota_gpus,
        job.quota_cpu_milli,
        job.number,
        job.by,
        job.serial,
        job.parent,
        job.members,
    )


def _sealed(job: JobRecord) -> list[Entry]:
    id_ = job.job.id
    return [SecretsSealed(id_, node, secrets) for node, secrets in job.sealed.items()]


def _ends(book: JobBook, job: JobRecord) -> list[Entry]:
    entries: list[Entry] = []
    for group in (book.groups[group.id] for group in job.job.groups):
        records = book.records_in(group)
        entries += [_kept(record) for record in records if record.ended]
        if (array := group.array) is not None:
            entries += array.entries()
            if array.fresh and array.fresh_state in ENDS:
                why, wall_s = array.fresh_reason, array.fresh_ended_s
                entries.append(RestEnded(group.id, array.fresh_state, why, wall_s))
    if job.reason:
        entries.append(Cancelled(job.job.id, job.reason))
    if job.called is not None:
        entries.append(job.called)
    return entries


def _open_tasks(book: JobBook, job: JobRecord) -> list[Entry]:
    """Yield entries for tasks of a job that were tried and have not ended.

    Waiting and exited tasks keep their order.
    """
    entries: list[Entry] = []
    for group in job.job.groups:
        record = book.groups[group.id]
        if record.array is not None:
            entries += _waits(record, record.array)
            entries += _tried(book, [each.task.id for each in record.array.records()])
            continue
        ordered = [*record.waiting, *record.exited]
        entries += _tried(book, [*ordered, *(task.id for task in group.tasks)])
    return entries


def _waits(group: GroupRecord, array: ArrayStates) -> Iterator[ArrayWaits]:
    """Go through entries for tasks of a large array that were tried, and wait.

    Those that rest after a failure come last: they need not rest again.
    """
    assert isinstance(group.waiting, WaitingTasks)
    line = (int(task.rpartition(".")[2]) for task in group.waiting.again)
    kept = array.places(frozenset({"waiting"}), fresh=False)
    places = list(dict.fromkeys((*line, *kept)))
    for start in range(0, len(places), PLACES_TOGETHER):
        chosen = tuple(places[start : start + PLACES_TOGETHER])
        yield ArrayWaits(group.id, chosen)


def _tried(book: JobBook, tasks: Iterable[TaskId]) -> Iterator[Entry]:
    for task in dict.fromkeys(tasks):
        record = book.tasks[task]
        if record.ended or not record.attempts:
            continue
        kept = _kept(record)
        if exited := book.group_of(task).exited.get(task):
            outcome = exited.outcome
            kept = replace(kept, exited=exited.attempt, outcome=outcome)
        yield kept


def _kept(record: TaskRecord) -> TaskKept:
    doubted = sum(run.blamed for run in record.live.values())
    return TaskKept(
        task=record.task.id,
        end=record.state if record.ended else None,
        failures=record.failures,
        crashes=record.crashes - doubted,
        attempts=record.attempts,
        reason=record.reason,
        outcome=record.outcome,
        worker=record.worker,
        began_wall_s=record.began_wall_s,
        ended_wall_s=record.ended_wall_s,
        answers=record.answers,
        moves=record.moves,
        moved=record.moved,
    )


def _run_kept(run: TaskRun) -> RunKept:
    place = AttemptPlace(
        run.task, run.attempt, run.worker, run.lease, run.profile, run.owner
    )
    return RunKept(place, run.gang)
