"""Which tasks run far longer than their siblings did, and deserve a second run."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from shoal.core.jobs import GroupRecord, JobBook
    from shoal.model.ids import TaskId

DONE_SHARE_MIN: Final = 0.5  # so much of a group must have shown how long it takes
DONE_MIN: Final = 3
SLOWER: Final = 2.0  # a straggler takes so many times the median
SLOWER_S: Final = 2.0  # and so much longer, at least


def stragglers(book: JobBook, group: GroupRecord, now: float) -> list[TaskId]:
    """Return the tasks to run a second time: nothing else of their group waits.

    One that was on a worker when that was lost may be the cause: it never runs twice
    at a time.
    """
    done = len(group.done_s)
    if group.waiting or done < max(DONE_MIN, DONE_SHARE_MIN * len(group.group.tasks)):
        return []
    usual_s = median(group.done_s)
    late_s = max(SLOWER * usual_s, usual_s + SLOWER_S)
    return [
        task.id
        for task in group.group.tasks
        if book.tasks[task.id].crashes == 0
        and len(runs := book.tasks[task.id].live) == 1
        and all(run.started and now - run.since > late_s for run in runs.values())
    ]
