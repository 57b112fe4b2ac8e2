"""A scheduler's view of workers: soft state that expires and is rebuilt."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias, final

import msgspec

from shoal.core.deadlines import DeadlineHeap, Deadlines
from shoal.core.leasing.waitlist import hurts
from shoal.core.proximity.events import SitesChanged
from shoal.core.proximity.proximity import FORGET_QUICKEST
from shoal.core.timing import VIEW_TTL_S
from shoal.model.addresses import direct_ones
from shoal.model.ids import NodeId
from shoal.model.kinds import needs_met
from shoal.policy.table.worker_table import WorkerTable, WorkerView
from shoal.protocol.messages import InventoryChanged

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from shoal.model.resources import Profile
    from shoal.protocol.messages import Inventory, Load, LoadDigest, Rank, Waiting

PathCost: TypeAlias = "Callable[[NodeId], int | None]"
"""What the path to a node costs, in microseconds; None if nobody knows."""

VIEWS_MAX: Final = 100_000
NEARLY: Final = 16
"""A cost that changes by less than this part of itself is the same."""

AHEAD_TOLD_S: Final = 4.0
AHEAD_KEPT_MAX: Final = 32
"""Workers of which it is known who waits there; every placement looks at each."""

AHEAD_SLOTS_MAX: Final = 8
"""Slots of one who waits that are looked at: workers may name any number."""

FAR_US: Final = 1_000_000  # the cost of a path that was never measured


class _Seen(msgspec.Struct, gc=False):
    epoch: int
    seq: int
    load: Load
    inventory: int  # the number of its latest inventory


@final
class WorkerViews:
    """The latest inventory of each worker, in the table that placement reads."""

    def __init__(
        self, node: NodeId, heap: DeadlineHeap, estimate: PathCost | None = None
    ) -> None:
        """Start with no views. `estimate` supplies the cost of paths never measured."""
        self.table = WorkerTable()
        self._node = node
        self._estimate = estimate
        self._seen: dict[NodeId, _Seen] = {}
        self._costs: dict[NodeId, float] = {}
        self._told: dict[NodeId, int] = {}  # costs, as the table has them
        self._sites = SitesChanged({})
        self._addresses: dict[NodeId, str] = {}  # the first direct one of each
        self._expiry: Deadlines[NodeId] = Deadlines(heap)
        # Who waits at workers, as these told, and until when that counts.
        self._ahead: dict[NodeId, tuple[tuple[Waiting, ...], float]] = {}
        # Workers whose room was kept from a task of ours, until it is looked at again.
        self._kept: Deadlines[NodeId] = Deadlines(heap)

    def __contains__(self, node: object) -> bool:
        return node in self._seen

    def __len__(self) -> int:
        return len(self._seen)

    def address(self, node: NodeId) -> str:
        """Return the address of a worker; empty if unknown."""
        return self._addresses.get(node, "")

    def epoch(self, node: NodeId) -> int | None:
        """Return the epoch in which a worker was last seen."""
        seen = self._seen.get(node)
        return None if seen is None else seen.epoch

    def kept_from(self, rank: Rank, profile: Profile, now: float) -> list[NodeId]:
        """Return workers that keep the room for others which such a task would take.

        What they told counts only for a moment: whoever waited there may be gone. Once
        it counts no more, `is_kept_no_more` says so.
        """
        found: list[NodeId] = []
        for node, (ahead, until) in list(self._ahead.items()):
            if until <= now:
                del self._ahead[node]
                continue
            better = [one for one in ahead if one.rank > rank]
            view = self.table.view(node) if better else None
            taken = None if view is None else view.fit(profile)
            if (
                view is not None
                and taken is not None
                and any(
                    one.rank.node != self._node
                    and hurts(
                        view.ledger, taken, one.profile, min(one.count, AHEAD_SLOTS_MAX)
                    )
                    for one in better
                )
            ):
                found.append(node)
                self._kept.set(node, until)
        return found

    def is_kept_no_more(self, now: float) -> bool:
        """Whether room that was kept from a task of ours may not be kept any more.

        No load tells of that: the room was free all the time.
        """
        return bool(self._kept.pop_due(now))

    def on_inventory(self, peer: NodeId, inventory: Inventory, now: float) -> bool:
        """Replace a worker's inventory; return whether anything changed."""
        seen = self._seen.get(peer)
        latest = (inventory.epoch, inventory.seq)
        if seen is not None and latest <= (seen.epoch, seen.inventory):
            return False
        if seen is None and len(self._seen) >= VIEWS_MAX:
            return False
        seq, load = inventory.seq, inventory.load
        if seen is not None and latest < (seen.epoch, seen.seq):
            seq, load = seen.seq, seen.load  # A newer load has overtaken it.
        self._told[peer] = self.cost(peer)
        self.table.put(
            WorkerView(
                node=peer,
                capacity=inventory.capacity,
                drivers=needs_met(inventory.drivers, inventory.networked),
                warm=inventory.warm,
                terms=inventory.terms,
                weaker=inventory.weaker,
                path_cost_us=self._told[peer],
                site=(site := self._sites.sites.get(peer, "")),
                narrow=self._sites.narrow.get(site, 0.0),
                **msgspec.structs.asdict(load),
            )
        )
        if seq == inventory.seq:
            self.table.links.tell(peer, inventory.gangs)
            self._note_ahead(peer, inventory.ahead, now)
        self._note(peer, _Seen(inventory.epoch, seq, load, inventory.seq), now)
        direct = direct_ones(inventory.addresses)
        self._addresses[peer] = direct[0] if direct else ""
        return True

    def on_load(
        self, peer: NodeId, message: InventoryChanged | LoadDigest, now: float
    ) -> bool | None:
        """Apply a newer load; return None if the inventory it belongs to is unknown."""
        seen = self._seen.get(peer)
        if seen is None or message.epoch > seen.epoch:
            return None
        if (message.epoch, message.seq) <= (seen.epoch, seen.seq):
            return False
        if isinstance(message, InventoryChanged) and message.since > seen.inventory:
            return None  # The inventory that it belongs to is lost, or late.
        known = _Seen(message.epoch, message.seq, message.load, seen.inventory)
        self._note(peer, known, now)
        if isinstance(message, InventoryChanged):
            self.table.links.tell(peer, message.gangs)
            self._note_ahead(peer, message.ahead, now)
        if message.load == seen.load and not self.table.is_booked(peer):
            return False  # A sign of life.
        load = message.load
        self.table.set_load(
            peer,
            load.cpu_milli,
            load.memory_bytes,
            load.disk_bytes,
            load.gpu_milli,
            load.gpu_memory,
            load.active,
            draining=load.draining,
        )
        return True

    def on_path_measured(self, peer: NodeId, rtt_s: float) -> None:
        """Record the measured round trip to a worker: the quickest of late counts."""
        known = self._costs.get(peer)
        if known is None and len(self._costs) >= VIEWS_MAX:
            del self._costs[next(iter(self._costs))]
        cost = float(max(1, round(rtt_s * 1e6)))
        if known is not None:
            cost = min(cost, known * FORGET_QUICKEST)
        self._costs[peer] = cost
        told = self._told.get(peer, 0)
        if peer in self._seen and abs(cost - told) > told / NEARLY:
            # Not at every change: all workers would be ranked anew each second.
            self._told[peer] = round(cost)
            self.table.set_path_cost(peer, round(cost))

    @property
    def sites(self) -> Mapping[NodeId, str]:
        """The site of each node that was measured to be near others."""
        return self._sites.sites

    def on_sites(self, found: SitesChanged) -> None:
        """Record which workers were measured to be near each other."""
        self._sites = found
        for node in self._seen:
            site = found.sites.get(node, "")
            self.table.set_site(node, site, found.narrow.get(site, 0.0))

    def forget(self, node: NodeId) -> None:
        """Drop the view of a worker."""
        if self._seen.pop(node, None) is not None:
            self.table.remove(node)
            self._costs.pop(node, None)
            self._told.pop(node, None)
            self._addresses.pop(node, None)
            self._expiry.drop(node)
            self._ahead.pop(node, None)
            self._kept.drop(node)

    def expire(self, now: float) -> None:
        """Drop views that were not refreshed in time."""
        for node in self._expiry.pop_due(now):
            self.forget(node)

    def cost(self, peer: NodeId) -> int:
        """Return the path cost to a node in microseconds, measured or estimated."""
        if peer == self._node:
            return 0
        measured = self._costs.get(peer)
        if measured is not None:
            return round(measured)
        guessed = None if self._estimate is None else self._estimate(peer)
        return FAR_US if guessed is None else guessed

    def _note_ahead(self, peer: NodeId, ahead: tuple[Waiting, ...], now: float) -> None:
        self._ahead.pop(peer, None)
        if peer in self._kept:
            self._kept.set(peer, now)  # Others may wait there, or nobody.
        if ahead:
            self._ahead[peer] = (ahead, now + AHEAD_TOLD_S)
        if len(self._ahead) > AHEAD_KEPT_MAX:
            del self._ahead[next(iter(self._ahead))]

    def _note(self, peer: NodeId, seen: _Seen, now: float) -> None:
        self._seen[peer] = seen
        self._expiry.set(peer, now + VIEW_TTL_S)
