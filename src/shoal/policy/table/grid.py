"""All workers as rows and as numpy columns, with logs of what changed.

A shortlist keeps its place in the logs, and later looks again only at the rows that
changed since.
"""

from __future__ import annotations

from typing import Final, final

import numpy as np

from shoal.policy.table.rows import NO_KIND, Bools, Ints, WorkerRow
from shoal.policy.table.task_shapes import NEVER, Need

ROWS_MIN: Final = 64
LOG_MIN: Final = 1_024
"""A log keeps this many rows and twice the table; a reader that is further behind had
better look at all rows."""


@final
class Columns:
    """All rows at once, one numpy column for each amount; rows not in use are dead."""

    def __init__(self) -> None:
        self.cpu_milli: Ints = np.zeros(ROWS_MIN, np.int64)
        self.memory_bytes: Ints = np.zeros(ROWS_MIN, np.int64)
        self.disk_bytes: Ints = np.zeros(ROWS_MIN, np.int64)
        self.gpu_milli: Ints = np.zeros(ROWS_MIN, np.int64)
        self.gpus_whole: Ints = np.zeros(ROWS_MIN, np.int64)
        self.active: Ints = np.zeros(ROWS_MIN, np.int64)
        self.path_cost_us: Ints = np.zeros(ROWS_MIN, np.int64)
        self.cpu_milli_all: Ints = np.zeros(ROWS_MIN, np.int64)
        self.gpu_milli_all: Ints = np.zeros(ROWS_MIN, np.int64)
        self.draining: Bools = np.zeros(ROWS_MIN, np.bool_)
        self.live: Bools = np.zeros(ROWS_MIN, np.bool_)
        # One column for each device; a worker with fewer has kind -1 in the others.
        self.gpu_free: Ints = np.zeros((ROWS_MIN, 1), np.int64)
        self.gpu_memory_free: Ints = np.zeros((ROWS_MIN, 1), np.int64)
        self.gpu_memory_all: Ints = np.zeros((ROWS_MIN, 1), np.int64)
        self.kinds: Ints = np.full((ROWS_MIN, 1), NO_KIND, np.int64)

    def grow(self, rows: int, devices: int) -> None:
        """Make room for `rows` rows with `devices` devices each."""
        have_rows, have_devices = self.gpu_free.shape
        if rows > have_rows:
            more = max(rows, 2 * have_rows) - have_rows
            for name, column in vars(self).items():
                widths = [(0, more)] + [(0, 0)] * (column.ndim - 1)
                setattr(self, name, np.pad(column, widths))
        if devices > have_devices:
            wider = [(0, 0), (0, devices - have_devices)]
            self.gpu_free = np.pad(self.gpu_free, wider)
            self.gpu_memory_free = np.pad(self.gpu_memory_free, wider)
            self.gpu_memory_all = np.pad(self.gpu_memory_all, wider)
            self.kinds = np.pad(self.kinds, wider, constant_values=NO_KIND)

    def store(self, index: int, row: WorkerRow) -> None:
        """Copy all of `row` into its place."""
        self.live[index] = True
        self.draining[index] = row.draining
        self.path_cost_us[index] = row.path_cost_us
        self.cpu_milli_all[index] = row.cpu_milli_all
        self.gpu_milli_all[index] = row.gpu_milli_all
        self.cpu_milli[index] = row.cpu_milli
        self.memory_bytes[index] = row.memory_bytes
        self.disk_bytes[index] = row.disk_bytes
        self.active[index] = row.active
        self.gpu_milli[index] = row.gpu_milli
        self.gpus_whole[index] = row.gpus_whole
        devices = len(row.kinds)
        self.kinds[index, :devices] = row.kinds
        self.kinds[index, devices:] = NO_KIND
        if devices:
            self.gpu_memory_all[index, :devices] = row.gpu_memory_all
            self.gpu_free[index, :devices] = row.gpu_free
            self.gpu_memory_free[index, :devices] = row.gpu_memory_free

    def fitting_gpus(self, need: Need) -> Bools:
        """Return a matrix: which devices have room for one share of the task."""
        return (self.gpu_free >= need.gpu_milli) & (
            self.gpu_memory_free >= self.sizes(need)
        )

    def gpu_memory_taken(self, need: Need) -> Ints:
        """Return how much GPU memory a task that fits would occupy, for each row."""
        if need.gpu is None:
            return np.zeros_like(self.active)
        taken: Ints = np.where(self.picked(need), self.sizes(need), 0).sum(axis=1)
        return taken

    def picked(self, need: Need) -> Bools:
        """Return a matrix: which devices a task would get, the tightest ones first."""
        fits = self.fitting_gpus(need)
        free = np.where(fits, self.gpu_free, NEVER)
        order = np.lexsort((self.gpu_memory_all, free), axis=1)[:, : need.gpus_max]
        picked: Bools = np.zeros_like(fits)
        np.put_along_axis(picked, order, values=True, axis=1)
        return picked & fits

    def sizes(self, need: Need) -> Ints:
        """Return a matrix: how much memory a share would take of each device."""
        return np.array(need.sizes, np.int64)[self.kinds]


