"""Check promises about API calls between nodes: F1 and F2."""

from __future__ import annotations

from collections.abc import Mapping
from typing import final

from shoal.model.ids import NodeId
from shoal.protocol.forwarding import ApiPiece
from shoal.sim.checkers.revocations import KnownRevocations
from shoal.sim.checkers.violations import Violations
from shoal.sim.node.host import SimHost


@final
class ForwardingPromises:
    """Checks answers to clients, calls run by APIs, and messages sent."""

    def __init__(
        self,
        violations: Violations,
        revocations: KnownRevocations,
        hosts: Mapping[NodeId, SimHost],
    ) -> None:
        self._violations = violations
        self._hosts = hosts
        self._over: dict[int, None] = {}  # calls that ended or were abandoned
        self._revocations = revocations

    # F1: answers arrive once and in order, followed by one end.

    def delivered(
        self, host: SimHost, answerer: NodeId, token: int, *, is_right: bool
    ) -> None:
        """Check an answer to a client; `is_right` if it is the next expected."""
        if token in self._over:
            self._violations.report("F1", f"call {token} has an answer after its end")
        if not is_right:
            self._violations.report("F1", f"call {token} gets what was not said next")
        if not self._is_same_owner(host, answerer):
            what = f"{host.id} gets an answer of {answerer}, of another owner"
            self._violations.report("F2", what)

    def ended(self, token: int, *, is_whole: bool) -> None:
        """Check the end of a call, as told to its client."""
        if token in self._over:
            self._violations.report("F1", f"call {token} ends twice")
        if not is_whole:
            self._violations.report("F1", f"call {token} ends well, but not whole")
        self._over[token] = None

    def left(self, token: int) -> None:
        """Note that a client left its call."""
        self._over[token] = None

    def check_over(self, host: SimHost, life: int, token: int) -> None:
        """Check that a call has ended by now, unless its node crashed."""
        if host.up and host.life == life and token not in self._over:
            self._violations.report("F1", f"call {token} of {host.id} has no end")

    # F2: nodes of other owners, or known to be revoked, get nothing.

    def ran(self, host: SimHost, caller: NodeId) -> None:
        """Check that an API may run a caller's call."""
        if not self._is_same_owner(host, caller):
            what = f"{host.id} runs a call of {caller}, of another owner"
            self._violations.report("F2", what)
        if self._revocations.knows(host, caller):
            self._violations.report("F2", f"{host.id} runs a call of {caller}, revoked")

    def sent(self, host: SimHost, peer: NodeId, message: object) -> None:
        """Check a piece of an answer that a node sends."""
        assert isinstance(message, ApiPiece)
        if message.kind != "refusal" and self._revocations.knows(host, peer):
            what = f"{host.id} sends {message.kind} to {peer}, which it knows revoked"
            self._violations.report("F2", what)

    def _is_same_owner(self, host: SimHost, node: NodeId) -> bool:
        own, shown = host.spec.grant, self._hosts[node].spec.grant
        return own is not None and shown is not None and own.owner == shown.owner
