"""What became of the tasks of a large array, without a record for each.

Theory of operation. Of the tasks of a large array (`model.job.TaskArray`) most are in
one of two states at any time: nobody has touched them yet, or they have ended. So

    fresh     nothing happened to it; all such tasks share one state and one reason
    kept      it was tried; a row of a few numbers says all that is known of it
    awake     it has a `TaskRecord`, because an attempt of it lives

`JobBook` works on records alone. `TaskTable` is where it finds them: one that is asked
for and is not there is made of what is known here. When an event has been handled,
`TaskTable.settle` puts every record back that has no live attempt. So the awake tasks
are as many as run, however large the array is.

A row has the times, the memory that was used, and the number of a *kind*: the rest of
the record, encoded. Tasks that ended alike share their kind. Rows come in blocks, and a
block is made when the first of its tasks is kept; a fresh task costs one byte here, and
one in its line (`waiting_tasks`).
"""

from __future__ import annotations

from array import array
from collections import Counter
from itertools import islice
from typing import TYPE_CHECKING, Final, final

import msgspec
from msgspec.structs import replace

from shoal.core.durability.journal import ArrayKept
from shoal.core.records.records import TaskRecord
from shoal.model.ids import NodeId, TaskId
from shoal.model.job import ENDS, TaskState
from shoal.protocol.messages import Outcome

if TYPE_CHECKING:
    from collections.abc import Iterator

    from shoal.model.job import TaskArray

BLOCK: Final = 4_096
"""Tasks whose rows are made, and written to a compact journal, together."""

EXAMPLES_MAX: Final = 1_000

_FRESH, _KEPT, _AWAKE = 0, 1, 2


class KeptKind(msgspec.Struct, frozen=True, array_like=True):
    """What tasks that went alike have in common."""

    state: TaskState
    attempts: int
    failures: int
    crashes: int
    reason: str
    worker: NodeId
    outcome: Outcome | None


_ENCODER: Final = msgspec.msgpack.Encoder()
_DECODER: Final = msgspec.msgpack.Decoder(KeptKind)


@final
class _Kinds:
    """Kinds by number; one that no row has any more is forgotten."""

    def __init__(self) -> None:
        self._numbers: dict[bytes, int] = {}
        self._known: list[bytes] = []
        self._rows: list[int] = []  # how many rows have it
        self._firsts: list[int] = []  # the place of a task that had it first
        self._free: list[int] = []

    def number_of(self, kind: bytes, place: int, rows: int = 1) -> int:
        """Return the number of a kind, which so many more rows have."""
        number = self._numbers.get(kind)
        if number is None and self._free:
            number = self._numbers[kind] = self._free.pop()
            self._known[number], self._rows[number] = kind, 0
            self._firsts[number] = place
        elif number is None:
            number = self._numbers[kind] = len(self._known)
            self._known.append(kind)
            self._rows.append(0)
            self._firsts.append(place)
        self._rows[number] += rows
        return number

    def drop(self, number: int) -> None:
        """Note that one row fewer has a kind."""
        self._rows[number] -= 1
        if not self._rows[number]:
            del self._numbers[self._known[number]]
            self._known[number] = b""
            self._free.append(number)

    def __getitem__(self, number: int) -> bytes:
        return self._known[number]

    def examples(self) -> Iterator[tuple[int, bytes]]:
        """Go through the kinds and a task of each, the oldest kind first."""
        for kind, number in self._numbers.items():
            yield self._firsts[number], kind


@final
class _Block:
    """The rows of some tasks that follow each other."""

    def __init__(self, size: int) -> None:
        self.kinds = array("I", bytes(4 * size))
        self.began_s = array("d", bytes(8 * size))
        self.ended_s = array("d", bytes(8 * size))
        self.memory = array("Q", bytes(8 * size))


