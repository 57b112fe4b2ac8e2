"""Attempts and leases that go from one scheduler to another with their job.

A scheduler that took a kept job up claims what the one before it began. Each attempt
that runs, or whose report nobody acknowledged, gets its new name; whatever it still has
to say goes to the new scheduler. What is not known here, or not the claimant's to have
(`core/succession/kinship`), is gone for it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, final

from shoal.core.events import AttemptAdopted, Effect, Send, Tell
from shoal.model.ids import Attempt
from shoal.protocol.messages import Occupied, Renewed

if TYPE_CHECKING:
    from shoal.core.leasing.attempt_bindings import AttemptBindings
    from shoal.core.leasing.lease_lifecycle import LeaseLifecycle
    from shoal.core.leasing.output_outbox import OutputOutbox
    from shoal.core.leasing.report_outbox import ReportOutbox
    from shoal.core.succession.kinship import Kinship
    from shoal.model.ids import LeaseId, NodeId
    from shoal.protocol.succession.messages import Adoption, Claim

Rename = Callable[[Attempt, Attempt], bool]
"""Gives a run another name; says whether there is such a run, and it has started."""


@final
class Adoptions:
    """Hands attempts over to the scheduler that took their job up."""

    def __init__(
        self,
        lifecycle: LeaseLifecycle,
        kinship: Kinship,
        bindings: AttemptBindings,
        outputs: OutputOutbox,
        reports: ReportOutbox,
        rename: Rename,
    ) -> None:
        self._lifecycle, self._book = lifecycle, lifecycle.book
        self._kinship, self._bindings = kinship, bindings
        self._outputs, self._reports = outputs, reports
        self._rename = rename

    def on_adoption(self, peer: NodeId, adoption: Adoption, now: float) -> list[Effect]:
        """Give a scheduler what it claims, if it may have it; say what there is."""
        effects: list[Effect] = []
        alive: list[Occupied] = []
        gone: list[LeaseId] = []
        for claim in adoption.claims:
            if not self._is_given(peer, claim):
                given = self._hand_over(peer, claim, adoption, now)
                effects += given or []
                if given is None:
                    gone.append(claim.lease)
            lease = self._book.of(peer, claim.lease)
            if lease is not None and lease.running is not None:
                alive.append(Occupied(lease.id, lease.running))
        renewed = Renewed(leases=tuple(alive), gone=tuple(gone))
        return [*effects, Send(peer, renewed)]

    def _is_given(self, peer: NodeId, claim: Claim) -> bool:
        """Whether a claim was met before, and this repeats it."""
        lease = self._book.of(peer, claim.lease)
        return lease is not None or self._reports.get(claim.attempt) is not None

    def _hand_over(
        self, peer: NodeId, claim: Claim, adoption: Adoption, now: float
    ) -> list[Effect] | None:
        """Give an attempt its new name and scheduler; None if it may not have them."""
        was, attempt = claim.was, claim.attempt
        is_its_own = attempt.scheduler == peer
        if not is_its_own or not self._kinship.admits(peer, was, adoption):
            return None
        runs = self._rename(was, attempt)
        if not runs and self._reports.get(was) is None:
            return None
        begins = self._outputs.begins(was)
        self._kinship.adopt(was, attempt, adoption.term, begins)
        self._bindings.bind(attempt, claim.lease)
        effects = self._outputs.rename(was, attempt, now)
        effects.append(Tell(AttemptAdopted(self._kinship.name_of(attempt), attempt)))
        self._reports.rename(was, attempt, now)
        lease = self._book.get(claim.lease)
        if runs and lease is not None:
            lease.running = lease.fence = attempt
            self._lifecycle.adopt(lease, peer, adoption.lease_s, now)
        return effects
