"""The grants that peers have shown and what they allow now. One per node."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from shoal.core.membership.members import highest_serial

if TYPE_CHECKING:
    from collections.abc import Iterable

    from shoal.core.membership.members import Admission, Members
    from shoal.model.ids import NodeId, OwnerId
    from shoal.protocol.messages import Grant, Revocation

MET_MAX: Final = 65_536


@final
class Roster:
    """The grants that peers have shown. Expiry and revocation act at once."""

    def __init__(self, members: Members, wall_at_zero_s: float) -> None:
        """Use `members` to verify; the wall clock reads this at `now` = 0.

        `read_wall` corrects it: clocks get set, and machines sleep.
        """
        self._members = members
        self._wall_at_zero_s = wall_at_zero_s
        self._shown: dict[NodeId, Grant] = {}
        # What was verified, and until when it holds; any news voids all of it.
        self._valid: dict[NodeId, tuple[Admission, float]] = {}

    def meet(self, peer: NodeId, grant: Grant | None, now: float) -> Admission | str:
        """Remember the grant that `peer` showed if it is valid; else return why not."""
        valid = self._valid.get(peer)
        if valid is not None and now < valid[1] and self._shown[peer] == grant:
            return valid[0]
        admission = self.verify(peer, grant, now)
        if not isinstance(admission, str) and grant is not None:
            if peer not in self._shown and len(self._shown) >= MET_MAX:
                oldest = next(iter(self._shown))
                del self._shown[oldest]
                self._valid.pop(oldest, None)
            self._shown[peer] = grant
            self._valid[peer] = (admission, now + admission.valid_for_s)
        return admission

    def verify(self, peer: NodeId, grant: Grant | None, now: float) -> Admission | str:
        """Return what `grant` allows `peer` now, or why it allows nothing."""
        return self._members.admit(peer, grant, self._wall_at_zero_s + now)

    def get(self, peer: NodeId, now: float) -> Admission | None:
        """Return what `peer` may do now by the grant it showed earlier."""
        valid = self._valid.get(peer)
        if valid is not None and now < valid[1]:
            return valid[0]
        admission = self.recall(peer, now)
        return None if isinstance(admission, str) else admission

    def owner_of(self, peer: NodeId, now: float) -> OwnerId | None:
        """Return the owner of `peer` by the grant it showed, if it is valid."""
        admission = self.get(peer, now)
        return None if admission is None else admission.owner

    def recall(self, peer: NodeId, now: float) -> Admission | str:
        """Return what `peer` may do now by the grant it showed, or why nothing."""
        valid = self._valid.get(peer)
        if valid is not None and now < valid[1]:
            return valid[0]
        grant = self._shown.get(peer)
        if grant is None:
            return "no grant was shown"
        admission = self.verify(peer, grant, now)
        if not isinstance(admission, str):
            self._valid[peer] = (admission, now + admission.valid_for_s)
        return admission

    def shown(self, peer: NodeId) -> Grant | None:
        """Return the grant that `peer` showed last, if it held then."""
        return self._shown.get(peer)

    def revoke(self, revocation: Revocation) -> bool:
        """Take in a revocation; return whether it is valid and news."""
        is_news = self._members.revoke(revocation)
        if is_news:
            self._valid.clear()
        return is_news

    @property
    def met(self) -> Iterable[NodeId]:
        """All peers that have shown a grant that held."""
        return self._shown.keys()

    @property
    def revocations(self) -> tuple[Revocation, ...]:
        """All standing revocations."""
        return self._members.revocations

    def revoked_up_to(self, node: NodeId) -> int:
        """Return the highest serial of a node that is void, or -1."""
        return self._members.revoked_up_to(node)

    def is_out(self, node: NodeId, now: float) -> bool:
        """Whether a node was revoked and has shown no newer grant."""
        return self.revoked_up_to(node) >= 0 and self.get(node, now) is None

    def highest_serial(self, node: NodeId) -> int:
        """Return the highest serial that a grant of a node may have, as far as we know.

        It is the highest that was shown here, or the first that is not void.
        """
        shown = highest_serial(node, self._shown.values())
        return max(shown, self._members.revoked_up_to(node) + 1)

    def read_wall(self, wall_s: float, now: float) -> None:
        """Set the wall clock: it was changed, or the machine slept."""
        self._wall_at_zero_s = wall_s - now
        self._valid.clear()

    def wall_s(self, now: float) -> float:
        """Return what the wall clock reads at `now`."""
        return self._wall_at_zero_s + now
