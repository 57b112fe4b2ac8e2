"""Tells a peer all revocations that it may have missed, page by page.

A peer that connects may have been away, or new, when they were published. It is told
the newest at once, and the others in pages with pauses between them, so that no turn
says more than a page to one peer. What it knows already changes nothing there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from shoal.core.events import Effect, Send

if TYPE_CHECKING:
    from shoal.core.roster import Roster
    from shoal.model.ids import NodeId
    from shoal.protocol.messages import Revocation

PAGE: Final = 64
"""Revocations that a peer is told at a time."""

PAUSE_S: Final = 0.25


@final
class CatchingUp:
    """Knows which linked peers are still to be told what."""

    def __init__(self, roster: Roster) -> None:
        self._roster = roster
        # By peer, what it has not been told yet, the newest last; linked peers only.
        self._untold: dict[NodeId, list[Revocation]] = {}
        self._due: float | None = None

    def connected(self, peer: NodeId, now: float) -> list[Effect]:
        """Tell the newest; the others follow."""
        self._untold.pop(peer, None)
        revocations = self._roster.revocations
        if not revocations:
            return []
        self._untold[peer] = list(revocations)
        return self._tell(peer, now)

    def lost(self, peer: NodeId) -> None:
        """Tell it no more: when it is back it is told from the beginning."""
        self._untold.pop(peer, None)

    def on_deadline(self, now: float) -> list[Effect]:
        """Tell the next page to all that wait for one."""
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
