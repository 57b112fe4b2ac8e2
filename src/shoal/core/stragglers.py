"""Which tasks run far longer than their siblings did, and deserve a second run."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING, Final, final

from shoal.core.deadlines import DeadlineHeap, Deadlines
from shoal.core.timing import STRAGGLER_CHECK_S
from shoal.model.ids import GroupId

if TYPE_CHECKING:
    from shoal.core.jobs import GroupRecord, JobBook
    from shoal.model.ids import TaskId

DONE_SHARE_MIN: Final = 0.5  # so much of a group must have shown how long it takes
DONE_MIN: Final = 3
SLOWER: Final = 2.0  # a straggler takes so many times the median
SLOWER_S: Final = 2.0  # and so much longer, at least


@final
class Stragglers:
    """Looks now and then after the groups whose tasks may run a second time."""

    def __init__(self, book: JobBook, heap: DeadlineHeap) -> None:
        self._book = book
        self._watched: dict[GroupId, None] = {}
        self._looks: Deadlines[str] = Deadlines(heap)

    def watch(self, group: GroupId, now: float) -> None:
        """Look after a group from now on, until it has ended."""
        self._watched[group] = None
        self._looks.set_earlier("look", now + STRAGGLER_CHECK_S)

    def due(self, now: float) -> list[GroupId]:
        """Let stragglers wait for a second slot; return their groups."""
        if not self._looks.pop_due(now):
            return []
        found: list[GroupId] = []
        for id_ in list(self._watched):
            group = self._book.groups.get(id_)
            if group is None or group.open == 0:
                del self._watched[id_]
                continue
            for task in stragglers(self._book, group, now):
                self._book.want_second(task)
                found.append(id_)
        if self._watched:
            self._looks.set("look", now + STRAGGLER_CHECK_S)
        return found


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
