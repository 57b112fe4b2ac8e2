"""The policies that a scheduler places by: its own, and those that jobs name."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from shoal.errors import PolicyError, UnknownPolicyError
from shoal.policy.orders import ORDERS, order_named
from shoal.policy.placement import Placed, place
from shoal.policy.registry import Registry

if TYPE_CHECKING:
    from collections.abc import Collection
    from random import Random

    from shoal.core.holdings import Shape
    from shoal.model.ids import NodeId
    from shoal.policy.orders import Order
    from shoal.policy.placement import Policy
    from shoal.policy.workers import WorkerTable


@final
class Policies:
    """Finds a job's policy; what cannot be found gives way to the default."""

    def __init__(
        self, registry: Registry | None = None, default: str = "", order: str = ""
    ) -> None:
        """Use `default` for jobs that name no policy; it must be there.

        An `order` is for the queue, after priority and fair share and before age.
        """
        self.order: Order | None = _live_order(order) if order else None
        self._registry = registry or Registry({})
        self._default = self._registry.get(default)

    def get(self, name: str) -> Policy:
        """Return the policy of this name. After a restart it may be gone."""
        if not name or self.refusal(name):
            return self._default
        return self._registry.get(name)

    def place(
        self,
        shape: Shape,
        count: int,
        table: WorkerTable,
        rng: Random,
        exclude: Collection[NodeId],
        warm: Collection[str] = (),
    ) -> Placed:
        """Choose workers for tasks of a shape, and book them; see `placement.place`."""
        return place(
            shape.profile,
            count,
            table,
            self.get(shape.policy),
            rng,
            driver=shape.driver,
            rtt_max_us=shape.rtt_max_us,
            exclude=exclude,
            warm=warm,
        )

    def refusal(self, name: str) -> str:
        """Say why there is no such policy, if so."""
        try:
            self._registry.get(name)
        except PolicyError as error:
            return str(error)
        return ""


def _live_order(name: str) -> Order:
    """Return an order for tasks of which only the time limits are known."""
    order = order_named(name)
    if order.changes == "never":
        return order
    live = [other for other in ORDERS if ORDERS[other]().changes == "never"]
    raise UnknownPolicyError(
        f"a live queue cannot be ordered by {order.name}",
        because="that changes while tasks wait or run",
        hint=f"choose one of {', '.join(live)}",
    )
