"""Room for gangs, by network domain.

The tasks of a gang talk all the time, so what matters is how many switches are above
them: none on one worker, one under one leaf, more across leaves, pods and sites. A plan
takes the narrowest domain with room for the whole gang, and inside it as few of the
domains below as possible, down to single workers. Of domains that hold a gang in as few
parts it takes the one where most of it would find its code, then the one with least
room, which keeps wide ones whole for wider gangs, and then the nearest.

Room is counted in tasks of one shape. Rows that changed are counted anew at the next
question, and sums over domains are numpy's, so a plan among ten thousand workers takes
a fraction of a millisecond.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Final, TypeAlias, final

import numpy as np
import numpy.typing as npt

from shoal.policy.table.domains import LEVELS, oversubscription_of, path_of
from shoal.policy.table.rows import SLOTS_MAX, Ints
from shoal.policy.table.task_shapes import Kinds, Need, TaskShape

if TYPE_CHECKING:
    from collections.abc import Sequence

    from shoal.policy.table.domains import DomainPath
    from shoal.policy.table.grid import Grid
    from shoal.policy.table.rows import WorkerRow

ANYWHERE: Final = 0
LEAF: Final = LEVELS
ONE_WORKER: Final = LEVELS + 1
"""Levels, the widest first: anywhere, one site, one pod, one leaf, one worker."""

ANEW_MIN: Final = 64
ANEW_SHARE: Final = 4
"""When more than one row in this many changed, all are counted anew."""

LOOKED_AT_MAX: Final = 8
"""Domains that are compared by the parts they need: those with least room."""

ROOMS_MIN: Final = 4
ROWS_KEPT_MAX: Final = 400_000
"""Rows in all rooms of a table; the rooms unused for longest are forgotten first."""

TALK_SHARE: Final = 1 / 3
"""The share of its time that a gang talks where links are wide, as is assumed."""

FAR: Final = int(np.iinfo(np.int64).max)

Floats: TypeAlias = npt.NDArray[np.float64]

GangPlan: TypeAlias = list[tuple[int, int]]
"""Rows, and how many tasks of the gang each gets."""


@final
class GangRoom:
    """Counts the room for tasks of one shape, and plans gangs of them."""

    def __init__(self, need: Need, grid: Grid) -> None:
        self.need = need
        self._grid = grid
        self._numbers: dict[DomainPath, int] = {}
        self._count_all()

    def plan(
        self,
        count: int,
        skip: Sequence[int] = (),
        beside: Sequence[int] = (),
        narrow: int = ANYWHERE,
        warm: Sequence[int] = (),
    ) -> GangPlan:
        """Choose rows for `count` tasks, in one domain of level `narrow` or narrower.

        No row in `skip` is chosen. The domain holds the rows `beside` which other tasks
        of the gang sit on. Tasks find their code on the rows that are `warm`. Without
        room for all of them, as many as possible are placed if they may go anywhere,
        and none if not.
        """
        self._catch_up()
        self._warm: Ints = np.zeros(len(self._slots), np.int64)
        self._warm[list(warm)] = 1
        slots = self._slots
        if skip:
            slots = slots.copy()
            slots[skip] = 0
        for level in range(ONE_WORKER, narrow - 1, -1):
            domain = self._domain(level, count, slots, beside)
            if domain is not None:
                rows = np.flatnonzero(self._level(level) == domain)
                return self._share_out(rows, count, slots, level + 1)
        total = int(slots.sum())
        if narrow > ANYWHERE or total == 0:
            return []
        return self._share_out(np.arange(len(slots)), total, slots, ANYWHERE + 1)

    def slowdown(self, rows: Sequence[int], size: int) -> float:
        """Estimate how much slower a gang of `size` runs on these rows than at best.

        Its best place has no more than one switch above it, or as few as it would need
        if nothing ran. In a wider one all its talk goes through the narrowest uplink.
        """
        self._catch_up()
        at = list(rows)
        for level in range(min(LEAF, self.narrowest(size)), ONE_WORKER + 1):
            domains = self._level(level)[at]
            if (domains == domains[0]).all():
                return 1.0
        narrow = max(1.0, float(self._narrow[at].max()))
        return 1.0 + TALK_SHARE * (narrow - 1.0)

    def narrowest(self, count: int) -> int:
        """Return the narrowest level that could hold `count` tasks if nothing ran."""
        self._catch_up()
        for level in range(ONE_WORKER, ANYWHERE, -1):
            room = np.bincount(self._level(level), weights=self._idle)
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
        domains = self._level(level)
        idle = _sums(domains, self._idle)
        enough = np.flatnonzero(idle >= count)
        if len(enough) == 0:
            return []
        free = _sums(domains, self._slots)
        near = self._nearness(domains, self._idle, np.arange(len(domains)))
        best = enough[np.lexsort((near[enough], -free[enough]))[0]]
        rows: list[int] = np.flatnonzero((domains == best) & (self._idle > 0)).tolist()
        return rows

    def _domain(
        self, level: int, count: int, slots: Ints, beside: Sequence[int]
    ) -> int | None:
        """Return the best domain of a level with room for `count` tasks, if any."""
        domains = self._level(level)
        room = _sums(domains, slots)
        if beside:
            around = domains[list(beside)]
            one = int(around[0])
            return one if (around == one).all() and room[one] >= count else None
        rows = np.arange(len(slots))
        return self._snuggest(count, room, domains, slots, rows, level)

    def _share_out(self, rows: Ints, count: int, slots: Ints, level: int) -> GangPlan:
        """Share `count` tasks among as few domains of a level as possible."""
        if level > ONE_WORKER:
            assert len(rows) == 1
            return [(int(rows[0]), count)]
        _, below = np.unique(self._level(level)[rows], return_inverse=True)
        room = _sums(below, slots[rows])
        plan: GangPlan = []
        while count > 0:
            chosen = self._snuggest(count, room, below, slots, rows, level)
            if chosen is None:
                warm = np.minimum(_sums(below, slots[rows] * self._warm[rows]), room)
                chosen = int(np.lexsort((-warm, -room))[0])
            taken = min(count, int(room[chosen]))
            plan += self._share_out(rows[below == chosen], taken, slots, level + 1)
            room[chosen] = 0
            count -= taken
        return plan

    def _snuggest(
        self,
        count: int,
        room: Ints,
        domains: Ints,
        slots: Ints,
        rows: Ints,
        level: int,
    ) -> int | None:
        """Return the domain of a level that holds `count` tasks in fewest parts.

        Parts are the domains below, and workers in the end. Of equal ones it is the one
        with most warm room, then the one with least room, then the nearest. `domains`
        tells the domain of each of `rows`.
        """
        enough = np.flatnonzero(room >= count)
        if len(enough) == 0:
            return None
        near = self._nearness(domains, slots, rows)
        warm = np.minimum(_sums(domains, slots[rows] * self._warm[rows]), count)
        keys = (near[enough], room[enough], -warm[enough])
        order = np.lexsort(keys)[:LOOKED_AT_MAX]
        found: list[int] = enough[order].tolist()
        if len(found) == 1 or level == ONE_WORKER:
            return found[0]
        parts = [self._parts(count, rows[domains == at], slots, level) for at in found]
        return found[parts.index(min(parts))]

    def _parts(self, count: int, rows: Ints, slots: Ints, level: int) -> list[int]:
        """Return how many domains of each level below it takes for `count` tasks."""
        parts: list[int] = []
        for below in range(level + 1, ONE_WORKER + 1):
            room = slots[rows]
            if below < ONE_WORKER:
                _, inner = np.unique(self._level(below)[rows], return_inverse=True)
                room = _sums(inner, room)
            largest = np.sort(room)[::-1].cumsum()
            parts.append(int(np.searchsorted(largest, count)) + 1)
        return parts

    def _nearness(self, domains: Ints, slots: Ints, rows: Ints) -> Ints:
        """Return the cost of the path to the nearest row with room, by domain."""
        near = np.full(int(domains.max(initial=0)) + 1, FAR)
        usable = slots[rows] > 0
        np.minimum.at(near, domains[usable], self._costs[rows[usable]])
        return near

    def _level(self, level: int) -> Ints:
        """Return the domain of each row at a level."""
        domains: Ints = self._domains[level]
        return domains

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
        self._warm = np.zeros(rows, np.int64)
        self._domains: Ints = np.zeros((ONE_WORKER + 1, rows), np.int64)
        self._domains[ONE_WORKER] = np.arange(rows)
        self._paths: list[DomainPath] = [()] * rows
        self._numbers.clear()
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
class GangRooms:
    """The rooms of one grid that were used last, one for each shape."""

    def __init__(self, grid: Grid, kinds: Kinds) -> None:
        self._grid = grid
        self._kinds = kinds
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
        found = self._kept[shape] = GangRoom(Need(shape, self._kinds), self._grid)
        return found


def _prefixes(path: DomainPath) -> list[DomainPath]:
    return [path[: length + 1] for length in range(len(path))]


def _sums(domains: Ints, weights: Ints) -> Ints:
    sums: Ints = np.bincount(domains, weights=weights).astype(np.int64)
    return sums
