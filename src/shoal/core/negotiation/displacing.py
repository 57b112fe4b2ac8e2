"""Displacing others' tasks where least is destroyed.

Theory of operation. A task that may displace others, and finds no room, could run at
many workers. Only they know what would be lost there: the work since each task began,
or since its last checkpoint, of whole gangs. So more of them are asked than are needed,
and each offer says what it would destroy. When all have answered, or `CHOICE_S` is
over, the cheapest offers are committed, and the others released. Nothing is stopped
before it is known to be the cheapest.

Of the workers those are asked that run the fewest gangs, as far as is known. Among
equals chance decides: a few drawn at random are nearly as good as all of them, and
several schedulers do not choose the same victims.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

import msgspec

from shoal.core.timing import RESEND_S
from shoal.model.ids import GroupId, LeaseId, RequestId

if TYPE_CHECKING:
    from collections.abc import Iterable

    from shoal.protocol.messages import Offer

CHOICES: Final = 4
"""So many times the slots that are needed are asked for."""

CHOICE_S: Final = RESEND_S
"""Whoever does not answer within this is not waited for."""

Price: TypeAlias = tuple[bool, tuple[tuple[int, float], ...], float]
"""What an offer destroys, for each of its leases: the smallest is the cheapest."""


class DisplacingChoice(msgspec.Struct, kw_only=True):
    """Workers asked for more slots than are wanted, under one request."""

    group: GroupId
    request: RequestId
    wanted: int
    asked: int = 0  # slots asked for and not answered yet
    leases: dict[LeaseId, Price] = msgspec.field(default_factory=dict[LeaseId, Price])
    is_over: bool = False  # nobody is waited for, if there is any offer

    @property
    def is_settled(self) -> bool:
        """Whether to take the cheapest now."""
        return self.asked == 0 or (self.is_over and bool(self.leases))


def price_of(offer: Offer) -> Price:
    """Return what each lease of an offer costs others.

    Workers of older versions say how many they would displace, and not what is lost.
    """
    count = max(1, len(offer.leases))
    unknown = offer.displaces > 0 and not offer.destroys
    losses = tuple((loss.priority, loss.work / count) for loss in offer.destroys)
    return unknown, losses, offer.displaces / count


def dearest(
    prices: dict[LeaseId, Price], keep: Iterable[LeaseId], count: int
) -> list[LeaseId]:
    """Return the leases to give back so that the `count` cheapest are left."""
    order = sorted(keep, key=lambda lease: (prices[lease], lease))
    return order[count:]
