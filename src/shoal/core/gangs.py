"""What becomes of a gang as a whole when something becomes of one of its members."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from shoal.core.jobs import GroupRecord, JobBook, Run
    from shoal.core.journal import Entry
    from shoal.model.job import TaskState


def is_broken(book: JobBook, group: GroupRecord, without: Run | None = None) -> bool:
    """Whether too few of a gang are left for it to go on or to be complete."""
    if not group.is_gang:
        return False
    live = [run for run in book.live_in(group) if not run.lost and run is not without]
    left = len(live) + len(group.exited)
    return 0 < left < min(group.group.gang_min, group.open)


def is_complete(group: GroupRecord) -> bool:
    """Whether enough of a gang has succeeded, if nothing of it runs any more."""
    return len(group.exited) >= min(group.group.gang_min, group.open)


def finish_begun(book: JobBook, group: GroupRecord, now: float) -> list[Entry]:
    """Bring the end of a gang to its end, of which a crash kept only a part.

    The members of a gang end together, so if one has ended, all have.
    """
    ends = [r for task in group.group.tasks if (r := book.tasks[task.id]).ended]
    bad = next((record for record in ends if record.state != "done"), None)
    if bad is not None:
        why = f"{bad.task.id} {bad.state}: {bad.reason}"
        return finish(book, group, "cancelled", why, now)
    if ends:
        why = "not needed: the gang finished without it"
        return finish(book, group, "done", why, now)
    return []


def put_back(book: JobBook, group: GroupRecord, why: str) -> list[Entry]:
    """Let all of a gang wait again, also those that have succeeded."""
    entries: list[Entry] = []
    for run in book.live_in(group):
        entries += book.put_back(run, why)
    for task in list(group.exited):
        entries += book.run_anew(task, why)
    return entries


def finish(
    book: JobBook, group: GroupRecord, state: TaskState, why: str, now: float
) -> list[Entry]:
    """End a gang: who succeeded is done, the others end in `state`."""
    entries: list[Entry] = []
    for task, exited in list(group.exited.items()):
        entries += book.finish(
            task, "done", now, attempt=exited.attempt, outcome=exited.outcome
        )
    for member in group.group.tasks:
        entries += book.finish(member.id, state, now, reason=why)
    return entries
