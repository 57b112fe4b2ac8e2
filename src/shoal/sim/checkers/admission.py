"""Check promises about admission: A1, A2 and A3."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import final

from shoal.core.durability.journal import Entry, Revoked
from shoal.model.ids import NodeId
from shoal.protocol.messages import Welcome
from shoal.sim.agenda import Agenda
from shoal.sim.checkers.violations import Violations
from shoal.sim.node.host import SimHost

Allowed = Mapping[NodeId, tuple[int, int]]
"""Each newcomer's real invitation, and how many uses that has."""


@final
class AdmissionPromises:
    """Checks every grant signed for or sent to a newcomer."""

    def __init__(
        self, violations: Violations, agenda: Agenda, invited: Allowed
    ) -> None:
        self._violations = violations
        self._agenda = agenda
        self._invited = invited
        self._approved: dict[NodeId, None] = {}  # newcomers accepted by a person
        self._welcomed: dict[int, dict[NodeId, None]] = {}  # newcomers by invitation
        # Since when a node knows that another is revoked, by (node, other).
        self._revoked: dict[tuple[NodeId, NodeId], float] = {}

    def approved(self, newcomer: NodeId) -> None:
        """Note that a person accepted a newcomer."""
        self._approved[newcomer] = None

    def signed(self, host: SimHost, newcomer: NodeId) -> None:
        """Check a grant about to be signed (A2, A3)."""
        if newcomer not in self._invited and newcomer not in self._approved:
            what = f"{host.id} lets {newcomer} in, whom nobody invited or approved"
            self._violations.report("A3", what)
        since = self._revoked.get((host.id, newcomer))
        # Grants decided earlier are sent by the time the record is safe.
        if since is not None and self._agenda.now > since:
            what = f"{host.id} lets {newcomer} in again, which it knows revoked"
            self._violations.report("A2", what)

    def sent(self, host: SimHost, peer: NodeId, message: object) -> None:
        """Check a grant sent to a gate."""
        assert isinstance(message, Welcome)
        self.welcomed(host, message)

    def welcomed(self, host: SimHost, welcome: Welcome) -> None:
        """Check that an invitation is not used more often than allowed (A1)."""
        newcomer = welcome.grant.node
        number, uses = self._invited.get(newcomer, (-1, 1))
        if number < 0:
            return  # It was admitted without an invitation.
        came = self._welcomed.setdefault(number, {})
        came[newcomer] = None
        if len(came) > uses:
            names = ", ".join(came)
            what = f"{host.id} lets in one more by invitation {number} for {uses}"
            self._violations.report("A1", f"{what}: {names}")

    def safe(self, host: SimHost, entries: Sequence[Entry]) -> None:
        """Note revocations that a node has on disk."""
        for entry in entries:
            if isinstance(entry, Revoked):
                key = (host.id, entry.revocation.node)
                self._revoked.setdefault(key, self._agenda.now)
