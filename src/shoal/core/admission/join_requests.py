"""Join requests without an invitation, and the code that people compare.

Both machines show a code derived from both keys and a random number of each. A man in
the middle has two connections with its own keys, and so two other codes. To make them
equal it would have to choose its number after seeing ours. So the newcomer first sends
a hash of its number, then receives ours, and only then sends its own. What is left is
guessing, with a chance of one in 16 million per request. Requests are limited for all
newcomers together, because keys cost nothing: 130 in the ten minutes for which a
newcomer asks.

This is pure: time and chance are passed in, and what is kept is bounded.
"""

from __future__ import annotations

import hmac
from string import ascii_letters, digits
from typing import TYPE_CHECKING, Final, final

import msgspec

from shoal.model.ids import OwnerId
from shoal.protocol.admission import AdmissionHeard, AdmissionWanted
from shoal.protocol.admission_proofs import commitment
from shoal.protocol.messages import Refusal

if TYPE_CHECKING:
    from collections.abc import Callable

    from shoal.model.ids import NodeId, RequestId
    from shoal.protocol.messages import Welcome

    CodeOf = Callable[[NodeId, NodeId, bytes, bytes], str]
    """Returns the code of newcomer and host, by the numbers that both drew."""

CLAIM_LENGTH_MAX: Final = 80
_CLAIM: Final = frozenset(ascii_letters + digits + " .,:+/()")
REQUESTS_MAX: Final = 16
REQUESTS_PER_ADDRESS_MAX: Final = 4
NEW_BURST: Final = 8.0
NEW_PER_S: Final = 0.2
SILENT_S: Final = 60.0
"""A request that is not repeated for this long is forgotten."""

ASK_AGAIN_S: Final = 1.0
BEGIN_AGAIN: Final = "begin again: not known here"


class JoinRequest(msgspec.Struct):
    """One join request; shown to people once `code` is known."""

    node: NodeId
    origin: str
    commitment: bytes
    nonce: bytes  # ours
    has: str = ""  # what it says it lends
    code: str = ""
    heard_at: float = 0.0
    verdict: bool | None = None
    owner: OwnerId = OwnerId("")  # whose it will be; else an owner of its own


@final
class JoinRequests:
    """Keeps join requests until somebody decides."""

    def __init__(
        self, host: NodeId, nonce: Callable[[], bytes], code_of: CodeOf
    ) -> None:
        """Handle requests at this node; call `nonce` for each new one."""
        self._host = host
        self._nonce = nonce
        self._code_of = code_of
        self._asked: dict[NodeId, JoinRequest] = {}  # At most REQUESTS_MAX.
        self._allowance = NEW_BURST
        self._since = 0.0

    def pending(self, now: float) -> list[JoinRequest]:
        """Return the requests that wait for a decision."""
        self._forget(now)
        return [one for one in self._asked.values() if one.code and one.verdict is None]

    def decide(
        self,
        node: NodeId,
        now: float,
        *,
        accepted: bool,
        owner: OwnerId | None = None,
    ) -> bool:
        """Record a decision; return whether there is such a request."""
        for one in self.pending(now):
            if one.node == node:
                one.verdict, one.owner = accepted, owner or OwnerId("")
                return True
        return False

    def hear(
        self, node: NodeId, origin: str, wanted: AdmissionWanted, now: float
    ) -> AdmissionHeard | Refusal | JoinRequest:
        """Answer a request from somewhere; return it if it was accepted."""
        self._forget(now)
        if not wanted.nonce:
            return self._begin(node, origin, wanted, now)
        one = self._asked.get(node)
        shown = commitment(wanted.nonce, node, self._host)
        if one is None or not hmac.compare_digest(shown, one.commitment):
            return Refusal(request=wanted.request, reason=BEGIN_AGAIN)
        one.heard_at = now
        one.has = plain_claim(wanted.has)
        one.code = self._code_of(node, self._host, wanted.nonce, one.nonce)
        if one.verdict is None:
            why = "nobody has accepted it yet"
            return Refusal(request=wanted.request, reason=why, retry_in_s=ASK_AGAIN_S)
        if one.verdict:
            return one
        return Refusal(request=wanted.request, reason="somebody there said no")

    def _begin(
        self, node: NodeId, origin: str, wanted: AdmissionWanted, now: float
    ) -> AdmissionHeard | Refusal:
        known = self._asked.get(node)
        if known is not None and known.commitment == wanted.commitment:
            return AdmissionHeard(request=wanted.request, nonce=known.nonce)
        same = sum(one.origin == origin for one in self._asked.values())
        if known is None and same >= REQUESTS_PER_ADDRESS_MAX:
            return _later(wanted, f"{same} others ask from the same address")
        if known is None and len(self._asked) >= REQUESTS_MAX:
            return _later(wanted, f"{REQUESTS_MAX} others ask already")
        if not self._spend(now):
            return _later(wanted, "too many machines have asked recently")
        drawn = self._nonce()
        self._asked[node] = JoinRequest(
            node, origin, wanted.commitment, drawn, heard_at=now
        )
        return AdmissionHeard(request=wanted.request, nonce=drawn)

    def _spend(self, now: float) -> bool:
        grown = self._allowance + (now - self._since) * NEW_PER_S
        self._allowance, self._since = min(NEW_BURST, grown), now
        if self._allowance < 1.0:
            return False
        self._allowance -= 1.0
        return True

    def _forget(self, now: float) -> None:
        self._asked = {
            node: one
            for node, one in self._asked.items()
            if now - one.heard_at < SILENT_S
        }


@final
class JoinAttempt:
    """A newcomer's side of its request at one node, until that node decides.

    A node that restarted knows nothing of the request. Then it begins again, with
    another number: after the first was shown, somebody could choose theirs to fit.
    """

    def __init__(
        self, node: NodeId, host: NodeId, draw: Callable[[], bytes], has: str = ""
    ) -> None:
        """Ask `host` to let `node` in; call `draw` for each random number."""
        self._node = node
        self._host = host
        self._draw = draw
        self._has = has
        self.ours = draw()
        self.theirs = b""  # empty until the host has sent its number

    def wanted(self, request: RequestId) -> AdmissionWanted:
        """Return what to send next."""
        return AdmissionWanted(
            request=request,
            commitment=commitment(self.ours, self._node, self._host),
            nonce=self.ours if self.theirs else b"",
            has=self._has,
        )

    def hear(
        self, answer: Welcome | Refusal | AdmissionHeard
    ) -> Welcome | Refusal | None:
        """Take an answer; return it if it is final."""
        match answer:
            case AdmissionHeard():
                self.theirs = self.theirs or answer.nonce
                return None
            case Refusal(reason=reason) if reason == BEGIN_AGAIN:
                self.ours, self.theirs = self._draw(), b""
                return None
            case Refusal() if answer.retry_in_s is not None:
                return None
            case _:
                return answer


def plain_claim(text: str) -> str:
    """Return a stranger's description of itself, made unable to imitate a code.

    One line of bounded length; a code has dashes, and this has none.
    """
    kept = "".join(letter if letter in _CLAIM else " " for letter in text)
    return " ".join(kept.split())[:CLAIM_LENGTH_MAX]


def _later(wanted: AdmissionWanted, reason: str) -> Refusal:
    return Refusal(request=wanted.request, reason=reason, retry_in_s=ASK_AGAIN_S)
