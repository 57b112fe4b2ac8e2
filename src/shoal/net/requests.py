"""Who asks to be let in without an invitation, and the code that people compare.

Both machines show a code made of both keys and of a random number of each. Somebody
in between has two other connections, with keys of its own, and so two other codes. To
make them equal it would have to choose its number after it has seen ours. So the
newcomer first says a hash of its number, then hears ours, and only then says its own.
What is left is guessing, once in 16 million, and each guess is a new request: those are
limited for all together, since keys cost nothing: to 130 in the ten minutes for which
a newcomer asks.

This is pure: time and chance are passed in, and what is kept is bounded.
"""

from __future__ import annotations

import hashlib
import hmac
from string import ascii_letters, digits
from typing import TYPE_CHECKING, Final, final

import msgspec

from shoal.model.ids import OwnerId
from shoal.net.doors import ip_of, origin_of
from shoal.net.petname import ANIMALS, petname
from shoal.protocol.messages import Refusal
from shoal.protocol.newcomers import AdmissionHeard, AdmissionWanted

if TYPE_CHECKING:
    from collections.abc import Callable

    from shoal.model.ids import NodeId

NONCE_BYTES: Final = 16
CODE_NUMBERS: Final = 1_000
CODES: Final = len(ANIMALS) ** 2 * CODE_NUMBERS
CLAIM_LENGTH_MAX: Final = 80
_CLAIM: Final = frozenset(ascii_letters + digits + " .,:+/()")
REQUESTS_MAX: Final = 16
REQUESTS_PER_ADDRESS_MAX: Final = 4
NEW_BURST: Final = 8.0
NEW_PER_S: Final = 0.2
SILENT_S: Final = 60.0
"""Who does not ask again for so long is forgotten."""

ASK_AGAIN_S: Final = 1.0


class Asked(msgspec.Struct):
    """One who wants to be let in; shown to people once `code` is known."""

    node: NodeId
    origin: str
    commitment: bytes
    nonce: bytes  # ours
    has: str = ""  # what it says it lends
    code: str = ""
    heard_at: float = 0.0
    verdict: bool | None = None
    owner: OwnerId = OwnerId("")  # whose it will be; else an owner of its own

    @property
    def petname(self) -> str:
        """How people call it."""
        return petname(self.node)


@final
class Requests:
    """Keeps those who ask, until somebody decides."""

    def __init__(self, host: NodeId, nonce: Callable[[], bytes]) -> None:
        """Be asked at this node; draw `nonce` for each who comes."""
        self._host = host
        self._nonce = nonce
        self._asked: dict[NodeId, Asked] = {}  # At most REQUESTS_MAX.
        self._allowance = NEW_BURST
        self._since = 0.0

    def pending(self, now: float) -> list[Asked]:
        """Return those who wait for somebody to decide."""
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
        """Note what somebody decided; return whether that node waits."""
        for one in self.pending(now):
            if one.node == node:
                one.verdict, one.owner = accepted, owner or OwnerId("")
                return True
        return False

    def hear(
        self, node: NodeId, address: str, wanted: AdmissionWanted, now: float
    ) -> AdmissionHeard | Refusal | Asked:
        """Answer who asks from an address; return the request if it was accepted."""
        self._forget(now)
        if not wanted.nonce:
            return self._begin(node, address, wanted, now)
        one = self._asked.get(node)
        shown = commitment(wanted.nonce, node, self._host)
        if one is None or not hmac.compare_digest(shown, one.commitment):
            return Refusal(request=wanted.request, reason="begin again: not known here")
        one.heard_at = now
        one.has = plain_claim(wanted.has)
        one.code = code_of(node, self._host, wanted.nonce, one.nonce)
        if one.verdict is None:
            why = "nobody has accepted it yet"
            return Refusal(request=wanted.request, reason=why, retry_in_s=ASK_AGAIN_S)
        if one.verdict:
            return one
        return Refusal(request=wanted.request, reason="somebody there said no")

    def _begin(
        self, node: NodeId, address: str, wanted: AdmissionWanted, now: float
    ) -> AdmissionHeard | Refusal:
        known = self._asked.get(node)
        if known is not None and known.commitment == wanted.commitment:
            return AdmissionHeard(request=wanted.request, nonce=known.nonce)
        origin = origin_of(address)
        same = sum(one.origin == origin for one in self._asked.values())
        if known is None and same >= REQUESTS_PER_ADDRESS_MAX:
            return _later(wanted, f"{same} others ask from the same address")
        if known is None and len(self._asked) >= REQUESTS_MAX:
            return _later(wanted, f"{REQUESTS_MAX} others ask already")
        if not self._spend(now):
            return _later(wanted, "too many have asked of late")
        drawn = self._nonce()
        self._asked[node] = Asked(node, origin, wanted.commitment, drawn, heard_at=now)
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


def commitment(nonce: bytes, newcomer: NodeId, host: NodeId) -> bytes:
    """Return what binds a newcomer to its number before it has heard the other."""
    return _digest(b"shoal-commitment-v1", nonce, newcomer.encode(), host.encode())


def code_of(newcomer: NodeId, host: NodeId, theirs: bytes, ours: bytes) -> str:
    """Return the code, such as heron-otter-427; the newcomer's number comes first."""
    ends = (newcomer.encode(), host.encode())
    drawn = int.from_bytes(_digest(b"shoal-code-v2", *ends, theirs, ours)[:8])
    words, number = divmod(drawn % CODES, CODE_NUMBERS)
    first, second = divmod(words, len(ANIMALS))
    return f"{ANIMALS[first]}-{ANIMALS[second]}-{number:03}"


def typed_code(text: str) -> str:
    """Return a code as we write it, of what somebody typed from another screen."""
    return "-".join(text.lower().replace("-", " ").split())


def is_code(text: str, code: str) -> bool:
    """Whether somebody typed this code; without one nobody has."""
    typed = typed_code(text).encode()
    return bool(code) and hmac.compare_digest(typed, code.encode())


def plain_claim(text: str) -> str:
    """Return what a stranger says it lends, in letters that cannot make up a code.

    One line of bounded length; a code has dashes, and this has none.
    """
    kept = "".join(letter if letter in _CLAIM else " " for letter in text)
    return " ".join(kept.split())[:CLAIM_LENGTH_MAX]


def is_local(address: str) -> bool:
    """Whether an address belongs to the local network, as far as it tells."""
    found = ip_of(address)
    return found is not None and found.is_private


def _later(wanted: AdmissionWanted, reason: str) -> Refusal:
    return Refusal(request=wanted.request, reason=reason, retry_in_s=ASK_AGAIN_S)


def _digest(*parts: bytes) -> bytes:
    """Hash parts so that no two lists of them give the same bytes."""
    return hashlib.sha256(msgspec.msgpack.encode(parts)).digest()
