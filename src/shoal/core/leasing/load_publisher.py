"""Publish a worker's free resources: at once on request, then on change."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

import msgspec

from shoal.core.deadlines import DeadlineHeap, Deadlines
from shoal.core.events import (
    AddressesChanged,
    CacheChanged,
    DriverOpened,
    Effect,
    Send,
    Spread,
)
from shoal.core.timing import DIGEST_S, INVENTORY_DELAY_S, INVENTORY_REFRESH
from shoal.protocol.limits import WARM_MAX
from shoal.protocol.messages import Inventory, InventoryChanged, Load, LoadDigest

if TYPE_CHECKING:
    from collections.abc import Callable

    from shoal.core.leasing.lending_terms import LendingTerms
    from shoal.model.ids import NodeId, OwnerId
    from shoal.model.resources import Ledger
    from shoal.protocol.messages import Waiting

SUBSCRIBERS_MAX: Final = 1_024

Version = tuple[int, int, bool]
"""Differs whenever the load may have changed; cheaper to compare than the load."""


@final
class LoadPublisher:
    """Tracks which schedulers follow this worker, and what each was last told."""

    def __init__(
        self,
        node: NodeId,
        epoch: int,
        ledger: Ledger,
        terms: LendingTerms,
        heap: DeadlineHeap,
        environments: Callable[[OwnerId], tuple[str, ...]] = lambda _owner: (),
        gangs: Callable[[], tuple[str, ...]] = tuple,
        ahead: Callable[[float], tuple[Waiting, ...]] = lambda _now: (),
    ) -> None:
        """Publish the capacity of `ledger`, and a load of it.

        `environments` returns marks of what an owner may use.

        `gangs` returns marks of those that talk to other workers, `ahead` who waits.
        """
        self._addresses: tuple[str, ...] = ()  # where this worker can be dialled
        self._warm: tuple[str, ...] = ()  # at most WARM_MAX marks, the newest first
        self._all_told = True  # whether all who were shown this worker know these
        self._node = node
        self._epoch = epoch
        self._ledger = ledger
        self._terms = terms
        self._environments = environments
        self._gangs = gangs
        self._ahead = ahead
        self._seq = 0
        self._subscribers: dict[NodeId, None] = {}  # an ordered set
        # What was planned for this version is sooner than what would be planned now.
        self.planned: Version | None = None
        self._told: Version | None = None
        self._since = 0  # older inventories are out of date
        self._repeated = 0  # how often the same was told again
        self._digested: Version | None = None
        self._chores: Deadlines[str] = Deadlines(heap)

    def __contains__(self, peer: NodeId) -> bool:
        return peer in self._subscribers

    def show(self, peer: NodeId, load: Load, now: float) -> list[Effect]:
        """Send `peer` the full inventory, and every change from now on."""
        if peer not in self._subscribers and len(self._subscribers) >= SUBSCRIBERS_MAX:
            self.forget(next(iter(self._subscribers)))
        self._subscribers[peer] = None
        self.planned = None
        self._seq += 1
        return [Send(peer, self._inventory(peer, load, now))]

    def learn(
        self,
        event: AddressesChanged | CacheChanged | DriverOpened,
        load: Load,
        now: float,
    ) -> list[Effect]:
        """Publish a new inventory, such as caches or lending terms."""
        if isinstance(event, AddressesChanged):
            self._addresses = event.addresses
            return []
        if isinstance(event, CacheChanged):
            marks = event.marks[:WARM_MAX]
            if set(marks) == set(self._warm):
                return []
            self._warm = marks
        else:
            self._terms.learn(event)
        return self.show_changes(load, now)

    def show_changes(self, load: Load, now: float) -> list[Effect]:
        """Publish a new inventory: this node hears it at once, others soon."""
        self._all_told = False
        self.planned = self._told = None
        return self.show(self._node, load, now) if self._node in self else []

    def forget(self, peer: NodeId) -> None:
        """Stop telling `peer`; it asks again if it comes back."""
        self._subscribers.pop(peer, None)

    def note(self, version: Version, now: float) -> None:
        """Schedule a changed load soon, and an unchanged one ever more rarely.

        That one changes no decision: it is a sign of life, and makes up for what was
        lost on the way.

        Call it when the version differs from the `planned` one.
        """
        self.planned = version
        if self._subscribers:
            changed = version != self._told
            refresh_s = INVENTORY_REFRESH.pause_s(self._repeated)
            delay_s = INVENTORY_DELAY_S if changed else refresh_s
            self._chores.set_earlier("tell", now + delay_s)
        if version != self._digested and "digest" not in self._chores:
            self._chores.set("digest", now + DIGEST_S)

    def due(
        self, read_load: Callable[[], Load], version: Version, now: float
    ) -> list[Effect]:
        """Return the messages that are due; the load is read only if there are any."""
        effects: list[Effect] = []
        for chore in self._chores.pop_due(now):
            self.planned = None
            self._seq += 1
            if chore == "tell":
                self._repeated = self._repeated + 1 if version == self._told else 0
                self._told = version
                effects += self._changed(read_load(), now)
            else:
                self._digested = version
                effects.append(Spread(self._digest(read_load())))
        return effects

    def _changed(self, load: Load, now: float) -> list[Effect]:
        if self._all_told:
            changed = InventoryChanged(
                epoch=self._epoch,
                seq=self._seq,
                load=load,
                since=self._since,
                gangs=self._gangs(),
                ahead=self._ahead(now),
            )
            return [Send(peer, changed) for peer in self._subscribers]
        self._all_told = True
        self._since = self._seq
        told = self._subscribers
        return [Send(peer, self._inventory(peer, load, now)) for peer in told]

    def _inventory(self, peer: NodeId, load: Load, now: float) -> Inventory:
        lending = self._terms.told(peer, now)
        warm = (*self._environments(lending.owner), *self._warm)[:WARM_MAX]
        capacity = self._ledger.capacity
        if capacity.lends != lending.lends:
            capacity = msgspec.structs.replace(capacity, lends=lending.lends)
        return Inventory(
            epoch=self._epoch,
            seq=self._seq,
            capacity=capacity,
            load=load,
            drivers=lending.drivers,
            warm=warm,
            addresses=self._addresses,
            networked=lending.networked,
            terms=lending.terms,
            weaker=lending.weaker,
            gangs=self._gangs(),
            ahead=self._ahead(now),
        )

    def _digest(self, load: Load) -> LoadDigest:
        return LoadDigest(node=self._node, epoch=self._epoch, seq=self._seq, load=load)
