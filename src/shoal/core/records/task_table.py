"""The records of tasks, and where they are found.

A task of a listed group has a record from the beginning. One of a large array has one
while it is needed (`array_states`): asking the table for it makes it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from shoal.core.records.records import TaskRecord
from shoal.model.ids import GroupId, TaskId

if TYPE_CHECKING:
    from shoal.core.records.array_states import ArrayStates

RESTLESS_MAX: Final = 1_000
"""Records that may wait to be given up while a journal is replayed."""


@final
class TaskTable(dict[TaskId, TaskRecord]):
    """Records by the ids of their tasks; those of large arrays come when asked for."""

    def __init__(self) -> None:
        super().__init__()
        self._arrays: dict[GroupId, ArrayStates] = {}
        self._restless: list[TaskId] = []  # of arrays, and perhaps without an attempt

    def add_array(self, group: GroupId, states: ArrayStates) -> None:
        """Let the tasks of an array be found."""
        self._arrays[group] = states

    def drop_array(self, group: GroupId) -> None:
        """Forget an array, and what there is of its tasks."""
        for record in self._arrays.pop(group).records():
            self.pop(record.task.id, None)

    def __missing__(self, id_: TaskId) -> TaskRecord:
        """Make the record of a task of an array."""
        if (found := self._found(id_)) is None:
            raise KeyError(id_)
        states, place = found
        record = states.wake(place)
        self[id_] = record
        self._restless.append(id_)
        return record

    def __contains__(self, id_: object) -> bool:
        """Whether there is such a task."""
        return super().__contains__(id_) or self._found(id_) is not None

    def get(  # type: ignore[override]
        self, id_: TaskId, default: TaskRecord | None = None
    ) -> TaskRecord | None:
        """Return the record of a task, if there is such a task."""
        try:
            return self[id_]
        except KeyError:
            return default

    def lost_a_run(self, record: TaskRecord) -> None:
        """Note that a record may be given up once the event has been handled."""
        if record.array is not None:
            self._restless.append(record.task.id)

    def settle(self) -> None:
        """Give up the records of arrays that have no live attempt."""
        for id_ in self._restless:
            record = super().get(id_)
            if record is not None and not record.live:
                assert record.array is not None
                del self[id_]
                record.array.rest(record)
        self._restless.clear()

    @property
    def is_restless(self) -> bool:
        """Whether many records wait to be given up."""
        return len(self._restless) > RESTLESS_MAX

    def _found(self, id_: object) -> tuple[ArrayStates, int] | None:
        if not self._arrays or not isinstance(id_, str):
            return None
        group, _, place = id_.rpartition(".")
        states = self._arrays.get(GroupId(group))
        if states is None or not place.isdecimal() or place != str(int(place)):
            return None
        return (states, int(place)) if int(place) < len(states.tasks) else None
