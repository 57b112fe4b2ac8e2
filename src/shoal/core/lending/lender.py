"""Makes a worker lend only what is free, and only when its owner allows it.

It holds the two machines that decide so, and turns their decisions into what becomes
of leases: room is withheld from the ledger (`SpareRoom`); while the machine is not lent
(`OwnerPresence`), other owners are offered nothing, and what they run is preempted.
Tasks of the machine's own owner go on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from shoal.core.deadlines import DeadlineHeap, Deadlines
from shoal.core.lending.events import (
    LendingEvent,
    LongestTaskChanged,
    MachineMeasured,
)
from shoal.core.lending.owner_presence import OwnerPresence
from shoal.core.lending.spare_room import SpareRoom
from shoal.core.timing import LOOK_LENT_S, LOOK_S
from shoal.model.resources import total

if TYPE_CHECKING:
    from collections.abc import Callable

    from shoal.core.events import Effect
    from shoal.core.leasing.lease_lifecycle import LeaseLifecycle
    from shoal.core.leasing.lending_terms import LendingTerms
    from shoal.core.leasing.owner_rules import OwnerRules

UNSEEN: Final = "unseen"


@final
class Lender:
    """Applies what is measured of a machine, and seen of its owner, to its leases."""

    def __init__(
        self,
        rules: OwnerRules,
        leases: LeaseLifecycle,
        terms: LendingTerms,
        show_changes: Callable[[float], list[Effect]],
        heap: DeadlineHeap,
    ) -> None:
        """Change `terms`; `show_changes` tells schedulers of new ones."""
        self.room = SpareRoom(leases.book.ledger.capacity)
        self.presence = OwnerPresence(rules.lend)
        self._rules = rules
        self._leases = leases
        self._terms = terms
        self._terms.pause = self.presence.reason
        self._show_changes = show_changes
        self._due: Deadlines[str] = Deadlines(heap)

    @property
    def look_again_s(self) -> float | None:
        """How soon to look for the owner again; None: there is no need to."""
        if self._rules.lend.is_always:
            return None
        is_foreign = self._rules.is_foreign
        used = any(is_foreign(lease.owners) for lease in self._leases.book)
        return LOOK_LENT_S if used else LOOK_S

    def handle(self, event: LendingEvent, now: float) -> list[Effect]:
        """Take in what was measured or seen."""
        if isinstance(event, LongestTaskChanged):
            shortened = self._leases.shorten(event.longest_s, now)
            return shortened + self._show_changes(now)
        if isinstance(event, MachineMeasured):
            book = self._leases.book
            leased = total(lease.taken for lease in book)
            if self.room.measured(event, leased, now):
                book.withhold(self.room.withheld, self.room.words)
            return []
        changed = self.presence.observed(event, now)
        if (unseen_at := self.presence.next_deadline()) is not None:
            self._due.set(UNSEEN, unseen_at)
        return self._lend_or_pause(now) if changed else []

    def due(self, now: float) -> list[Effect]:
        """End a loan that nobody watches any more."""
        overdue = self._due.pop_due(now)
        return self._lend_or_pause(now) if overdue and self.presence.due(now) else []

    def _lend_or_pause(self, now: float) -> list[Effect]:
        self._terms.pause = reason = self.presence.reason
        effects: list[Effect] = []
        if reason:
            is_foreign, grace_s = self._rules.is_foreign, self._rules.owner_grace_s
            effects = self._leases.preempt_foreign(is_foreign, grace_s, reason, now)
        return effects + self._show_changes(now)