@final
class Log:
    """Rows in the order of their changes, but for the oldest."""

    def __init__(self) -> None:
        self.rows: list[int] = []
        self._dropped = 0

    @property
    def end(self) -> int:
        """The place that the next row will have."""
        return self._dropped + len(self.rows)

    def since(self, place: int) -> list[int]:
        """Return the rows from a place on."""
        return self.rows[place - self._dropped :]

    def cut(self, kept: int) -> None:
        """Keep the last `kept` rows."""
        older = max(0, len(self.rows) - kept)
        del self.rows[:older]
        self._dropped += older


@final
class Grid:
    """Rows and columns of the same numbers, and which rows changed, in order."""

    def __init__(self) -> None:
        self.rows: list[WorkerRow | None] = []
        self.now = 0  # how many changes there have been
        self.changed: list[int] = []  # for each row, the change that was its last
        # Rows that gained room, and that lost some; any other change is in both.
        self.gains = Log()
        self.losses = Log()
        self._cut_at = LOG_MIN
        self._columns = Columns()
        self._columns_at = 0  # the last change that the columns know of
        self._devices = 0  # at most, of any row so far
        self._unused: list[int] = []
        self._order: Ints | None = None

    @property
    def columns(self) -> Columns:
        """The rows as columns, brought up to date: rows change far more often."""
        columns = self._columns
        if self._columns_at != self.now:
            columns.grow(len(self.rows), self._devices)
            for index, row in enumerate(self.rows):
                if self.changed[index] <= self._columns_at:
                    continue
                if row is None:
                    columns.live[index] = False
                else:
                    columns.store(index, row)
            self._columns_at = self.now
        return columns

    def add(self, row: WorkerRow) -> int:
        """Put a row where there is room; return its index."""
        if self._unused:
            index = self._unused.pop()
        else:
            index = len(self.rows)
            self.rows.append(None)
            self.changed.append(0)
        self._order = None
        self.replace(index, row)
        return index

    def replace(self, index: int, row: WorkerRow) -> None:
        """Put `row` in the place of another of the same worker."""
        self.rows[index] = row
        self._devices = max(self._devices, len(row.kinds))
        self.note(index)

    def remove(self, index: int) -> None:
        """Take a row out; its index will be used again."""
        self.rows[index] = None
        self._unused.append(index)
        self._order = None
        self.note(index)

    def order(self) -> Ints:
        """Return the indices of all rows in use, by the ids of their nodes."""
        if self._order is None:
            names = [(row.node, index) for index, row in enumerate(self.rows) if row]
            self._order = np.array([index for _, index in sorted(names)], np.int64)
        return self._order

    def note(self, index: int) -> None:
        """Write down that a row changed in some way."""
        self.gains.rows.append(index)
        self.losses.rows.append(index)
        self.now = self.changed[index] = self.now + 1
        if self.now >= self._cut_at:
            self._cut_logs()

    def gained(self, index: int, row: WorkerRow) -> None:
        """Write down that `row` has more room."""
        if row.mixed:
            self.note(index)  # With devices of many kinds, more room may be less.
            return
        self.gains.rows.append(index)
        self.now = self.changed[index] = self.now + 1

    def lost(self, index: int, row: WorkerRow) -> None:
        """Write down that `row` has less room."""
        if row.mixed:
            self.note(index)
            return
        self.losses.rows.append(index)
        self.now = self.changed[index] = self.now + 1
        if self.now >= self._cut_at:
            self._cut_logs()

    def _cut_logs(self) -> None:
        kept = LOG_MIN + 2 * len(self.rows)
        self.gains.cut(kept)
        self.losses.cut(kept)
        self._cut_at = self.now + kept
