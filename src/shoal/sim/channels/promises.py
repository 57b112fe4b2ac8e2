"""Check promises about channels to tasks: H1 to H4."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import final

from shoal.core.channels.channels import CHANNELS_MAX, OPENED_MAX, WINDOW_BYTES
from shoal.core.channels.channels import Channels as ChannelMachine
from shoal.core.peer import Peer
from shoal.model.ids import Attempt, NodeId
from shoal.protocol.channels.items import ITEM_BYTES_MAX
from shoal.protocol.channels.messages import ChannelOpen
from shoal.sim.checkers.revocations import KnownRevocations
from shoal.sim.checkers.violations import Violations
from shoal.sim.node.host import SimHost


@final
class ChannelPromises:
    """Checks what comes out of channels, who opened them, and what they hold."""

    def __init__(
        self,
        violations: Violations,
        revocations: KnownRevocations,
        hosts: Mapping[NodeId, SimHost],
    ) -> None:
        self._violations = violations
        self._hosts = hosts
        self._opened: dict[tuple[NodeId, object], int] = {}
        self._revocations = revocations

    # H1: items arrive once and in order, or the channel ends with an error.

    def delivered(self, what: str, number: int, expected: int) -> None:
        """Check the number of an item against the next that must come."""
        if number != expected:
            text = f"{what} gets item {number} instead of {expected}"
            self._violations.report("H1", text)

    def ended_well(self, what: str, *, is_whole: bool) -> None:
        """Check a channel that ended as it should: nothing of it may be missing."""
        if not is_whole:
            self._violations.report("H1", f"{what} ends well, but not whole")

    def check_over(self, what: str, *, is_over: bool) -> None:
        """Check that a channel has ended by now."""
        if not is_over:
            self._violations.report("H1", f"{what} neither ends nor goes on")

    # H2: only the scheduler of an attempt opens a channel to it, and each opens once.

    def served(self, host: SimHost, peer: NodeId, asked: ChannelOpen) -> None:
        """Check a channel that a worker serves."""
        attempt = asked.attempt
        if not self._is_for(host, peer, attempt):
            text = f"{host.id} serves {peer} a channel to {attempt}, which is not its"
            self._violations.report("H2", text)
        runs = [p.start.attempt for p in host.driver.processes.values()]
        if attempt is not None and attempt not in runs:
            text = f"{host.id} serves a channel to {attempt}, which does not run there"
            self._violations.report("H2", text)
        if self._revocations.knows(host, peer):
            text = f"{host.id} serves {peer}, which it knows to be revoked"
            self._violations.report("H3", text)
        key = (host.id, (host.life, peer, asked.channel))
        self._opened[key] = self._opened.get(key, 0) + 1
        if self._opened[key] > 1:
            self._violations.report("H2", f"{host.id} opens {asked.channel} twice")

    def _is_for(self, host: SimHost, peer: NodeId, attempt: Attempt | None) -> bool:
        if attempt is not None:
            return attempt.scheduler == peer
        return self._hosts[peer].spec.owner == host.spec.owner

    # H3: a node that is known to be revoked gets nothing.

    def sent(self, host: SimHost, peer: NodeId, message: object) -> None:
        """Check items that a node sends."""
        if self._revocations.knows(host, peer):
            text = f"{host.id} sends {type(message).__name__} to {peer}, revoked"
            self._violations.report("H3", text)

    # H4: a node keeps three windows for each channel, and no more channels than it may.

    def sweep(self, hosts: Iterable[SimHost]) -> None:
        """Check what nodes keep now."""
        for host in hosts:
            if not isinstance(host.machine, Peer):
                continue
            machine = host.machine.find(ChannelMachine)
            if machine is None:
                continue
            channels = machine.open
            # A host that is paused may have to pass on what it was given at once, and
            # what was under way when it said that it is slow.
            most = 3 * (WINDOW_BYTES + ITEM_BYTES_MAX) * channels
            if machine.waiting_bytes > most:
                text = f"{host.id} keeps {machine.waiting_bytes} bytes of {channels}"
                self._violations.report("H4", text)
            if channels > CHANNELS_MAX + OPENED_MAX:
                self._violations.report("H4", f"{host.id} has {channels} channels")