@final
class ArrayStates:
    """The states of the tasks of one large array."""

    def __init__(self, tasks: TaskArray, fresh: TaskState) -> None:
        self.tasks = tasks
        self.fresh_state: TaskState = fresh
        self.fresh_reason = ""
        self.fresh_ended_s = 0.0
        self.fresh = len(tasks)  # how many of them there are
        self.awake: dict[int, TaskRecord] = {}
        self.kept: Counter[TaskState] = Counter()  # how many are kept, by state
        self.began_s = 0.0  # when the first attempt began, if one did
        self.ended_s = 0.0  # when the latest kept one ended
        self._where = bytearray(len(tasks))
        self._kinds = _Kinds()
        self._blocks: dict[int, _Block] = {}

    # Reading.

    def counts(self) -> Counter[TaskState]:
        """Return how many tasks are in each state; costs no more for more tasks."""
        counts = Counter(self.kept)
        counts.update(record.state for record in self.awake.values())
        counts[self.fresh_state] += self.fresh
        return +counts

    @property
    def kept_ended(self) -> int:
        """How many of the kept tasks have ended."""
        return sum(self.kept[state] for state in sorted(ENDS))

    def examples(self) -> list[TaskRecord]:
        """Return the awake tasks, and one of each sort of the others.

        They are copies: enough to say how the array fares, and nothing to change.
        """
        found = self.records()
        if self.fresh:
            place = self._where.find(_FRESH)
            found.append(self._fresh_record(place))
        for place, kind in islice(self._kinds.examples(), EXAMPLES_MAX):
            found.append(self._kept_record(place, kind))
        return found

    def records(self) -> list[TaskRecord]:
        """Return the records of the awake tasks, in order."""
        return [self.awake[place] for place in sorted(self.awake)]

    def places(
        self, states: frozenset[TaskState], *, fresh: bool = True
    ) -> Iterator[int]:
        """Go through the places of tasks in any of these states, in order.

        Of fresh tasks only if they are wanted as well.
        """
        is_fresh = fresh and self.fresh_state in states
        alike: dict[int, bool] = {}
        for place, where in enumerate(self._where):
            if where == _FRESH:
                found = is_fresh
            elif where == _AWAKE:
                found = self.awake[place].state in states
            else:
                number = self._blocks[place // BLOCK].kinds[place % BLOCK]
                if number not in alike:
                    alike[number] = _DECODER.decode(self._kinds[number]).state in states
                found = alike[number]
            if found:
                yield place

    # Records come and go.

    def wake(self, place: int) -> TaskRecord:
        """Return a new record of a task that has none."""
        if self._where[place] == _FRESH:
            record = self._fresh_record(place)
            self.fresh -= 1
        else:
            number = self._blocks[place // BLOCK].kinds[place % BLOCK]
            record = self._kept_record(place, self._kinds[number])
            self.kept[record.state] -= 1
            self._kinds.drop(number)
        self._where[place] = _AWAKE
        self.awake[place] = record
        return record

    def _fresh_record(self, place: int) -> TaskRecord:
        return TaskRecord(
            task=self.tasks[place],
            state=self.fresh_state,
            reason=self.fresh_reason,
            ended_wall_s=self.fresh_ended_s,
            array=self,
        )

    def _kept_record(self, place: int, encoded: bytes) -> TaskRecord:
        kind, row = _DECODER.decode(encoded), place % BLOCK
        block = self._blocks[place // BLOCK]
        outcome, memory = kind.outcome, block.memory[row]
        if outcome is not None and memory:
            outcome = replace(outcome, memory_bytes=memory)
        return TaskRecord(
            task=self.tasks[place],
            state=kind.state,
            failures=kind.failures,
            crashes=kind.crashes,
            attempts=kind.attempts,
            reason=kind.reason,
            outcome=outcome,
            worker=kind.worker,
            began_wall_s=block.began_s[row],
            ended_wall_s=block.ended_s[row],
            array=self,
        )

    def rest(self, record: TaskRecord) -> None:
        """Keep what a record says, which is given up."""
        assert not record.live
        place = record.task.index
        del self.awake[place]
        if not record.attempts and record.state == self.fresh_state:
            self._where[place] = _FRESH
            self.fresh += 1
            return
        outcome, memory = record.outcome, 0
        if outcome is not None:
            memory = outcome.memory_bytes
            outcome = replace(outcome, memory_bytes=0)
        kind = KeptKind(
            record.state,
            record.attempts,
            record.failures,
            record.crashes,
            record.reason,
            record.worker,
            outcome,
        )
        block, row = self._block(place // BLOCK), place % BLOCK
        block.kinds[row] = self._kinds.number_of(_ENCODER.encode(kind), place)
        block.began_s[row] = record.began_wall_s
        block.ended_s[row] = record.ended_wall_s
        block.memory[row] = memory
        self._where[place] = _KEPT
        self.kept[record.state] += 1
        self._note_times(record.began_wall_s, record.ended_wall_s)

    def _note_times(self, began_s: float, ended_s: float) -> None:
        if began_s and not 0.0 < self.began_s <= began_s:
            self.began_s = began_s
        self.ended_s = max(self.ended_s, ended_s)

    def _block(self, number: int) -> _Block:
        block = self._blocks.get(number)
        if block is None:
            size = min(BLOCK, len(self.tasks) - number * BLOCK)
            block = self._blocks[number] = _Block(size)
        return block

    def unblock(self) -> None:
        """Let all tasks wait for a slot that were blocked."""
        self.fresh_state = "waiting"
        for record in self.awake.values():
            if record.state == "blocked":
                record.state = "waiting"

    def end_fresh(self, state: TaskState, reason: str, wall_s: float) -> int:
        """End all fresh tasks at once; return how many there were."""
        assert state in ENDS
        assert self.fresh_state not in ENDS
        self.fresh_state, self.fresh_reason = state, reason
        self.fresh_ended_s = wall_s
        if self.fresh:
            self.ended_s = max(self.ended_s, wall_s)
        return self.fresh

    # A compact journal.

    def entries(self) -> Iterator[ArrayKept]:
        """Go through entries that say what is kept; awake tasks have their own."""
        for number in sorted(self._blocks):
            block, start = self._blocks[number], number * BLOCK
            where = self._where[start : start + BLOCK]
            kept = [row for row, each in enumerate(where) if each == _KEPT]
            if not kept:
                continue
            of_kinds = sorted({block.kinds[row] for row in kept})
            new = {number: place for place, number in enumerate(of_kinds)}
            rows = array("i", [-1]) * len(where)
            for row in kept:
                rows[row] = new[block.kinds[row]]
            yield ArrayKept(
                group=self.tasks.first.group,
                start=start,
                kinds=tuple(self._kinds[each] for each in of_kinds),
                rows=rows.tobytes(),
                began_s=block.began_s.tobytes(),
                ended_s=block.ended_s.tobytes(),
                memory=block.memory.tobytes(),
            )

    def load(self, entry: ArrayKept) -> bytes:
        """Take what an entry says; return 1 for each task that it says something of."""
        block = self._block(entry.start // BLOCK)
        rows = array("i")
        rows.frombytes(entry.rows)
        for column, data in (
            (block.began_s, entry.began_s),
            (block.ended_s, entry.ended_s),
            (block.memory, entry.memory),
        ):
            del column[:]
            column.frombytes(data)
        counts = Counter(rows)
        counts.pop(-1, None)
        numbers = [
            self._kinds.number_of(kind, entry.start + rows.index(n), counts[n])
            for n, kind in enumerate(entry.kinds)
        ]
        kinds = list(map(_DECODER.decode, entry.kinds))
        for place, count in counts.items():
            self.kept[kinds[place].state] += count
        block.kinds = array("I", [numbers[each] if each >= 0 else 0 for each in rows])
        gone = bytes(each >= 0 for each in rows)
        self._where[entry.start : entry.start + len(rows)] = gone
        self._note_times(min(filter(None, block.began_s), default=0.0), 0.0)
        self.ended_s = max(self.ended_s, *block.ended_s)
        self.fresh -= counts.total()
        return gone


def name_of(group: str, place: int) -> TaskId:
    """Return the id of the task at a place of an array."""
    return TaskId(f"{group}.{place}")
