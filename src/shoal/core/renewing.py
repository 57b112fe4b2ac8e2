"""Gets a new grant long before the own one ends, and gives new ones to others.

A node whose grant has less than a third of its life left asks an admin that it is
linked to for one with the same rights. If that does not answer or says no, it asks the
next, later and later, until the grant ends. An admin looks at what it knows now: who is
revoked gets nothing, and nobody gets more than it had. The host signs, because the keys
are there: the machine says what is to be signed, and judges what came of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final
from zlib import crc32

import msgspec

from shoal.core.events import Effect, GrantSigned, KeepGrant, Send, SignGrant
from shoal.core.membership import TERM, Admission, serial_for_grant
from shoal.model.ids import NodeId, RequestId
from shoal.protocol.grants import GrantRenewed, GrantWanted
from shoal.protocol.limits import ADMINS_MAX
from shoal.protocol.messages import Hello

if TYPE_CHECKING:
    from shoal.core.roster import Roster
    from shoal.protocol.messages import Grant

LEAD_SHARE: Final = 1 / 3
"""Of the life of a grant: it is renewed when so much is left."""

EARLY_SHARE: Final = 1 / 2
"""Nobody gets a new grant while more than this is left."""

SPREAD_SHARE: Final = 0.1
"""Of the lead: nodes that were let in together do not ask together."""

ANSWER_S: Final = 10.0
SLACK_S: Final = 0.001  # Wall clocks are large numbers, and floats.
AGAIN_MIN_S: Final = 1.0
AGAIN_MAX_S: Final = 6 * 3_600.0
SIGNING_MAX: Final = 256
"""Grants that are being signed here at one time."""

YEAR_S: Final = 365 * 86_400.0
CLOCKS_SINCE_S: Final = 1_000_000_000
"""A serial of a term that is larger is the time at which the grant was signed."""


def life_of(grant: Grant, remaining_s: float) -> float:
    """Return for how long a grant was given; if it does not tell, what is left of it.

    A grant has no beginning. But its serial is the clock of its signer, in a term.
    """
    signed_at = grant.serial % TERM
    if CLOCKS_SINCE_S < signed_at < grant.expires_wall_s:
        return grant.expires_wall_s - signed_at
    return max(0.0, remaining_s)


def same_rights(old: Grant, new: Grant) -> bool:
    """Whether a grant gives exactly what another did, for another time."""
    return (
        (old.node, old.shoal, old.owner) == (new.node, new.shoal, new.owner)
        and set(old.roles) == set(new.roles)
        and old.top_priority == new.top_priority
        and old.quota_gpus == new.quota_gpus
        and old.quota_cpu_milli == new.quota_cpu_milli
    )


def renewed(
    old: Grant, own: Grant, *, is_root: bool, revoked_up_to: int, wall_s: float
) -> Grant | str:
    """Return a grant with the rights of an old one, to be signed; or why there is none.

    The signer has the grant `own`, and signs by it, or has the key of the root.
    """
    expires_wall_s = wall_s + min(life_of(old, YEAR_S), 10 * YEAR_S)
    if not is_root:
        expires_wall_s = min(expires_wall_s, own.expires_wall_s)
    if expires_wall_s <= old.expires_wall_s:
        return "the grant of the signer ends no later"
    return msgspec.structs.replace(
        old,
        serial=serial_for_grant(revoked_up_to, wall_s),
        expires_wall_s=expires_wall_s,
        delegation=None if is_root else own,
        signer=NodeId(""),
        signature=b"",
    )


def _signed_by(grant: Grant) -> set[NodeId]:
    """Return the nodes that signed a grant, and that of its signer, but the root."""
    found: set[NodeId] = set()
    while grant.delegation is not None:
        found.add(grant.signer)
        grant = grant.delegation
    return found


@final
class Renewing:
    """The renewal of one node's grant, and what it signs for others."""

    def __init__(self, node: NodeId, grant: Grant | None, roster: Roster) -> None:
        self.grant = grant
        self.trouble = ""  # Why the last try came to nothing; empty after a success.
        self._node = node
        self._roster = roster
        self._linked: dict[NodeId, None] = {}  # In the order in which they came.
        self._heard_of: dict[NodeId, None] = {}  # Admins, say others; ADMINS_MAX.
        self._signing: dict[NodeId, RequestId] = {}  # At most SIGNING_MAX.
        self._life_s = 0.0
        self._tries = 0
        self._seq = 0
        self._asked: tuple[NodeId, RequestId] | None = None
        self._due: float | None = None  # when to ask, or to wait no longer

    # What happens.

    def booted(self, now: float) -> None:
        """Begin to look at the clock."""
        if self.grant is not None:
            self._life_s = life_of(self.grant, self._remaining_s(now))
            self._wait(now)

    def wall_read(self, now: float) -> None:
        """Look at the clock again: it was set, or the node has slept."""
        if self._asked is None and not self._tries and self.grant is not None:
            self._wait(now)

    def connected(self, peer: NodeId, now: float) -> None:
        """Note whom one could ask; who waits for an admin asks soon."""
        self._linked[peer] = None
        if self._asked is None and self._tries and self._may_sign(peer, now):
            self._due = now

    def lost(self, peer: NodeId) -> None:
        """Note that it cannot be asked now."""
        self._linked.pop(peer, None)

    def next_deadline(self) -> float | None:
        """When to look again, if ever."""
        return self._due

    def on_deadline(self, now: float) -> list[Effect]:
        """Ask, or give up waiting for an answer."""
        if self._asked is not None:
            self._fail(f"{self._asked[0]} does not answer", now)
            return []
        if self.grant is None or self._remaining_s(now) > self._lead_s + SLACK_S:
            self._wait(now)
            return []
        return self._ask(self.grant, now)

    def on_answer(
        self, peer: NodeId, message: GrantRenewed, now: float
    ) -> list[Effect]:
        """Take the new grant, if it is what was asked for."""
        if self._asked != (peer, message.request):
            return []
        effects = self._settle(message.grant, message.reason, now)
        for admin in message.admins:
            is_news = admin not in self._heard_of and admin != self._node
            if is_news and len(self._heard_of) < ADMINS_MAX and not effects:
                self._heard_of[admin] = None
                self._due = now
        return effects

    def on_wanted(self, peer: NodeId, message: GrantWanted, now: float) -> list[Effect]:
        """Have a new grant signed for a member, or say why not."""
        reason = self._objection(peer, message.grant, now)
        if reason:
            admins = self._admins(now) if self._roster.get(peer, now) else ()
            answer = GrantRenewed(request=message.request, reason=reason, admins=admins)
            return [Send(peer, answer)]
        if self._signing.get(peer) == message.request:
            return []  # It is on the way.
        self._signing[peer] = message.request
        return [SignGrant(peer, message.request, message.grant)]

    def on_signed(self, event: GrantSigned, now: float) -> list[Effect]:
        """Pass on what was signed here; who was revoked meanwhile gets nothing."""
        if event.peer == self._node:
            if self._asked != (self._node, event.request):
                return []
            return self._settle(event.grant, event.reason, now)
        if self._signing.pop(event.peer, None) is None:
            return []
        grant, reason = event.grant, event.reason
        if grant is not None:
            admission = self._roster.verify(event.peer, grant, now)
            if isinstance(admission, str):
                grant, reason = None, admission
        answer = GrantRenewed(request=event.request, grant=grant, reason=reason)
        return [Send(event.peer, answer)]

    # Asking.

    @property
    def _lead_s(self) -> float:
        spread = crc32(self._node.encode()) / 2**32 * SPREAD_SHARE
        return self._life_s * LEAD_SHARE * (1.0 - spread)

    def _remaining_s(self, now: float) -> float:
        assert self.grant is not None
        return self.grant.expires_wall_s - self._roster.wall_s(now)

    def _wait(self, now: float) -> None:
        """Sleep until the grant is to be renewed."""
        self._due = now + max(0.0, self._remaining_s(now) - self._lead_s)

    def _ask(self, grant: Grant, now: float) -> list[Effect]:
        # Who knows no admin asks others, who may know one.
        signers = self._signers(grant, now) or list(self._linked)
        if not signers:
            self._fail("no admin is linked", now)
            return []
        signer = signers[self._tries % len(signers)]
        self._seq += 1
        request = RequestId(f"{self._node}/grant/{self._seq}")
        self._asked, self._due = (signer, request), now + ANSWER_S
        if signer == self._node:
            return [SignGrant(signer, request, grant)]
        return [Send(signer, GrantWanted(request=request, grant=grant))]

    def _signers(self, grant: Grant, now: float) -> list[NodeId]:
        """Return whom to ask: itself, who signed before, and who is near the root."""
        own = [self._node] if "admin" in grant.roles else []
        others = {peer for peer in self._linked if self._may_sign(peer, now)}
        others |= self._heard_of.keys() | _signed_by(grant)
        others.discard(self._node)
        return own + sorted(others, key=lambda peer: self._rank(peer, grant))

    def _admins(self, now: float) -> tuple[NodeId, ...]:
        """Return admins that somebody else may ask."""
        found = {peer for peer in self._linked if self._may_sign(peer, now)}
        found |= _signed_by(self.grant) if self.grant is not None else set()
        return tuple(sorted(found)[:ADMINS_MAX])

    def _rank(self, peer: NodeId, grant: Grant) -> tuple[bool, int, NodeId]:
        depth, shown = 0, self._roster.shown(peer)
        while shown is not None and shown.delegation is not None:
            depth, shown = depth + 1, shown.delegation
        return (peer != grant.signer, depth, peer)

    def _may_sign(self, peer: NodeId, now: float) -> bool:
        admission = self._roster.get(peer, now)
        return admission is not None and "admin" in admission.roles

    def _settle(self, grant: Grant | None, reason: str, now: float) -> list[Effect]:
        assert self._asked is not None
        reason = reason if grant is None else self._flaw(grant, now)
        if grant is None or reason:
            self._fail(f"{self._asked[0]} says: {reason or 'no'}", now)
            return []
        self.grant, self._asked = grant, None
        self._tries, self.trouble = 0, ""
        self._life_s = life_of(grant, self._remaining_s(now))
        self._wait(now)
        self._roster.meet(self._node, grant, now)
        shown = [Send(peer, Hello(grant=grant)) for peer in self._linked]
        return [KeepGrant(grant), *shown]

    def _flaw(self, new: Grant, now: float) -> str:
        """Say why a grant that was given is of no use; empty if it is."""
        assert self.grant is not None
        if not same_rights(self.grant, new):
            return "the new grant has other rights"
        if new.expires_wall_s <= self.grant.expires_wall_s:
            return "the new grant does not last longer"
        admission = self._roster.verify(self._node, new, now)
        return admission if isinstance(admission, str) else ""

    def _fail(self, why: str, now: float) -> None:
        """Try again, later and later, but some more times before the end."""
        self.trouble, self._asked = why, None
        self._tries += 1
        least = max(AGAIN_MIN_S, self._lead_s / 256)
        most = max(AGAIN_MIN_S, min(AGAIN_MAX_S, self._lead_s / 8))
        wait_s = min(most, least * 2.0 ** min(self._tries - 1, 16))
        seed = crc32(f"{self._node}/{self._tries}".encode()) / 2**32
        self._due = now + wait_s * (0.5 + seed)

    # Answering.

    def _objection(self, peer: NodeId, old: Grant, now: float) -> str:
        """Say why a member gets no new grant here; empty if it does."""
        admission = self._roster.verify(peer, old, now)
        if not isinstance(admission, Admission):
            return admission
        if self.grant is None or "admin" not in self.grant.roles:
            return "this node is no admin"
        if admission.valid_for_s > EARLY_SHARE * life_of(old, 2.0 * YEAR_S):
            return "too early: more than half of its life is left"
        if peer not in self._signing and len(self._signing) >= SIGNING_MAX:
            return f"{SIGNING_MAX} others are being served"
        return ""
