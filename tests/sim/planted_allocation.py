"""Bugs in how workers are asked for: promise, and a seed that finds it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from shoal.core.allocation.allocator import Allocator
from shoal.core.allocation.events import AllocationTried
from shoal.core.events import Record
from shoal.core.leasing.leases import LeaseBook
from shoal.core.lending.events import EndNode
from shoal.core.lending.lifetime import Lifetime

if TYPE_CHECKING:
    from shoal.core.events import Effect
    from shoal.model.ids import NodeId

_Submit = Allocator._submit
_OnTried = Allocator._on_tried
_Look = Lifetime._look


def _without_limit(self: Allocator, name: str, now: float) -> bool:
    """Submit as many as demand wants."""
    kept = self.known[name]
    return kept.tried and not kept.paused and now >= self._live[name].next_at


def _unrecorded(self: Allocator, name: str, now: float) -> list[Effect]:
    """Submit before anything is on disk: a crash forgets the pilot."""
    return [e for e in _Submit(self, name, now) if not isinstance(e, Record)]


def _for_anybody(self: Allocator, peer: NodeId, now: float) -> bool:
    """Ask for workers that a stranger wants."""
    return True


def _deaf(self: Allocator, event: AllocationTried, now: float) -> list[Effect]:
    """Take any answer of the engine for a yes."""
    return _OnTried(self, AllocationTried(event.name), now)


def _takes_anything(self: LeaseBook, longest_s: int) -> None:
    """Leave the ledgers as they are: a pilot near its end takes long tasks."""


def _does_not_end(self: Lifetime, now: float) -> list[Effect]:
    """Forget to end the node."""
    return [e for e in _Look(self, now) if not isinstance(e, EndNode)]


ALLOCATION_BUGS: Final = (
    ("knows no limit", "Q1", Allocator, "_may_submit", _without_limit, 1),
    ("submits before it is on disk", "Q1", Allocator, "_submit", _unrecorded, 36),
    ("stays when idle", "Q2", Lifetime, "_look", _does_not_end, 6),
    ("takes anything", "Q3", LeaseBook, "shorten", _takes_anything, 4),
    ("works for strangers", "Q5", Allocator, "_is_ours", _for_anybody, 1),
    ("takes no for yes", "Q6", Allocator, "_on_tried", _deaf, 3),
)
