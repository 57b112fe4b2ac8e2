"""Share links between flows: max-min fair.

A *flow* may use a link several times over: the ring of an all-reduce is one flow, whose
parts go at one speed, and a link carries as many of them as pass it. A flow may also
have a speed of its own beyond which it wants nothing.

Flows grow together until a link is full or a flow has enough; those concerned stop
there, and the others go on (progressive filling). Flows that share no link, not even
by way of others, do not matter to each other, so only those are computed anew that a
change could reach.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final, final

import msgspec
import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

CLOSE: Final = 1.0 + 1e-12
"""Limits that differ by less are met at the same time."""


class _Flow(msgspec.Struct, gc=False):
    """The links of one flow, how often it uses each, and the most it wants."""

    links: tuple[int, ...]
    times: tuple[int, ...]
    most: float
    rate: float = 0.0


@final
class Sharing:
    """The rates of all flows over links of given capacities, in bytes per second."""

    def __init__(self, capacities: Sequence[float]) -> None:
        self._capacities: Floats = np.asarray(capacities, np.float64)
        self._flows: dict[int, _Flow] = {}
        self._users: list[dict[int, int]] = [{} for _ in capacities]
        self._loads: Floats = np.zeros(len(self._capacities))
        self._touched: dict[int, None] = {}  # links whose flows have changed
        self._fresh: dict[int, None] = {}  # flows that were never settled

    def __len__(self) -> int:
        return len(self._flows)

    @property
    def loads(self) -> Floats:
        """What each link carries, in bytes per second, as settled last."""
        return self._loads

    @property
    def capacities(self) -> Floats:
        """What each link can carry, in bytes per second."""
        return self._capacities

    def add(self, flow: int, links: Iterable[int], most: float = float("inf")) -> None:
        """Let a new flow use `links`, each as often as it is named."""
        assert flow not in self._flows
        counts = Counter(links)
        self._flows[flow] = _Flow(tuple(counts), tuple(counts.values()), most)
        self._fresh[flow] = None
        for link, times in counts.items():
            self._users[link][flow] = times
            self._touched[link] = None

    def remove(self, flow: int) -> None:
        """Let a flow end."""
        gone = self._flows.pop(flow)
        self._fresh.pop(flow, None)
        for link in gone.links:
            del self._users[link][flow]
            self._touched[link] = None

    def settle(self) -> dict[int, float]:
        """Share links anew after changes; return the flows whose speed has changed."""
        if not self._touched and not self._fresh:
            return {}
        flows, links = self._within_reach()
        rates = self._filled(flows, links)
        changed: dict[int, float] = {}
        for flow, rate in zip(flows, rates.tolist(), strict=True):
            known = self._flows[flow]
            if rate != known.rate or flow in self._fresh:
                known.rate = changed[flow] = rate
        self._touched.clear()
        self._fresh.clear()
        return changed

    def _within_reach(self) -> tuple[list[int], list[int]]:
        """Return the flows and links that the changes can matter to."""
        links = dict.fromkeys(self._touched)
        flows = dict.fromkeys(self._fresh)
        frontier = list(links)
        while frontier:
            for flow in self._users[frontier.pop()]:
                if flow not in flows:
                    flows[flow] = None
                    for link in self._flows[flow].links:
                        if link not in links:
                            links[link] = None
                            frontier.append(link)
        return sorted(flows), sorted(links)

    def _filled(self, flows: list[int], links: list[int]) -> Floats:
        """Fill these links with these flows; note what each link carries then."""
        place = {link: n for n, link in enumerate(links)}
        known = [self._flows[flow] for flow in flows]
        of_flow: Ints = np.repeat(
            np.arange(len(known)), [len(flow.links) for flow in known]
        )
        of_link: Ints = np.asarray(
            [place[link] for flow in known for link in flow.links], np.int64
        )
        times: Floats = np.asarray(
            [n for flow in known for n in flow.times], np.float64
        )
        most: Floats = np.asarray([flow.most for flow in known], np.float64)
        rates = fill(self._capacities[links], of_flow, of_link, times, most)
        carried = np.bincount(of_link, times * rates[of_flow], len(links))
        self._loads[links] = carried
        return rates


def fill(
    capacities: Floats, of_flow: Ints, of_link: Ints, times: Floats, most: Floats
) -> Floats:
    """Return max-min fair rates.

    Entry `i` says that flow `of_flow[i]` uses link `of_link[i]` `times[i]` times.
    A flow without links gets the most it wants.
    """
    rates = most.copy()
    left = capacities.copy()
    growing = np.zeros(len(most), np.bool_)
    growing[of_flow] = True
    while growing.any():
        still = growing[of_flow]
        weights = np.bincount(of_link[still], times[still], len(left))
        levels = np.full(len(left), np.inf)
        np.divide(np.maximum(left, 0.0), weights, out=levels, where=weights > 0)
        level = min(levels.min(), most[growing].min())
        stop = growing & (most <= level * CLOSE)
        full = levels <= level * CLOSE
        stop[of_flow[still & full[of_link]]] = True
        rates[stop] = np.minimum(level, most[stop])
        settled = stop[of_flow]
        left -= np.bincount(
            of_link[settled], times[settled] * rates[of_flow[settled]], len(left)
        )
        growing &= ~stop
    return rates
