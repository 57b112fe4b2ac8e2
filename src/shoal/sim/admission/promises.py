"""Check promises about admission: A1 to A4.

- A1: an invitation lets in no more newcomers than it says.
- A2: a revoked node is not let in again by an old invitation.
- A3: nobody is let in without an invitation or a person's yes.
- A4: once faults stop, an invitation that a user holds lets in as many as it says, and
  who was let in hears of it; so does a stranger whom a person accepted. Who is revoked
  while it is let in has used the invitation up all the same: given back, the use would
  be there for the same intruder under another name.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import final

from shoal.model.ids import NodeId
from shoal.protocol.messages import Welcome
from shoal.sim.agenda import Agenda
from shoal.sim.checkers.revocations import KnownRevocations
from shoal.sim.checkers.violations import Violations
from shoal.sim.node.host import SimHost

Allowed = Mapping[NodeId, tuple[int, int]]
"""Each newcomer's real invitation, and how many uses that has."""


@final
class AdmissionPromises:
    """Checks every grant signed for or sent to a newcomer."""

    def __init__(
        self,
        violations: Violations,
        agenda: Agenda,
        revocations: KnownRevocations,
        invited: Allowed,
    ) -> None:
        self._violations = violations
        self._agenda = agenda
        self._invited = invited
        self._approved: dict[NodeId, None] = {}  # newcomers accepted by a person
        self._welcomed: dict[int, dict[NodeId, None]] = {}  # newcomers by invitation
        self._signed: dict[int, dict[NodeId, None]] = {}  # of these, or not yet
        self._revocations = revocations
        self._issued: dict[int, float] = {}  # when an invitation ends, by number
        self._unwanted: dict[NodeId, None] = {}  # newcomers that were revoked

    def issued(self, number: int, until_s: float) -> None:
        """Note that a user holds an invitation."""
        self._issued[number] = until_s

    def revoked(self, newcomer: NodeId) -> None:
        """Note that a newcomer is not to be let in any more."""
        self._unwanted[newcomer] = None

    def left_out(self, newcomer: NodeId) -> None:
        """Check that a newcomer that never got in had no right to (A4)."""
        if newcomer in self._unwanted:
            return
        number, uses = self._invited.get(newcomer, (-1, 0))
        came = dict(self._welcomed.get(number, {}))
        for other in self._signed.get(number, {}):
            if other in self._unwanted:
                came[other] = None
        is_good = self._issued.get(number, 0.0) > self._agenda.now
        if newcomer in came or newcomer in self._approved:
            self._violations.report("A4", f"{newcomer} never hears that it is let in")
        elif is_good and len(came) < uses:
            what = f"{newcomer} never gets in, by invitation {number} for {uses}"
            self._violations.report("A4", f"{what}, used by {', '.join(came)}")

    def approved(self, newcomer: NodeId) -> None:
        """Note that a person at an admin's screen accepted a newcomer."""
        self._approved[newcomer] = None

    def signed(self, host: SimHost, newcomer: NodeId) -> None:
        """Check a grant about to be signed (A2, A3)."""
        if newcomer not in self._invited and newcomer not in self._approved:
            what = f"{host.id} lets {newcomer} in, whom nobody invited or approved"
            self._violations.report("A3", what)
        number, _ = self._invited.get(newcomer, (-1, 0))
        self._signed.setdefault(number, {})[newcomer] = None
        # Grants decided earlier are sent by the time the record is safe.
        if self._revocations.knows(host, newcomer):
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
