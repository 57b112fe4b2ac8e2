"""Check promises about finding others: N1, N2 and N3."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, final

from shoal.core.discovery.announcement_log import ECHO_S
from shoal.core.discovery.known_members import KEPT_MAX
from shoal.core.discovery.neighbours import ASK_S, KNOCK_S, LINKS_FEW
from shoal.core.events import Effect, MessageReceived, Send
from shoal.core.peer import Peer
from shoal.model.ids import NodeId
from shoal.protocol import codec
from shoal.protocol.messages import Inventory
from shoal.sim.agenda import Agenda
from shoal.sim.checkers.violations import Violations
from shoal.sim.node.host import SimHost

LINKED_S: Final = ASK_S + 4 * KNOCK_S
"""Time after the last fault by which members are linked to each other."""


@final
class AnnouncementPromises:
    """Checks that an announcement that is heard again is not answered again: N3."""

    def __init__(self, violations: Violations) -> None:
        self._violations = violations
        self._heard: dict[tuple[NodeId, int, bytes], float] = {}

    def told(
        self, host: SimHost, event: MessageReceived, effects: list[Effect]
    ) -> None:
        """Check what a node does about an announcement of a scheduler."""
        if not _is_scheduler(host, event.peer):
            return  # Its worker does not hear of it.
        key = (host.id, host.life, codec.encode_one(event.message))
        now = host.now_local
        since_s = now - self._heard.get(key, now - ECHO_S)
        if since_s >= ECHO_S:
            self._heard[key] = now
        elif any(type(e) is Send and type(e.message) is Inventory for e in effects):
            what = f"{host.id} answers {event.peer} twice, {since_s:.1f} s later"
            self._violations.report("N3", what)


@final
class NeighbourPromises:
    """Checks the links of a world, and whom nodes remember."""

    def __init__(self, violations: Violations, agenda: Agenda) -> None:
        self._violations = violations
        self._agenda = agenda
        self._met: dict[tuple[NodeId, NodeId], None] = {}  # node, and who was linked

    # N1: once faults stop, members find each other again.

    def apart(self, hosts: Sequence[SimHost]) -> str:
        """Say which members are not linked as they should be; empty if all are."""
        names = {host.id: host for host in hosts}
        few = min(LINKS_FEW, len(hosts) - 1)
        for host in hosts:
            count = sum(peer in names for peer in host.links)
            if count < few:
                return f"{host.id} has {count} links to {len(hosts) - 1} members"
        reached = {hosts[0].id: None}
        todo = [hosts[0]]
        while todo:
            for peer in todo.pop().links:
                if peer in names and peer not in reached:
                    reached[peer] = None
                    todo.append(names[peer])
        lost = [node for node in names if node not in reached]
        return f"no path leads from {hosts[0].id} to {lost[0]}" if lost else ""

    def check_linked(self, hosts: Sequence[SimHost], healed_s: float) -> bool:
        """Return whether all are linked; report it if they are not in time."""
        apart = self.apart(hosts)
        if apart and self._agenda.now > healed_s + LINKED_S:
            self._violations.report("N1", apart)
        return not apart

    # N2: only members that were linked are remembered, and few of them.

    def sweep(self, hosts: Sequence[SimHost]) -> None:
        """Note who is linked to whom."""
        for host in hosts:
            self._met.update(((host.id, peer), None) for peer in host.links)

    def kept(self, host: SimHost, met: Sequence[NodeId]) -> None:
        """Check whom a node remembers for its next life."""
        self.sweep((host,))
        if len(met) > KEPT_MAX:
            self._violations.report("N2", f"{host.id} remembers {len(met)} members")
        for node in met:
            if (host.id, node) not in self._met:
                what = f"{host.id} remembers {node}, which it was never linked to"
                self._violations.report("N2", what)


def _is_scheduler(host: SimHost, peer: NodeId) -> bool:
    if not isinstance(host.machine, Peer):
        return False
    admission = host.machine.membership.roster.get(peer, host.now_local)
    return admission is not None and "scheduler" in admission.roles
