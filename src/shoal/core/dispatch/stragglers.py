"""Finding tasks that run far longer than their siblings did, to run them twice.

Theory of operation. Every `STRAGGLER_CHECK_S` the groups of jobs that allow it are
examined. When nothing of a group waits and enough of it is done, a task that takes much
longer than the median gets a second run elsewhere. The first run to end wins; the
dispatcher stops the other.
"""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING, Final, final

from shoal.core.deadlines import DeadlineHeap, Deadlines
from shoal.core.timing import STRAGGLER_CHECK_S
from shoal.model.ids import GroupId

if TYPE_CHECKING:
    from shoal.core.records.records import GroupRecord
    from shoal.core.scheduling.job_book import JobBook
    from shoal.model.ids import TaskId

DONE_SHARE_MIN: Final = 0.5  # share of a group that must be done
DONE_MIN: Final = 3
SLOWER: Final = 2.0  # times the median that a straggler takes
SLOWER_S: Final = 2.0  # and seconds beyond the median, at least


@final
class Stragglers:
    """Examines groups for stragglers from time to time."""

    def __init__(self, book: JobBook, heap: DeadlineHeap) -> None:
        self._book = book
        self._watched: dict[GroupId, None] = {}
        self._looks: Deadlines[str] = Deadlines(heap)

    def watch(self, group: GroupId, now: float) -> None:
        """Examine a group from now on, until it has ended."""
        self._watched[group] = None
        self._looks.set_earlier("look", now + STRAGGLER_CHECK_S)

    def due(self, now: float) -> list[GroupId]:
        """Let stragglers want a second slot; return their groups."""
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
    """Return the tasks of a group to run a second time.

    A task that may have crashed a worker never runs twice at a time.
    """
    done = len(group.done_s)
    if group.array is not None:
        done = group.array.kept["done"]
    if group.waiting or not group.done_s:
        return []
    if done < max(DONE_MIN, DONE_SHARE_MIN * len(group.group.tasks)):
        return []
    usual_s = median(group.done_s)
    late_s = max(SLOWER * usual_s, usual_s + SLOWER_S)
    return [
        record.task.id
        for record in book.records_in(group)
        if record.crashes == 0
        and len(runs := record.live) == 1
        and all(run.started and now - run.since > late_s for run in runs.values())
    ]
