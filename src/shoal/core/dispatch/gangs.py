"""What the fate of one member means for its gang.

Plain functions of the book. A gang goes on while at least `gang_min` of its members
(or all that are open, if fewer) run or have succeeded. Its members end together: one
that succeeds early is *exited*, and done only when the gang is. Only a failed member of
an elastic gang ends before the others: it is *spared* while enough of them are left.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from shoal.core.dispatch.run_states import TaskRun
    from shoal.core.durability.journal import Entry
    from shoal.core.records.records import GroupRecord
    from shoal.core.scheduling.job_book import JobBook
    from shoal.model.job import TaskState


def is_broken(
    book: JobBook, group: GroupRecord, without: TaskRun | None = None
) -> bool:
    """Whether some of a gang are left, but too few to go on."""
    if not group.is_gang:
        return False
    live = [run for run in book.live_in(group) if not run.lost and run is not without]
    left = len(live) + len(group.exited)
    return 0 < left < min(group.group.gang_min, group.open)


def can_spare(book: JobBook, group: GroupRecord) -> bool:
    """Whether a gang can do without its members that have failed.

    One that runs only once cannot: if too few still ran, the others would start again.
    """
    once = book.jobs[group.job].job.at_most_once
    return not once and group.open >= group.group.gang_min


def is_complete(group: GroupRecord) -> bool:
    """Whether enough members have succeeded for the gang to be done."""
    return len(group.exited) >= min(group.group.gang_min, group.open)


def finish_begun(book: JobBook, group: GroupRecord, now: float) -> list[Entry]:
    """Finish ending a gang, if a crash interrupted that.

    The members of a gang end together, so if one has ended, all must, but for those
    that were spared.
    """
    spared = can_spare(book, group)
    ends = [
        record
        for task in group.group.tasks
        if (record := book.tasks[task.id]).ended
        and not (spared and record.state == "failed")
    ]
    bad = next((record for record in ends if record.state != "done"), None)
    if bad is not None:
        why = f"{bad.task.id} {bad.state}: {bad.reason}"
        return finish(book, group, "cancelled", why, now)
    if ends:
        why = "not needed: the gang finished without it"
        return finish(book, group, "done", why, now)
    return []


def put_back(
    book: JobBook, group: GroupRecord, why: str, *, moved: bool = False
) -> list[Entry]:
    """Let a whole gang wait again, including members that succeeded."""
    entries: list[Entry] = []
    for run in book.live_in(group):
        entries += book.put_back(run, why, moved=moved)
    for task in list(group.exited):
        entries += book.run_anew(task, why)
    return entries


def finish(
    book: JobBook, group: GroupRecord, state: TaskState, why: str, now: float
) -> list[Entry]:
    """End a gang: members that succeeded are done, the others end in `state`."""
    entries: list[Entry] = []
    for task, exited in list(group.exited.items()):
        entries += book.finish(
            task, "done", now, attempt=exited.attempt, outcome=exited.outcome
        )
    for member in group.group.tasks:
        entries += book.finish(member.id, state, now, reason=why)
    return entries
