"""The best plan for a gang, found in another way than shoal finds it.

What is best: the fewest sites, then pods, then leaves, then the least sum of the prices
of the uplinks that the gang talks over, and then the fewest workers. A gang talks over
the uplinks of every domain it uses at a level at which it uses more than one. A leaf's
uplink costs four times what that of a pod or site does, and each gang that crosses it
costs as much again.

`least_by_trying` goes through every way to share the tasks among the workers: it is
obviously right, and takes forever beyond six workers. `Oracle` is for more: plain
tables of tuples, built domain by domain without numpy, digits or short cuts.
"""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, Final, TypeAlias, final

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

Path: TypeAlias = tuple[str, ...]
Parts: TypeAlias = tuple[int, int, int, int, int]
"""Sites, pods, leaves, the sum of prices, and workers."""

DEPTHS: Final = 3
LEAF_PRICE: Final = 4
TABLE: TypeAlias = list[Parts | None]
"""The least that 0, 1, 2 and so on tasks use in a domain; None: no room."""


def price(depth: int, gangs: int) -> int:
    """Return what the uplink of a domain costs that so many gangs cross."""
    return (LEAF_PRICE if depth == DEPTHS else 1) * (1 + gangs)


def used(
    where: Mapping[str, Path], crossing: Mapping[Path, int], plan: list[str]
) -> Parts:
    """Return what a plan uses, by the names of its workers."""
    paths = [where[name] for name in plan]
    parts = [{path[:depth] for path in paths} for depth in range(1, DEPTHS + 1)]
    load = sum(
        price(depth, crossing.get(domain, 0))
        for depth, domains in enumerate(parts, start=1)
        if len(domains) > 1
        for domain in domains
    )
    sites, pods, leaves = map(len, parts)
    return sites, pods, leaves, load, len(plan)


def least_by_trying(
    where: Mapping[str, Path],
    free: Mapping[str, int],
    crossing: Mapping[Path, int],
    count: int,
) -> Parts:
    """Return the least that any plan uses."""
    names = list(free)
    tried = product(*(range(free[name] + 1) for name in names))
    return min(
        used(where, crossing, [n for n, some in zip(names, tasks, strict=True) if some])
        for tasks in tried
        if sum(tasks) == count
    )


@final
class Oracle:
    """The least that any plan uses, for every number of tasks at once."""

    def __init__(
        self,
        where: Mapping[str, Path],
        free: Mapping[str, int],
        crossing: Mapping[Path, int],
        most: int,
    ) -> None:
        self._crossing = crossing
        self._most = most
        self._free: dict[Path, list[int]] = {}
        for name, path in where.items():
            self._free.setdefault(path, []).append(free[name])
        best: TABLE = [None] * (most + 1)
        for domain in self._domains():
            for count, parts in enumerate(self._inside(domain)):
                if parts is not None:
                    # The domains around it are one of each, and nothing crosses them.
                    whole = _sum(parts, _one(len(domain)))
                    best[count] = min(whole, best[count] or whole)
        self.best = best

    def _domains(self) -> Iterator[Path]:
        every = {path[:depth] for path in self._free for depth in range(DEPTHS + 1)}
        yield from sorted(every)

    def _inside(self, domain: Path) -> TABLE:
        """Return what tasks use below a domain, whose own uplinks do not count."""
        depth = len(domain)
        if depth == DEPTHS:
            return self._on_workers(sorted(self._free[domain], reverse=True))
        parts = {path[: depth + 1] for path in self._free if path[:depth] == domain}
        so_far: TABLE = [(0, 0, 0, 0, 0), *[None] * self._most]
        for part in sorted(parts):
            cost = price(depth + 1, self._crossing.get(part, 0))
            inside = [
                None if each is None else _sum(each, (*_counts(depth + 1), cost, 0))
                for each in self._inside(part)
            ]
            so_far = self._beside(so_far, inside)
        return so_far

    def _beside(self, one: TABLE, other: list[Parts | None]) -> TABLE:
        both = list(one)
        for here, ours in enumerate(one):
            for there in range(1, self._most + 1 - here):
                theirs = other[there]
                if ours is not None and theirs is not None:
                    total, known = _sum(ours, theirs), both[here + there]
                    both[here + there] = min(total, known or total)
        return both

    def _on_workers(self, rooms: list[int]) -> TABLE:
        found: TABLE = [None] * (self._most + 1)
        found[0] = (0, 0, 0, 0, 0)
        held = 0
        for number, room in enumerate(rooms, start=1):
            for count in range(held + 1, min(held + room, self._most) + 1):
                found[count] = (0, 0, 0, 0, number)
            held += room
        return found


def _counts(depth: int) -> tuple[int, int, int]:
    """Return one more domain of this depth: a site, a pod or a leaf."""
    return int(depth == 1), int(depth == 2), int(depth == DEPTHS)


def _one(depth: int) -> Parts:
    """Return one domain of each depth down to this one."""
    return int(depth >= 1), int(depth >= 2), int(depth >= DEPTHS), 0, 0


def _sum(one: Parts, other: Parts) -> Parts:
    a, b, c, d, e = (x + y for x, y in zip(one, other, strict=True))
    return a, b, c, d, e
