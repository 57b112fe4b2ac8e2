"""A scheduler's view of workers: soft state that expires and is rebuilt."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias, final

import msgspec

from shoal.core.deadlines import DeadlineHeap, Deadlines
from shoal.core.timing import VIEW_TTL_S
from shoal.model.addresses import direct_ones
from shoal.model.ids import NodeId
from shoal.model.kinds import needs_met
from shoal.policy.table.worker_table import WorkerTable, WorkerView

if TYPE_CHECKING:
    from collections.abc import Callable

    from shoal.protocol.messages import (
        Inventory,
        InventoryChanged,
        Load,
        LoadDigest,
    )

PathCost: TypeAlias = "Callable[[NodeId], int | None]"
"""What the path to a node costs, in microseconds; None if nobody knows."""

VIEWS_MAX: Final = 100_000
FAR_US: Final = 1_000_000  # the cost of a path that was never measured


class _Seen(msgspec.Struct, gc=False):
    epoch: int
    seq: int
    load: Load


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
        self._costs: dict[NodeId, int] = {}
        self._addresses: dict[NodeId, str] = {}  # the first direct one of each
        self._expiry: Deadlines[NodeId] = Deadlines(heap)

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

    def on_inventory(self, peer: NodeId, inventory: Inventory, now: float) -> bool:
        """Replace a worker's inventory; return whether anything changed."""
        seen = self._seen.get(peer)
        latest = (inventory.epoch, inventory.seq)
        if seen is not None and latest <= (seen.epoch, seen.seq):
            return False
        if seen is None and len(self._seen) >= VIEWS_MAX:
            return False
        load = inventory.load
        self.table.put(
            WorkerView(
                node=peer,
                capacity=inventory.capacity,
                drivers=needs_met(inventory.drivers, inventory.networked),
                warm=inventory.warm,
                terms=inventory.terms,
                weaker=inventory.weaker,
                path_cost_us=self.cost(peer),
                **msgspec.structs.asdict(load),
            )
        )
        self._note(peer, inventory, now)
        direct = direct_ones(inventory.addresses)
        self._addresses[peer] = direct[0] if direct else ""
        return True

    def on_load(
        self, peer: NodeId, message: InventoryChanged | LoadDigest, now: float
    ) -> bool | None:
        """Apply a newer load; return None if the worker's inventory is unknown."""
        seen = self._seen.get(peer)
        if seen is None or message.epoch > seen.epoch:
            return None
        if (message.epoch, message.seq) <= (seen.epoch, seen.seq):
            return False
        self._note(peer, message, now)
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
        """Record the measured round trip to a worker."""
        if len(self._costs) >= VIEWS_MAX and peer not in self._costs:
            del self._costs[next(iter(self._costs))]
        self._costs[peer] = max(1, round(rtt_s * 1e6))
        if peer in self._seen:
            self.table.set_path_cost(peer, self._costs[peer])

    def forget(self, node: NodeId) -> None:
        """Drop the view of a worker."""
        if self._seen.pop(node, None) is not None:
            self.table.remove(node)
            self._costs.pop(node, None)
            self._addresses.pop(node, None)
            self._expiry.drop(node)

    def expire(self, now: float) -> None:
        """Drop views that were not refreshed in time."""
        for node in self._expiry.pop_due(now):
            self.forget(node)

    def cost(self, peer: NodeId) -> int:
        """Return the path cost to a node in microseconds, measured or estimated."""
        if peer == self._node:
            return 0
        measured = self._costs.get(peer)
        if measured is None and self._estimate is not None:
            measured = self._estimate(peer)
        return FAR_US if measured is None else measured

    def _note(
        self, peer: NodeId, said: Inventory | InventoryChanged | LoadDigest, now: float
    ) -> None:
        self._seen[peer] = _Seen(said.epoch, said.seq, said.load)
        self._expiry.set(peer, now + VIEW_TTL_S)
