"""Bugs of machines that are lent by a rule, for `planted`."""

from typing import Final

import msgspec

from shoal.core.events import Effect
from shoal.core.leasing.lease_lifecycle import IsForeign, LeaseLifecycle
from shoal.core.leasing.leases import LeaseBook
from shoal.core.lending.events import OwnerObserved
from shoal.core.lending.lender import Lender
from shoal.core.lending.owner_presence import OwnerPresence
from shoal.model.resources import Allocation

_observed = OwnerPresence.observed
_why_not = OwnerPresence._why_not
_preempt_foreign = LeaseLifecycle.preempt_foreign
_lend_or_pause = Lender._lend_or_pause


def owners_program_overlooked(
    self: OwnerPresence, event: OwnerObserved, now: float
) -> bool:
    """Look at keys alone."""
    return _observed(self, msgspec.structs.replace(event, cpu_milli=0), now)


def owner_waits_for_others(
    self: LeaseLifecycle,
    is_foreign: IsForeign,
    _grace_s: float,
    reason: str,
    now: float,
) -> list[Effect]:
    """Give tasks of others all the time that they like."""
    return _preempt_foreign(self, is_foreign, 30.0, reason, now)


def owners_own_tasks_stopped(
    self: LeaseLifecycle,
    _is_foreign: IsForeign,
    grace_s: float,
    reason: str,
    now: float,
) -> list[Effect]:
    """Stop everything when the owner comes."""
    return _preempt_foreign(self, lambda _owners: True, grace_s, reason, now)


def lent_while_the_owner_is_there(self: Lender, now: float) -> list[Effect]:
    """Stop what runs, and offer the room again at once."""
    effects = _lend_or_pause(self, now)
    self._terms.pause = ""
    return effects


def owner_believed_for_ever(self: OwnerPresence, now: float) -> str:
    """Take an owner who came once for one who stays."""
    return _why_not(self, now) or (self.reason if self._lent_at else "")


def taken_memory_offered(self: LeaseBook, amounts: Allocation, why: str) -> None:
    """Measure what other programs take, and offer it all the same."""


LENDING_BUGS: Final = (
    (
        "owner's program overlooked",
        OwnerPresence,
        "observed",
        owners_program_overlooked,
    ),
    (
        "owner waits for others",
        LeaseLifecycle,
        "preempt_foreign",
        owner_waits_for_others,
    ),
    (
        "owner's own tasks stopped",
        LeaseLifecycle,
        "preempt_foreign",
        owners_own_tasks_stopped,
    ),
    (
        "lent while the owner is there",
        Lender,
        "_lend_or_pause",
        lent_while_the_owner_is_there,
    ),
    ("owner believed for ever", OwnerPresence, "_why_not", owner_believed_for_ever),
    ("taken memory offered", LeaseBook, "withhold", taken_memory_offered),
)
