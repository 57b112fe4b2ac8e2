"""Send a peer all revocations that it may have missed, page by page.

A peer that connects may have been away when they were published. It gets the newest
page at once and the others with pauses in between, so that no turn sends more than a
page to one peer. Revocations that the peer knows already change nothing there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from shoal.core.events import Effect, Send

if TYPE_CHECKING:
    from shoal.core.membership.roster import Roster
    from shoal.model.ids import NodeId
    from shoal.protocol.messages import Revocation

PAGE: Final = 64
"""Revocations that a peer is told at a time."""

PAUSE_S: Final = 0.25


@final
class RevocationSync:
    """Tracks which revocations each linked peer has yet to be sent."""

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
