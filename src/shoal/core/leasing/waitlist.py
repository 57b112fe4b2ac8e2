"""Unmet demands that worse-ranked ones must not overtake.

Schedulers do not see each other's queues. Without this list a stream of small demands
would take every slot as it comes free, and a gang that needs many at once would never
start. A scheduler whose demand has waited asks full workers as well, and they remember
its best demand for a short time. A worse-ranked demand that would take what the better
one lacks is refused until the better one is met, withdrawn or no longer asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

import msgspec

from shoal.core.timing import WAIT_MAX_S
from shoal.protocol.limits import AHEAD_MAX
from shoal.protocol.messages import Waiting

if TYPE_CHECKING:
    from collections.abc import Collection

    from shoal.model.ids import NodeId, RequestId
    from shoal.model.resources import Allocation, Ledger, Profile
    from shoal.protocol.messages import Demand, Rank

WAITERS_MAX: Final = 64
SLOTS_PER_DEMAND_MAX: Final = 256
"""Leases that one demand gets, however many it asks for."""


class _Waiter(msgspec.Struct):
    rank: Rank
    profile: Profile
    count: int
    until: float


@final
class Waitlist:
    """The best unmet demand of each scheduler that keeps asking."""

    def __init__(self) -> None:
        self._waiters: dict[NodeId, _Waiter] = {}

    def __len__(self) -> int:
        return len(self._waiters)

    def remember(self, rank: Rank, demand: Demand, now: float) -> None:
        """Remember a demand for a while; an offer alone does not meet it.

        A gang releases its offers when they are not enough, and tries again.
        """
        known = self._waiters.get(rank.node)
        if known is not None and known.until > now and _older(known.rank, rank):
            return
        if known is None and len(self._waiters) >= WAITERS_MAX:
            self._drop_the_worst()
        until = now + min(demand.wait_for_s, WAIT_MAX_S)
        count = min(demand.count, SLOTS_PER_DEMAND_MAX)  # No more is ever offered.
        self._waiters[rank.node] = _Waiter(rank, demand.profile, count, until)

    def forget(self, node: NodeId) -> None:
        """Forget the demand of a scheduler."""
        self._waiters.pop(node, None)

    def withdraw(self, node: NodeId, requests: Collection[RequestId]) -> None:
        """Forget the demand of a scheduler if it is one of these."""
        known = self._waiters.get(node)
        if known is not None and known.rank.request in requests:
            del self._waiters[node]

    def met(self, rank: Rank) -> None:
        """Forget a scheduler's demand once a lease of this rank is committed."""
        known = self._waiters.get(rank.node)
        if known is not None and (
            known.rank.request == rank.request or _older(rank, known.rank)
        ):
            del self._waiters[rank.node]

    def best(self, now: float) -> tuple[Waiting, ...]:
        """Return the best-ranked demands that wait here, for others to know."""
        self._expire(now)
        some = sorted(self._waiters.values(), key=lambda waiter: waiter.rank)
        return tuple(
            Waiting(waiter.rank, waiter.profile, waiter.count)
            for waiter in some[::-1][:AHEAD_MAX]
        )

    def ahead(
        self, rank: Rank, taken: Allocation, room: Ledger, now: float
    ) -> Rank | None:
        """Return the better rank that waits for the same resources, if any."""
        self._expire(now)
        for waiter in self._waiters.values():
            if waiter.rank > rank and hurts(room, taken, waiter.profile, waiter.count):
                return waiter.rank
        return None

    def _expire(self, now: float) -> None:
        for node in [n for n, w in self._waiters.items() if w.until <= now]:
            del self._waiters[node]

    def _drop_the_worst(self) -> None:
        worst = min(self._waiters, key=lambda node: self._waiters[node].rank)
        del self._waiters[worst]


def _older(one: Rank, other: Rank) -> bool:
    """Whether the first of two demands of one scheduler goes first."""
    return (one.priority, one.age_s) > (other.priority, other.age_s)


def hurts(room: Ledger, taken: Allocation, need: Profile, count: int) -> bool:
    """Whether `taken` uses resources that a waiter for `count` such tasks needs.

    It does if fewer of the waiter's tasks fit then, or if it takes a resource that is
    already too scarce for all of them.
    """
    left, after = room.copy(), room.copy()
    after.take(taken)
    fit = left.use_up(need, count)
    if after.use_up(need, count) < fit:
        return True
    return fit < count and (
        (need.cpu_milli > left.cpu_milli and taken.cpu_milli > 0)
        or (need.memory_bytes > left.memory_bytes and taken.memory_bytes > 0)
        or (need.disk_bytes > left.disk_bytes and taken.disk_bytes > 0)
        or (need.gpu is not None and bool(taken.shares))
    )
