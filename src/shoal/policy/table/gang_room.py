"""Room for gangs, by network domain: where one fits, and where it had better wait.

Room is counted in tasks of one shape. Rows that changed are counted anew at the next
question, and `gang_planner` works on columns of numbers, so a plan among ten thousand
workers takes a fraction of a millisecond.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Final, final

import numpy as np

from shoal.policy.table.domains import oversubscription_of, path_of
from shoal.policy.table.gang_planner import (
    ANYWHERE,
    LEAF,
    ONE_WORKER,
    Floats,
    GangPlan,
    GangPlanner,
    nearest,
    sums,
)
from shoal.policy.table.rows import Ints
from shoal.policy.table.task_shapes import SLOTS_MAX, Kinds, Need, TaskShape

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from shoal.policy.table.domains import DomainPath
    from shoal.policy.table.grid import Grid
    from shoal.policy.table.link_load import LinkLoad
    from shoal.policy.table.rows import WorkerRow

ANEW_MIN: Final = 64
ANEW_SHARE: Final = 4
"""When more than one row in this many changed, all are counted anew."""

ROOMS_MIN: Final = 4
ROWS_KEPT_MAX: Final = 400_000
"""Rows in all rooms of a table; the rooms unused for longest are forgotten first."""

TALK_SHARE: Final = 1 / 3
"""The share of its time that a gang talks where links are wide, as is assumed."""


@final
class GangRoom:
    """Counts the room for tasks of one shape, and plans gangs of them."""

    def __init__(self, need: Need, grid: Grid, links: LinkLoad) -> None:
        self.need = need
        self._grid = grid
        self._links = links
        self._numbers: dict[DomainPath, int] = {}
        self._anew = 0  # how often domains were numbered anew
        self._shared: Ints = np.ones(0, np.int64)
        self._shared_at = (-1, 0, 0)  # versions of what that was counted from
        self._count_all()

    def plan(
        self,
        count: int,
        skip: Sequence[int] = (),
        beside: Sequence[int] = (),
        narrow: int = ANYWHERE,
        warm: Sequence[int] = (),
        mark: str = "",
    ) -> GangPlan:
        """Choose rows for `count` tasks, in one domain of level `narrow` or narrower.

        No row in `skip` is chosen. The domain holds the rows `beside` which other tasks
        of the gang sit on. Tasks find their code on the rows that are `warm`. What the
        gang with this `mark` puts on links does not count. Without room for all tasks,
        as many as possible are placed if they may go anywhere, and none if not.
        """
        return self._planner(skip, beside, warm, mark).plan(count, narrow)

    def leaf(self, count: int, skip: Sequence[int] = ()) -> list[int]:
        """Return the rows of the leaf that holds `count` tasks best, if any does."""
        return self._planner(skip).rows_of_one(LEAF, count)

    def _planner(
        self,
        skip: Sequence[int],
        beside: Sequence[int] = (),
        warm: Sequence[int] = (),
        mark: str = "",
    ) -> GangPlanner:
        self._catch_up()
        slots = self._slots
        if skip:
            slots = slots.copy()
            slots[list(skip)] = 0
        has_code: Ints = np.zeros(len(slots), np.int64)
        has_code[list(warm)] = 1
        prices = _Prices(self._domains, self._narrow, lambda: self._sharing(mark))
        return GangPlanner(self._domains, slots, has_code, self._costs, prices, beside)

    def _sharing(self, mark: str) -> Ints:
        """Return how many gangs share the uplinks of each domain with a new one."""
        links, numbers = self._links, self._numbers
        known = (links.version, self._anew, len(numbers))
        if self._shared_at != known:
            self._shared_at = known
            self._shared = np.ones(len(numbers), np.int64)
            for domain, gangs in links.crossing.items():
                if (number := numbers.get(domain)) is not None:
                    self._shared[number] += gangs
        sharing = self._shared
        if own := [numbers[domain] for domain in links.of(mark) if domain in numbers]:
            sharing = sharing.copy()
            sharing[own] -= 1
        return sharing

    def slowdown(self, rows: Sequence[int], size: int, mark: str = "") -> float:
        """Estimate how much slower a gang of `size` runs on these rows than at best.

        Its best place has no more than one switch above it, or as few as it would need
        if nothing ran. In a wider one all its talk goes through the narrowest uplink,
        which it shares with other gangs; what the one with this `mark` does there
        already does not count.
        """
        self._catch_up()
        at = list(rows)
        for level in range(min(LEAF, self.narrowest(size)), ONE_WORKER + 1):
            domains = self._domains[level][at]
            if (domains == domains[0]).all():
                return 1.0
        prices = _Prices(self._domains, self._narrow, lambda: self._sharing(mark))
        narrow = 1.0
        for level in range(ANYWHERE + 1, LEAF + 1):
            domains = self._domains[level][at]
            if (domains != domains[0]).any():
                narrow = max(narrow, float(prices(level, np.array(at)).max()))
        return 1.0 + TALK_SHARE * (narrow - 1.0)

    def narrowest(self, count: int) -> int:
        """Return the narrowest level that could hold `count` tasks if nothing ran."""
        self._catch_up()
        for level in range(ONE_WORKER, ANYWHERE, -1):
            room = np.bincount(self._domains[level], weights=self._idle)
            if room.max(initial=0) >= count:
                return level
        return ANYWHERE

    def to_wait_for(self, count: int, narrow: int = ANYWHERE) -> list[int]:
        """Return the rows of the domain in which a gang had best wait for room.

        It is a narrowest one that could hold the gang if nothing ran, with most of it
        free now; of equal ones the nearest. No rows if no domain of level `narrow` or
        narrower could hold it.
        """
        level = self.narrowest(count)
        if level < narrow:
            return []
        domains = self._domains[level]
        idle = sums(domains, self._idle)
        enough = np.flatnonzero(idle >= count)
        if len(enough) == 0:
            return []
        free = sums(domains, self._slots)
        near = nearest(domains, self._idle, self._costs)
        best = enough[np.lexsort((near[enough], -free[enough]))[0]]
        rows: list[int] = np.flatnonzero((domains == best) & (self._idle > 0)).tolist()
        return rows

    # Counting.

    def _catch_up(self) -> None:
        grid = self._grid
        behind = grid.now - self._seen
        if behind == 0:
            return
        rows = len(grid.rows)
        too_many = behind > max(ANEW_MIN, rows // ANEW_SHARE)
        if rows != len(self._slots) or too_many or len(self._numbers) > 8 * rows:
            self._count_all()
            return
        self.need.learn_kinds()
        changed = grid.gains.since(self._gains_seen)
        changed += grid.losses.since(self._losses_seen)
        self._note_seen()
        for index in dict.fromkeys(changed):
            self._count(index, grid.rows[index])

    def _count_all(self) -> None:
        rows = len(self._grid.rows)
        self.need.learn_kinds()
        self._slots: Ints = np.zeros(rows, np.int64)
        self._idle: Ints = np.zeros(rows, np.int64)
        self._costs: Ints = np.zeros(rows, np.int64)
        self._narrow: Floats = np.ones(rows)
        self._domains: Ints = np.zeros((ONE_WORKER + 1, rows), np.int64)
        self._domains[ONE_WORKER] = np.arange(rows)
        self._paths: list[DomainPath] = [()] * rows
        self._numbers.clear()
        self._anew += 1
        self._note_seen()
        for index, row in enumerate(self._grid.rows):
            self._count(index, row)

    def _note_seen(self) -> None:
        grid = self._grid
        self._seen = grid.now
        self._gains_seen, self._losses_seen = grid.gains.end, grid.losses.end

    def _count(self, index: int, row: WorkerRow | None) -> None:
        if row is None:
            self._slots[index] = self._idle[index] = 0
            return
        self._slots[index] = row.slots(self.need)
        self._idle[index] = row.slots_if_idle(self.need.shape, SLOTS_MAX)
        self._costs[index] = row.path_cost_us
        self._narrow[index] = oversubscription_of(row)
        path = path_of(row)
        if path != self._paths[index]:
            self._paths[index] = path
            for level, domain in enumerate(_prefixes(path), start=ANYWHERE + 1):
                number = self._numbers.setdefault(domain, len(self._numbers))
                self._domains[level, index] = number


@final
class _Prices:
    """How much slower talk over uplinks is than below them, worked out when asked."""

    def __init__(
        self, domains: Ints, narrow: Floats, sharing: Callable[[], Ints]
    ) -> None:
        self._domains = domains
        self._narrow = narrow
        self._count = sharing
        self._sharing: Ints | None = None

    def __call__(self, level: int, rows: Ints) -> Floats:
        if self._sharing is None:
            self._sharing = self._count()
        prices: Floats = self._sharing[self._domains[level][rows]].astype(float)
        if level == LEAF:
            prices *= self._narrow[rows]
        return prices


@final
class GangRooms:
    """The rooms of one grid that were used last, one for each shape."""

    def __init__(self, grid: Grid, kinds: Kinds, links: LinkLoad) -> None:
        self._grid = grid
        self._kinds = kinds
        self._links = links
        self._kept: OrderedDict[TaskShape, GangRoom] = OrderedDict()

    def get(self, shape: TaskShape) -> GangRoom:
        """Return the room for tasks of this shape, counted anew if need be."""
        found = self._kept.get(shape)
        if found is not None:
            self._kept.move_to_end(shape)
            return found
        rows = max(1, len(self._grid.rows))
        while len(self._kept) >= max(ROOMS_MIN, ROWS_KEPT_MAX // rows):
            self._kept.popitem(last=False)
        need = Need(shape, self._kinds)
        found = self._kept[shape] = GangRoom(need, self._grid, self._links)
        return found


def _prefixes(path: DomainPath) -> list[DomainPath]:
    return [path[: length + 1] for length in range(len(path))]
