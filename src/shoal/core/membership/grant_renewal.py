"""Renew this node's grant long before it expires, and sign renewals for others.

A node whose grant has less than a third of its lifetime left asks a linked admin for a
new one with the same rights. If the admin refuses or does not answer, the node asks the
next one, with growing pauses, until the grant expires. An admin decides by what it
knows now: a revoked node gets nothing, and nobody gets more rights than before. The
host signs, because it has the keys; the machine says what to sign and checks the
result.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final
from zlib import crc32

import msgspec

from shoal.core.events import Effect, GrantSigned, KeepGrant, Send, SignGrant
from shoal.core.membership.members import TERM, Admission, serial_for_grant
from shoal.model.backoff import Backoff
from shoal.model.ids import NodeId, RequestId
from shoal.protocol.grants import GrantRenewed, GrantWanted
from shoal.protocol.limits import ADMINS_MAX
from shoal.protocol.messages import Hello

if TYPE_CHECKING:
    from shoal.core.membership.roster import Roster
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
    """Return a grant's lifetime, or what is left of it if the grant does not tell.

    A grant has no start date, but its serial is its signer's clock within a term.
    """
    signed_at = grant.serial % TERM
    if CLOCKS_SINCE_S < signed_at < grant.expires_wall_s:
        return grant.expires_wall_s - signed_at
    return max(0.0, remaining_s)


def same_rights(old: Grant, new: Grant) -> bool:
    """Whether two grants give the same rights, apart from their dates."""
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
    """Return a renewed grant to sign, or why there is none.

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
    """Return the nodes in a grant's chain of signers, without the root."""
    found: set[NodeId] = set()
    while grant.delegation is not None:
        found.add(grant.signer)
        grant = grant.delegation
    return found


@final
class GrantRenewal:
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
        """Schedule the first renewal."""
        if self.grant is not None:
            self._life_s = life_of(self.grant, self._remaining_s(now))
            self._wait(now)

    def wall_read(self, now: float) -> None:
        """Reschedule: the clock was set, or the machine slept."""
        if self._asked is None and not self._tries and self.grant is not None:
            self._wait(now)

    def connected(self, peer: NodeId, now: float) -> None:
        """Note a linked peer; a pending renewal asks a new admin soon."""
        self._linked[peer] = None
        if self._asked is None and self._tries and self._may_sign(peer, now):
            self._due = now

    def lost(self, peer: NodeId) -> None:
        """Note that a peer cannot be asked now."""
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
        """Take a new grant if it matches the request."""
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
        """Send a signed grant, unless the node was revoked meanwhile."""
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
        """Return the admins to ask: itself, earlier signers, those near the root."""
        own = [self._node] if "admin" in grant.roles else []
        others = {peer for peer in self._linked if self._may_sign(peer, now)}
        others |= self._heard_of.keys() | _signed_by(grant)
        others.discard(self._node)
        return own + sorted(others, key=lambda peer: self._rank(peer, grant))

    def _admins(self, now: float) -> tuple[NodeId, ...]:
        """Return admins that a peer may ask."""
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
        """Return why a new grant is useless; empty if it is fine."""
        assert self.grant is not None
        if not same_rights(self.grant, new):
            return "the new grant has other rights"
        if new.expires_wall_s <= self.grant.expires_wall_s:
            return "the new grant does not last longer"
        admission = self._roster.verify(self._node, new, now)
        return admission if isinstance(admission, str) else ""

    def _fail(self, why: str, now: float) -> None:
        """Schedule another try with back-off, several more before the grant expires."""
        self.trouble, self._asked = why, None
        self._tries += 1
        least = max(AGAIN_MIN_S, self._lead_s / 256)
        most = max(AGAIN_MIN_S, min(AGAIN_MAX_S, self._lead_s / 8))
        wait_s = Backoff(least, most).pause_s(self._tries - 1)
        seed = crc32(f"{self._node}/{self._tries}".encode()) / 2**32
        self._due = now + wait_s * (0.5 + seed)

    # Answering.

    def _objection(self, peer: NodeId, old: Grant, now: float) -> str:
        """Return why a member gets no new grant here; empty if it does."""
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
