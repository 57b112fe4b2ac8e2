"""Plans for gangs: which rows, and how many tasks each.

The tasks of a gang talk all the time, so what matters is how many switches are above
them: none on one worker, one under one leaf, more across leaves, pods and sites. The
best plan has the fewest sites, then pods, then leaves. Of these it has the one whose
uplinks are the least loaded: the sum of their prices is least, where a price says how
narrow an uplink is, and how many gangs share it. Then it has the fewest workers. Of
equally good places it takes those where most of it would find its code, then those with
least room, which keeps wide ones whole for wider gangs, and then the nearest.

Such a plan is found exactly. In a leaf it takes the largest workers. Above, let f(k) be
the least cost of k tasks in a domain: a vector of domains used by level, load of links
and workers, compared from the widest, and so one number with a digit for each. Costs of
domains side by side add up, so f follows from those of the domains below, one by one,
as in a knapsack.

This takes the square of the gang's size for each leaf. Where that is too much
(`EXACT_WORK_MAX`), only the largest domains of each level are looked at, as few as hold
the gang.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias, final

import msgspec
import numpy as np
import numpy.typing as npt

from shoal.policy.table.domains import LEVELS
from shoal.policy.table.rows import Ints

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

ANYWHERE: Final = 0
LEAF: Final = LEVELS
ONE_WORKER: Final = LEVELS + 1
"""Levels, the widest first: anywhere, one site, one pod, one leaf, one worker."""

EXACT_WORK_MAX: Final = 300_000
"""Leaves times the square of the tasks, up to which a plan is exact."""

LOOKED_AT_MAX: Final = 8
"""Domains above leaves that are compared exactly, those that promise most first."""

FAR: Final = int(np.iinfo(np.int64).max)
NEVER: Final = FAR // 4  # a cost that no plan has; two of them can be added

LOAD_BASE: Final = 1 << 23
"""Load of links that a plan may have: more counts as this much."""

PRICE_UNITS: Final = 4
"""Prices of links are compared in quarters."""

Bools: TypeAlias = npt.NDArray[np.bool_]
Floats: TypeAlias = npt.NDArray[np.float64]

UplinkPrices: TypeAlias = "Callable[[int, Ints], Floats]"
"""What the uplinks of the domains of a level cost, in which some rows are."""

GangPlan: TypeAlias = list[tuple[int, int]]
"""Rows, and how many tasks of the gang each gets."""


class _Costs(msgspec.Struct, frozen=True):
    """The cost of so many tasks in a domain, and what each part then gets."""

    rows: Ints
    least: Ints  # by tasks
    parts: list[_Costs] = []
    gets: list[Ints] = []  # tasks of each part, by those of it and all parts before


@final
class GangPlanner:
    """Plans one gang, on columns of numbers with an entry for each row."""

    def __init__(
        self,
        domains: Ints,
        slots: Ints,
        warm: Ints,
        path_costs: Ints,
        prices: UplinkPrices,
        beside: Sequence[int] = (),
    ) -> None:
        """Plan beside rows that other tasks of the gang sit on.

        `prices` says what the uplinks of domains cost.
        """
        self._domains = domains  # by level, then by row
        self._slots = slots
        self._warm = warm
        self._path_costs = path_costs
        self._prices = prices
        self._beside = list(beside)

    def plan(self, count: int, narrow: int) -> GangPlan:
        """Choose rows in one domain of level `narrow` or narrower; see `GangRoom`."""
        for level in range(ONE_WORKER, narrow - 1, -1):
            if found := self.rows_of_one(level, count):
                return self._share_out(np.array(found), count, level)
        total = int(self._slots.sum())
        if narrow > ANYWHERE or total == 0 or total > count:
            return []
        used = np.flatnonzero(self._slots)
        return list(zip(used.tolist(), self._slots[used].tolist(), strict=True))

    def rows_of_one(self, level: int, count: int) -> list[int]:
        """Return the rows of the best domain of a level for `count` tasks, if any."""
        domains = self._domains[level]
        room = sums(domains, self._slots)
        enough = np.flatnonzero(room >= count)
        if self._beside:
            around = domains[self._beside]
            enough = enough[(enough == around[0]) & (around == around[0]).all()]
        if len(enough) == 0:
            return []
        best = self._best(level, count, enough, room)
        rows: list[int] = self._rows_in(level, best).tolist()
        return rows

    def _best(self, level: int, count: int, enough: Ints, room: Ints) -> int:
        """Return which of the domains with enough room holds a gang at least cost."""
        if len(enough) == 1:
            return int(enough[0])
        domains, slots = self._domains[level], self._slots
        warm = np.minimum(sums(domains, slots * self._warm), count)
        near = nearest(domains, slots, self._path_costs)
        enough = enough[np.lexsort((near[enough], room[enough], -warm[enough]))]
        if level == ONE_WORKER:
            return int(enough[0])
        if level == LEAF:
            return int(enough[self._workers_needed(enough, count).argmin()])
        return self._cheapest(level, count, enough)

    def _workers_needed(self, leaves: Ints, count: int) -> Ints:
        """Return how many workers hold `count` tasks in each of some leaves."""
        domains = self._domains[LEAF]
        place = np.full(int(domains.max()) + 1, -1)
        place[leaves] = np.arange(len(leaves))
        at = place[domains]
        used = (at >= 0) & (self._slots > 0)
        holds = np.minimum(self._slots[used], count)
        shape = (len(leaves), count + 1)
        workers = np.bincount(
            at[used] * (count + 1) + holds, minlength=shape[0] * shape[1]
        )
        workers = workers.reshape(shape)
        left = np.full(len(leaves), count)
        needed = np.zeros(len(leaves), np.int64)
        for size in np.flatnonzero(workers.any(axis=0))[::-1].tolist():
            taken = np.minimum(workers[:, size], -(-left // size))
            needed += taken
            left = np.maximum(0, left - taken * size)
        return needed

    def _cheapest(self, level: int, count: int, domains: Ints) -> int:
        """Return the domain above leaves that costs least, the first of equal ones.

        Those that promise most are looked at first, until no other can be better.
        """
        bounds = self._bounds(level, count, domains)
        order = np.argsort(bounds, kind="stable")[:LOOKED_AT_MAX]
        best: tuple[int, int] | None = None
        for place, bound in zip(order.tolist(), bounds[order].tolist(), strict=True):
            if best is not None and (bound, place) >= best:
                break
            rows = self._rows_in(level, int(domains[place]))
            cost = bound
            if self._is_small(rows, count):
                cost = int(self._costs(rows, level, count).least[count])
            best = min(best or (cost, place), (cost, place))
        assert best is not None
        return int(domains[best[1]])

    def _rows_in(self, level: int, domain: int) -> Ints:
        return np.flatnonzero((self._domains[level] == domain) & (self._slots > 0))

    def _bounds(self, level: int, count: int, domains: Ints) -> Ints:
        """Return what `count` tasks cost at least in each domain of a level.

        At each level below they take as few parts as the largest are, and the cheapest.
        """
        places = np.full(int(self._domains[level].max()) + 1, -1)
        places[domains] = np.arange(len(domains))
        rows = np.flatnonzero((places[self._domains[level]] >= 0) & (self._slots > 0))
        base = count + 1
        bounds: Ints = np.zeros(len(domains), np.int64)
        load: Ints = np.zeros(len(domains), np.int64)
        for below in range(level + 1, LEAF + 1):
            _, first, inner = np.unique(
                self._domains[below][rows], return_index=True, return_inverse=True
            )
            of = places[self._domains[level][rows[first]]]
            needed = _needed(of, sums(inner, self._slots[rows]), count)
            bounds = bounds * base + needed
            if not self._beside:  # Else the gang is on some of the links anyway.
                prices = self._capped(rows[first], below, count)
                order, nth = _by_group(of, prices)
                cheapest = order[nth < needed[of[order]]]
                load += sums(of[cheapest], prices[cheapest])
        of = places[self._domains[level][rows]]
        workers = _needed(of, self._slots[rows], count)
        return (bounds * LOAD_BASE + load) * base + workers

    def _capped(self, rows: Ints, level: int, count: int) -> Ints:
        """Return prices of domains, such that those of a whole plan have a sum."""
        most = LOAD_BASE // (LEVELS * (count + 1))
        units = np.rint(PRICE_UNITS * self._prices(level, rows)).astype(np.int64)
        capped: Ints = np.minimum(units, most)
        return capped

    # Sharing out.

    def _is_small(self, rows: Ints, count: int) -> bool:
        leaves = len(np.unique(self._domains[LEAF][rows]))
        return leaves * (count + 1) ** 2 <= EXACT_WORK_MAX

    def _share_out(self, rows: Ints, count: int, level: int) -> GangPlan:
        """Share `count` tasks among the rows of one domain of a level."""
        for below in range(level + 1, LEAF + 1):
            if self._is_small(rows, count):
                return self._as_planned(self._costs(rows, level, count), count)
            rows = self._largest(rows, below, count)
        return self._among_workers(rows, count)

    def _largest(self, rows: Ints, level: int, count: int) -> Ints:
        """Return the rows of the largest domains of a level that hold `count` tasks."""
        _, at = np.unique(self._domains[level][rows], return_inverse=True)
        room = sums(at, self._slots[rows])
        prices = np.zeros(len(room))
        prices[at] = self._prices(level, rows)
        order = np.lexsort((prices, -room))
        needed = int(np.searchsorted(room[order].cumsum(), count)) + 1
        return rows[np.isin(at, order[:needed])]

    def _among_workers(self, rows: Ints, count: int) -> GangPlan:
        """Take the largest workers; last the smallest that holds the rest."""
        slots, warm, costs = self._slots[rows], self._warm[rows], self._path_costs[rows]
        order = np.lexsort((rows, costs, -warm, -slots))
        needed = int(np.searchsorted(slots[order].cumsum(), count)) + 1
        whole, others = order[: needed - 1], order[needed - 1 :]
        rest = count - int(slots[whole].sum())
        enough = others[slots[others] >= rest]
        last = enough[
            np.lexsort((rows[enough], costs[enough], slots[enough], -warm[enough]))[0]
        ]
        plan: GangPlan = [(int(rows[at]), int(slots[at])) for at in whole.tolist()]
        return [*plan, (int(rows[last]), rest)]

    def _as_planned(self, costs: _Costs, count: int) -> GangPlan:
        if count == 0:
            return []
        if not costs.parts:
            return self._among_workers(costs.rows, count)
        plan: GangPlan = []
        for part, gets in zip(reversed(costs.parts), reversed(costs.gets), strict=True):
            tasks = int(gets[count])
            plan += self._as_planned(part, tasks)
            count -= tasks
        assert count == 0
        return plan

    def _costs(self, rows: Ints, level: int, count: int) -> _Costs:
        """Return the least cost of 0 to `count` tasks in a domain of a level."""
        wanted = np.arange(count + 1)
        if level == LEAF:
            largest = np.sort(self._slots[rows])[::-1].cumsum()
            workers = np.searchsorted(largest, wanted[1:]) + 1
            least = np.where(workers > len(rows), NEVER, workers)
            return _Costs(rows, np.concatenate(([0], least)))
        base = count + 1
        digit = base * LOAD_BASE * base ** (LEAF - 1 - level)
        least = np.where(wanted == 0, 0, NEVER)
        parts = [
            self._costs(part, level + 1, count) for part in self._below(rows, level)
        ]
        gets: list[Ints] = []
        before = wanted[:, None] - wanted[None, :]  # by tasks, and those that go here
        for part in parts:
            one_more = 0
            if not self._is_there(part.rows, level + 1):
                price = self._capped(part.rows[:1], level + 1, count)
                one_more = digit + base * int(price[0])
            here = part.least + np.where(wanted == 0, 0, one_more)
            either = np.where(before < 0, NEVER, least[before]) + here
            # Of equal ones as many here as possible: the parts that suit best are last.
            tasks = count - either[:, ::-1].argmin(axis=1)
            least = np.minimum(NEVER, either[wanted, tasks])
            gets.append(tasks)
        return _Costs(rows, least, parts, gets)

    def _below(self, rows: Ints, level: int) -> list[Ints]:
        """Return the rows of each domain below, those last that suit a gang best."""
        _, at = np.unique(self._domains[level + 1][rows], return_inverse=True)
        room = sums(at, self._slots[rows])
        warm = sums(at, self._slots[rows] * self._warm[rows])
        near = nearest(at, self._slots[rows], self._path_costs[rows])
        order = np.lexsort((near, room, -warm))[::-1]
        parts = [rows[at == place] for place in order.tolist()]
        return sorted(parts, key=lambda part: self._is_there(part, level + 1))

    def _is_there(self, rows: Ints, level: int) -> bool:
        """Whether some of the gang sits in the domain of these rows already."""
        domains = self._domains[level]
        return bool(self._beside) and domains[rows[0]] in domains[self._beside]


def sums(domains: Ints, weights: Ints | Bools) -> Ints:
    """Return the sum of weights in each domain."""
    found: Ints = np.bincount(domains, weights=weights).astype(np.int64)
    return found


def nearest(domains: Ints, slots: Ints, path_costs: Ints) -> Ints:
    """Return the cost of the path to the nearest row with room, by domain."""
    near = np.full(int(domains.max(initial=0)) + 1, FAR)
    usable = slots > 0
    np.minimum.at(near, domains[usable], path_costs[usable])
    return near


def _by_group(of: Ints, values: Ints) -> tuple[Ints, Ints]:
    """Return an order by group and then by value, and the place of each in its group.

    Groups have the numbers from 0 on, and none is empty.
    """
    order = np.lexsort((values, of))
    starts = np.searchsorted(of[order], np.arange(int(of.max()) + 1))
    return order, np.arange(len(of)) - starts[of[order]]


def _needed(of: Ints, room: Ints, count: int) -> Ints:
    """Return how many parts of each group hold `count` tasks, the largest first."""
    order, nth = _by_group(of, -room)
    so_far = np.cumsum(room[order])
    before = so_far - room[order]
    start = before[nth == 0]  # of each group
    return sums(of[order], before - start[of[order]] < count)
