"""The membership machine: who is met, who is turned away, and whose grant is renewed.

Theory of operation. Every node mounts it first. A peer shows its grant when its link
comes up, in a `Hello` when it has a new one, or in an `Announcement`, which travels by
gossip. A valid grant is kept in the roster, which the rack asks before any other
machine hears a member. To this node a peer is unknown, a member until its grant
expires, or revoked; only a grant with a later serial makes it a member again.

- `Revocation`: kept on disk, gossiped on, and the revoked node is cut off. All other
  machines are told that it said goodbye. Peers that connect later are told too, page by
  page (`RevocationSync`).
- `GrantWanted`, `GrantRenewed`: a node asks an admin for a new grant long before its
  own ends (`grant_renewal`). The host signs; the machine says what.

Revocations are durable. Grants that others showed are soft state; the roster bounds it.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final, final

from shoal.core.durability.journal import Entry, Revoked
from shoal.core.events import (
    Booted,
    DeadlineReached,
    Disconnect,
    Effect,
    Event,
    GrantChanged,
    GrantSigned,
    KeepGrant,
    MessageReceived,
    PeerConnected,
    PeerLost,
    Publish,
    Record,
    Send,
    Tell,
    WallClockRead,
)
from shoal.core.machine import Mount
from shoal.core.membership.grant_renewal import GrantRenewal
from shoal.protocol.grants import GrantRenewed, GrantWanted
from shoal.protocol.messages import Announcement, Goodbye, Hello, Revocation

if TYPE_CHECKING:
    from collections.abc import Iterable

    from shoal.core.membership.roster import Roster
    from shoal.model.ids import NodeId
    from shoal.protocol.messages import AnyMessage, Grant, Revocation

SHOWN: Final = (Announcement, Hello, Revocation, GrantWanted, GrantRenewed)
"""Messages that bring their own proof, so strangers may send them."""


@final
class Membership:
    """Decides who belongs to the shoal as far as this node knows."""

    mount = Mount(from_strangers=SHOWN, hears=(GrantSigned,))

    def __init__(
        self,
        node: NodeId,
        roster: Roster,
        grant: Grant | None,
        journal: Iterable[Entry] = (),
    ) -> None:
        """Show `grant`; `journal` holds the revocations of earlier lives."""
        self.counts: Counter[str] = Counter()
        self.roster = roster
        self.renewal = GrantRenewal(node, grant, roster)
        self.node = node
        self._sync = RevocationSync(roster)
        for entry in journal:
            if isinstance(entry, Revoked):
                roster.revoke(entry.revocation)

    def handle(self, event: Event, now: float) -> list[Effect]:
        """Take in one fact; return what to do about it, in order. Raising is a bug."""
        match event:
            case MessageReceived():
                return self._on_message(event.peer, event.message, now)
            case DeadlineReached():
                return self._on_deadline(now)
            case PeerConnected():
                return self._on_peer_connected(event, now)
            case PeerLost():
                self._sync.lost(event.peer)
                self.renewal.lost(event.peer)
            case WallClockRead():
                self.roster.read_wall(event.wall_s, now)
                self.renewal.wall_read(now)
            case GrantSigned():
                return self._renewed(self.renewal.on_signed(event, now))
            case Booted():
                self.roster.meet(self.node, self.renewal.grant, now)
                self.renewal.booted(now)
            case _:
                pass  # A fact for another machine of this node.
        return []

    def next_deadline(self) -> float | None:
        """When to deliver `DeadlineReached`, if ever."""
        sync, renewal = self._sync.next_deadline(), self.renewal.next_deadline()
        if sync is None or renewal is None:
            return renewal if sync is None else sync
        return min(sync, renewal)

    def turn_away(self, peer: NodeId, reason: str) -> list[Effect]:
        """Cut off a peer that is no member."""
        self.counts["turned away"] += 1
        return [Disconnect(peer, reason)]

    def _on_deadline(self, now: float) -> list[Effect]:
        effects: list[Effect] = []
        due = self._sync.next_deadline()
        if due is not None and due <= now:
            effects += self._sync.on_deadline(now)
        due = self.renewal.next_deadline()
        if due is not None and due <= now:
            effects += self._renewed(self.renewal.on_deadline(now))
        return effects

    def _on_peer_connected(self, event: PeerConnected, now: float) -> list[Effect]:
        admission = self.roster.meet(event.peer, event.grant, now)
        if isinstance(admission, str):
            return self.turn_away(event.peer, admission)
        self.renewal.connected(event.peer, now)
        return self._sync.connected(event.peer, now)

    def _on_message(
        self, peer: NodeId, message: AnyMessage, now: float
    ) -> list[Effect]:
        match message:
            case Announcement():
                # Gossip comes from peers without a link: the grant is in the message.
                if message.scheduler == peer:
                    self.roster.meet(peer, message.grant, now)
            case Revocation():
                return self._on_revocation(message, now)
            case GrantWanted():
                return self.renewal.on_wanted(peer, message, now)
            case GrantRenewed():
                return self._renewed(self.renewal.on_answer(peer, message, now))
            case Hello():
                admission = self.roster.meet(peer, message.grant, now)
                if isinstance(admission, str):
                    return self.turn_away(peer, admission)
            case _:
                pass  # The rack hands on nothing else.
        return []

    def _on_revocation(self, revocation: Revocation, now: float) -> list[Effect]:
        """Cut off the revoked node, and end everything that it runs here."""
        if not self.roster.revoke(revocation):
            return []
        node, reason = revocation.node, f"revoked up to serial {revocation.serial}"
        effects: list[Effect] = [Record(Revoked(revocation)), Publish(revocation)]
        if self.roster.get(node, now) is None:
            effects.append(Tell(MessageReceived(node, Goodbye(reason=reason))))
        return [*effects, Disconnect(node, reason)]

    def _renewed(self, effects: list[Effect]) -> list[Effect]:
        """Have all machines of this node show the new grant, if there is one."""
        kept = [each.grant for each in effects if isinstance(each, KeepGrant)]
        return effects + [Tell(GrantChanged(grant)) for grant in kept]


PAGE: Final = 64
"""Revocations that a peer is told at a time."""

PAUSE_S: Final = 0.25


@final
class RevocationSync:
    """Sends a peer all revocations that it may have missed, page by page.

    A peer that connects may have been away when they were published. It gets the newest
    page at once and the others with pauses in between, so that no turn sends more than
    a page to one peer. Revocations that the peer knows already change nothing there.
    """

    def __init__(self, roster: Roster) -> None:
        self._roster = roster
        # By peer, what it has not been told yet, the newest last; linked peers only.
        self._untold: dict[NodeId, list[Revocation]] = {}
        self._due: float | None = None

    def connected(self, peer: NodeId, now: float) -> list[Effect]:
        """Send the newest page; the others follow."""
        self._untold.pop(peer, None)
        revocations = self._roster.revocations
        if not revocations:
            return []
        self._untold[peer] = list(revocations)
        return self._tell(peer, now)

    def lost(self, peer: NodeId) -> None:
        """Stop sending; a peer that returns starts from the beginning."""
        self._untold.pop(peer, None)

    def on_deadline(self, now: float) -> list[Effect]:
        """Send the next page to every peer that waits for one."""
        self._due = None
        return [
            effect for peer in list(self._untold) for effect in self._tell(peer, now)
        ]

    def next_deadline(self) -> float | None:
        """When the next pages are due, if any are."""
        return self._due if self._untold else None

    def _tell(self, peer: NodeId, now: float) -> list[Effect]:
        untold = self._untold[peer]
        page = untold[: -PAGE - 1 : -1]
        del untold[-PAGE:]
        if not untold:
            del self._untold[peer]
        elif self._due is None:
            self._due = now + PAUSE_S
        return [Send(peer, revocation) for revocation in page]
