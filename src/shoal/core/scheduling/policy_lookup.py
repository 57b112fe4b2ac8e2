"""A scheduler's policies: its default, and policies named by jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from shoal.errors import PolicyError, UnknownPolicyError
from shoal.policy.placement import Placed, place
from shoal.policy.queueing.queue_orders import ORDERS, order_named
from shoal.policy.registry import Registry

if TYPE_CHECKING:
    from collections.abc import Collection
    from random import Random

    from shoal.core.negotiation.held_leases import LeaseShape
    from shoal.model.ids import NodeId
    from shoal.policy.interface import GangNeed, Policy
    from shoal.policy.queueing.queue_orders import QueueOrder
    from shoal.policy.table.worker_table import WorkerTable


@final
class PolicyLookup:
    """Finds policies by name, and falls back to the default."""

    def __init__(
        self, registry: Registry | None = None, default: str = "", order: str = ""
    ) -> None:
        """Use `default`, which must exist, for jobs that name no policy.

        `order` sorts the queue, after priority and fair share and before age.
        """
        self.order: QueueOrder | None = _live_order(order) if order else None
        self._registry = registry or Registry({})
        self._default = self._registry.get(default)

    def get(self, name: str) -> Policy:
        """Return a policy, or the default if it is gone since an earlier life."""
        if not name or self.refusal(name):
            return self._default
        return self._registry.get(name)

    def place(
        self,
        shape: LeaseShape,
        count: int,
        table: WorkerTable,
        rng: Random,
        exclude: Collection[NodeId],
        warm: Collection[str] = (),
        gang: GangNeed | None = None,
    ) -> Placed:
        """Choose workers for tasks of a shape, and book slots (`policy.placement`)."""
        return place(
            shape.profile,
            count,
            table,
            self.get(shape.policy),
            rng,
            driver=shape.driver,
            rtt_max_us=shape.rtt_max_us,
            nodes=shape.nodes,
            alone=shape.alone,
            exclude=exclude,
            warm=warm,
            gang=gang,
        )

    def refusal(self, name: str) -> str:
        """Say why a policy cannot be used; empty if it can."""
        try:
            self._registry.get(name)
        except PolicyError as error:
            return str(error)
        return ""


def _live_order(name: str) -> QueueOrder:
    """Return an order that needs to know no more than time limits."""
    order = order_named(name)
    if order.changes == "never":
        return order
    live = [other for other in ORDERS if ORDERS[other]().changes == "never"]
    raise UnknownPolicyError(
        f"a live queue cannot be ordered by {order.name}",
        because="that changes while tasks wait or run",
        hint=f"choose one of {', '.join(live)}",
    )
