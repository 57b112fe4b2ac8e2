"""Which tasks of a large array want a slot, in order: a line of a million is small.

Tasks that never ran come first, in the order of the array; one byte says of each
whether it is still in that part of the line. Behind them are those that want a slot
again. `WaitingTasks` is used as the dict that other groups have for the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    from collections.abc import Iterator

    from shoal.model.ids import GroupId, TaskId

from shoal.core.records.array_states import name_of


@final
class WaitingTasks:
    """The line of one array; nobody stands in it before it is `open`."""

    def __init__(self, group: GroupId, count: int) -> None:
        self._group = group
        self._gone = bytearray(count)  # out of the first part of the line
        self._left = count  # how many are not
        self._first = 0  # all before this are gone
        self._again: dict[TaskId, None] = {}
        self._is_open = False

    def open(self) -> None:
        """Let all stand in line that have not gone."""
        self._is_open = True

    def leave(self, start: int, gone: bytes) -> None:
        """Let all tasks from `start` on leave the first part for which there is a 1."""
        for row, is_gone in enumerate(gone):
            if is_gone and not self._gone[start + row]:
                self._gone[start + row] = 1
                self._left -= 1
        self._look_on()

    def clear(self) -> None:
        """Send everybody away, for good."""
        self._is_open = False
        self._again.clear()

    @property
    def again(self) -> list[TaskId]:
        """Those that want a slot again, in order."""
        return list(self._again)

    def __len__(self) -> int:
        return len(self._again) + (self._left if self._is_open else 0)

    def __contains__(self, task: object) -> bool:
        if task in self._again:
            return True
        return self._is_open and not self._gone[self._place(task)]

    def __iter__(self) -> Iterator[TaskId]:
        if self._is_open:
            place = self._gone.find(0, self._first)
            while place >= 0:
                yield name_of(self._group, place)
                place = self._gone.find(0, place + 1)
        yield from list(self._again)

    def __setitem__(self, task: TaskId, _: None) -> None:
        if task not in self:
            self._leave_first(task)
            self._again[task] = None

    def pop(self, task: TaskId, default: None = None) -> None:
        """Let a task stand in line no more."""
        self._again.pop(task, default)
        self._leave_first(task)

    def _leave_first(self, task: TaskId) -> None:
        place = self._place(task)
        if self._gone[place]:
            return
        self._gone[place] = 1
        self._left -= 1
        if place == self._first:
            self._look_on()

    def _look_on(self) -> None:
        found = self._gone.find(0, self._first)
        self._first = found if found >= 0 else len(self._gone)

    def _place(self, task: object) -> int:
        assert isinstance(task, str)
        return int(task.rpartition(".")[2])
