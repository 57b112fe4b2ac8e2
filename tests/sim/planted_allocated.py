"""Bugs in how long allocated workers are there: promise, and a seed that finds it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from shoal.core.leasing.leases import LeaseBook
from shoal.core.lending.events import EndNode
from shoal.core.lending.lifetime import Lifetime

if TYPE_CHECKING:
    from shoal.core.events import Effect
    from shoal.core.leasing.leases import Lease

_Look = Lifetime._look


def _takes_anything(self: LeaseBook, longest_s: int) -> None:
    """Leave the ledgers as they are: a worker near its end takes long tasks."""


def _never_too_late(self: LeaseBook, lease: Lease) -> str | None:
    """Let a lease be used again though no time is left for its tasks."""
    return None


def _does_not_end(self: Lifetime, now: float) -> list[Effect]:
    """Forget to end the node."""
    return [e for e in _Look(self, now) if not isinstance(e, EndNode)]


def _ends_at_once(self: Lifetime, reason: str, now: float) -> list[Effect]:
    """End a worker without notice, whatever runs."""
    return [EndNode(reason)]


ALLOCATED_BUGS: Final = (
    ("takes anything", "Z1", LeaseBook, "shorten", _takes_anything, 1),
    ("uses old leases", "Z1", LeaseBook, "too_late", _never_too_late, 1),
    ("gives no notice", "Z2", Lifetime, "_end", _ends_at_once, 4),
    ("stays", "Z3", Lifetime, "_look", _does_not_end, 0),
)
