"""The usage ledger of a node: what its jobs used, and what it lent.

Theory of operation. The scheduler and the worker of a node tell, by `RunsMetered`, how
long attempts ran. The ledger sums that up in rows, one for each kind (used by our jobs,
lent to others), owner, node, job and day. What is new is journalled as `UsageAdded`, at
once after a quiet time and then once every `WRITE_S`; replaying adds the same sums up
again. So removing a job changes nothing here, and a crash loses a second, or
`run_meter.METER_S` of what ran on.

A day is a day of UTC, by the wall clock when it was metered. Memory and journal are
bounded: beyond `ROWS_MAX` the oldest rows are summed up without their jobs, and then,
if need be, by their first day.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from shoal.core.deadlines import Deadlines
from shoal.core.durability.journal import Entry, UsageAdded, UsageRow
from shoal.core.events import DeadlineReached, Effect, Event, Record, WallClockRead
from shoal.core.housekeeping.events import RunsMetered
from shoal.core.machine import Mount
from shoal.model.ids import JobId

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

ROWS_MAX: Final = 20_000
ROWS_PER_ENTRY: Final = 500
WRITE_S: Final = 1.0
DAY_S: Final = 86_400

_Key = tuple[str, str, str, int, str, str]


@final
class UsageLedger:
    """Sums up what was used and lent."""

    mount = Mount(takes={}, hears=(RunsMetered,))

    def __init__(self, journal: Iterable[Entry], wall_at_zero_s: float) -> None:
        """Begin with the sums of earlier lives."""
        self._wall_at_zero_s = wall_at_zero_s
        self._sums: dict[_Key, tuple[int, int]] = {}  # at most ROWS_MAX
        self._new: dict[_Key, tuple[int, int]] = {}  # not journalled yet
        self._due: Deadlines[str] = Deadlines()
        self._wrote_at = float("-inf")
        for entry in journal:
            if isinstance(entry, UsageAdded):
                for row in entry.rows:
                    self._add(self._sums, _key(row), row.cpu_milli_s, row.gpu_milli_s)
        self._shorten()

    @property
    def rows(self) -> list[UsageRow]:
        """All sums, the oldest first."""
        return [_row(key, sums) for key, sums in self._sums.items()]

    def kept(self) -> Iterator[Entry]:
        """Yield entries that stand for all entries so far."""
        yield from _entries(self._sums)

    def handle(self, event: Event, now: float) -> list[Effect]:
        """Take in one fact; return what to do about it. Raising is a bug."""
        match event:
            case RunsMetered():
                return self._on_metered(event, now)
            case WallClockRead():
                self._wall_at_zero_s = event.wall_s - now
            case DeadlineReached():
                if self._due.pop_due(now):
                    return self._write(now)
            case _:
                pass
        return []

    def next_deadline(self) -> float | None:
        """When to deliver `DeadlineReached`, if ever."""
        return self._due.next()

    def _on_metered(self, event: RunsMetered, now: float) -> list[Effect]:
        day = max(0, int((self._wall_at_zero_s + now) // DAY_S))
        for run in event.runs:
            key = (run.kind, run.owner, run.node, day, run.job, run.name)
            cpu = round(run.spent_s * run.cpu_milli)
            gpu = round(run.spent_s * run.gpu_milli)
            self._add(self._sums, key, cpu, gpu)
            self._add(self._new, key, cpu, gpu)
        if now - self._wrote_at >= WRITE_S:
            return self._write(now)
        self._due.set_earlier("write", self._wrote_at + WRITE_S)
        return []

    def _write(self, now: float) -> list[Effect]:
        entries = list(_entries(self._new))
        self._new.clear()
        self._wrote_at = now
        self._shorten()
        return [Record(entry, durable=False) for entry in entries]

    def _shorten(self) -> None:
        """Keep to `ROWS_MAX`: forget jobs, then days, of the oldest half."""
        for shorter in (_without_job, _on_first_day):
            if len(self._sums) <= ROWS_MAX:
                return
            rows = list(self._sums.items())
            half = len(rows) // 2
            day = rows[0][0][3]
            self._sums = {}
            for place, (key, (cpu, gpu)) in enumerate(rows):
                kept = shorter(key, day) if place < half else key
                self._add(self._sums, kept, cpu, gpu)
        while len(self._sums) > ROWS_MAX:
            del self._sums[next(iter(self._sums))]  # So many owners and nodes.

    @staticmethod
    def _add(sums: dict[_Key, tuple[int, int]], key: _Key, cpu: int, gpu: int) -> None:
        old_cpu, old_gpu = sums.get(key, (0, 0))
        sums[key] = (old_cpu + cpu, old_gpu + gpu)


def _key(row: UsageRow) -> _Key:
    return (row.kind, row.owner, row.node, row.day, row.job, row.name)


def _row(key: _Key, sums: tuple[int, int]) -> UsageRow:
    return UsageRow(*key, *sums)  # type: ignore[arg-type]


def _entries(sums: dict[_Key, tuple[int, int]]) -> Iterator[Entry]:
    rows = [_row(key, each) for key, each in sums.items()]
    for first in range(0, len(rows), ROWS_PER_ENTRY):
        yield UsageAdded(tuple(rows[first : first + ROWS_PER_ENTRY]))


def _without_job(key: _Key, _day: int) -> _Key:
    return (*key[:4], JobId(""), "")


def _on_first_day(key: _Key, day: int) -> _Key:
    return (*key[:3], day, JobId(""), "")
