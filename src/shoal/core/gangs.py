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
