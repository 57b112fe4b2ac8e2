"""Invitations: a text that lets its holder join, and the book of those given out.

The text `shoal1-4MZWI3D-BONSGYC-...` says where to dial, which shoal that is, what
key must answer there, and a secret that the answerer knows. So nobody who listens
in between learns or changes anything. Its groups of seven letters end in a check
letter each, which says which group has a typo.

The book is pure: time is passed in, and what it knows of a secret is a hash.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
from typing import TYPE_CHECKING, Annotated, Final, final

import msgspec
from msgspec import Meta

from shoal.errors import UsageError
from shoal.model.bounds import Count, Name
from shoal.model.ids import NodeId, OwnerId
from shoal.net.identity import public_key
from shoal.protocol.limits import Addresses
from shoal.protocol.messages import Grant, Role

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

PREFIX: Final = "shoal1"
GROUP_LENGTH: Final = 7
SECRET_BYTES: Final = 16
PRINT_BYTES: Final = 16
INVITATIONS_MAX: Final = 256
USES_MAX: Final = 1_000
TTL_MAX_S: Final = 30 * 86_400.0
TOKEN_LENGTH_MAX: Final = 4_096

_SUM_BYTES: Final = 3
UNKNOWN: Final = "no such invitation"
_LETTERS: Final = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"
_CODES: Final = {letter: code for code, letter in enumerate(_LETTERS)}
_MISREAD: Final = str.maketrans("018", "OIB")

KeyPrint = Annotated[bytes, Meta(min_length=PRINT_BYTES, max_length=PRINT_BYTES)]
InvitationSecret = Annotated[
    bytes, Meta(min_length=SECRET_BYTES, max_length=SECRET_BYTES)
]


class Invitation(msgspec.Struct, frozen=True, array_like=True):
    """What is in the text of an invitation. Whoever has it can join, once or so."""

    shoal: Name
    key_print: KeyPrint  # of the node that lets in
    secret: InvitationSecret
    expires_wall_s: Count  # only so that a newcomer can be told; the book decides
    addresses: Addresses  # where that node, or a gate to it, can be dialled

    def __repr__(self) -> str:
        return f"Invitation(shoal={self.shoal!r}, addresses={self.addresses!r})"


class Terms(msgspec.Struct, frozen=True, kw_only=True):
    """What whoever comes with an invitation is granted."""

    roles: tuple[Role, ...]
    owner: OwnerId
    top_priority: int = 0
    quota_gpus: int | None = None
    quota_cpu_milli: int | None = None
    valid_for_s: float = 365 * 86_400.0


def new_secret() -> bytes:
    """Return a secret that nobody can guess."""
    return secrets.token_bytes(SECRET_BYTES)


def key_print(node: NodeId) -> bytes:
    """Return what an invitation says of the key of the node that lets in."""
    digest = hashlib.sha256(b"shoal-key-print-v1\0" + public_key(node)).digest()
    return digest[:PRINT_BYTES]


def proof_of(secret: bytes, what: bytes) -> bytes:
    """Return what shows, to who knows the secret or its hash, that we know it.

    Whoever else sees it learns nothing that would serve for anything but `what`.
    """
    return proof_by_hash(_digest(secret), what)


def joining(node: NodeId) -> bytes:
    """Return what a newcomer proves: that it, and nobody else, wants to join."""
    return b"join\0" + node.encode()


def welcoming(grant: Grant) -> bytes:
    """Return what whoever lets in proves: that this is the grant it gave."""
    return b"welcome\0" + grant.signature


# The text.


def encode(invitation: Invitation) -> str:
    """Return the text of an invitation."""
    data = msgspec.msgpack.encode(invitation)
    data += hashlib.sha256(data).digest()[:_SUM_BYTES]
    letters = base64.b32encode(data).decode().rstrip("=")
    size = GROUP_LENGTH - 1
    groups = [letters[at : at + size] for at in range(0, len(letters), size)]
    checked = [group + _check(group, n) for n, group in enumerate(groups, start=1)]
    return "-".join((PREFIX, *checked))


def decode(text: str) -> Invitation:
    """Return the invitation in a text; raise `UsageError` that says where it is wrong.

    Lower case, spaces, missing dashes and 0, 1, 8 for O, I, B are all understood.
    """
    letters = "".join(_checked(text))
    try:
        data = base64.b32decode(letters + "=" * (-len(letters) % 8))
    except ValueError:
        raise _bad("it ends in the middle") from None
    body, check = data[:-_SUM_BYTES], data[-_SUM_BYTES:]
    if hashlib.sha256(body).digest()[:_SUM_BYTES] != check:
        raise _bad("something is missing at its end, or several letters are wrong")
    try:
        return msgspec.msgpack.decode(body, type=Invitation)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        raise _bad("a later version of shoal made it") from None


def _checked(text: str) -> list[str]:
    """Return the groups without their check letters, each of them right."""
    head, _, rest = "".join(text.split()).upper().partition("-")
    if head != PREFIX.upper():
        raise _bad(f"it does not begin with '{PREFIX}-'")
    if len(rest) > TOKEN_LENGTH_MAX:
        raise _bad(f"{len(rest)} letters > {TOKEN_LENGTH_MAX}")
    if not rest:
        raise _bad(f"nothing follows '{PREFIX}-'")
    groups = _groups(rest.translate(_MISREAD))
    for number, group in enumerate(groups, start=1):
        where = f"group {number} of {len(groups)}, '{group}',"
        if number < len(groups) and len(group) != GROUP_LENGTH:
            raise _bad(f"{where} has {len(group)} letters, not {GROUP_LENGTH}")
        if not 2 <= len(group) <= GROUP_LENGTH:
            raise _bad(f"{where} has {len(group)} letters, not 2 to {GROUP_LENGTH}")
        if foreign := [letter for letter in group if letter not in _CODES]:
            raise _bad(f"{where} has '{foreign[0]}' in it, which no token has")
        if _check(group[:-1], number) != group[-1]:
            raise _bad(f"{where} has a typo, or is out of place")
    return [group[:-1] for group in groups]


def _groups(letters: str) -> list[str]:
    if "-" in letters:
        return letters.strip("-").split("-")
    size = GROUP_LENGTH
    return [letters[at : at + size] for at in range(0, len(letters), size)]


def _check(group: str, number: int) -> str:
    """Return the check letter of a group at its place.

    A sum in the field of 32 elements, where every place of a letter has a weight of
    its own: one wrong letter, or any two that are swapped, always show.
    """
    total = number % len(_LETTERS)
    for letter in group:
        total ^= _CODES[letter]
        total = (total << 1) ^ (0x25 if total & 16 else 0)
    return _LETTERS[total]


def _bad(because: str) -> UsageError:
    return UsageError(
        "that is no invitation",
        because=because,
        hint="copy it whole, or ask for a new one: `shoal invite` on a member",
    )


# The book.


class Open(msgspec.Struct):
    """One invitation that was given out; forgotten some time after it ends."""

    digest: bytes
    terms: Terms
    uses: int
    ends_at: float
    joined: list[NodeId]  # At most `uses`.
    given_to: NodeId = NodeId("")  # who redeems it instead of us

    @property
    def left(self) -> int:
        """How many may still join by it."""
        return self.uses - len(self.joined)


@final
class Book:
    """The invitations that a node redeems: bounded, and each for so many nodes."""

    def __init__(self, kept: Iterable[Open] = ()) -> None:
        """Begin with what an earlier life of the node wrote down."""
        self._open = list(kept)

    def __len__(self) -> int:
        return len(self._open)

    def __iter__(self) -> Iterator[Open]:
        return iter(self._open)

    def add(
        self, secret: bytes, terms: Terms, *, uses: int, ttl_s: float, now: float
    ) -> None:
        """Let so many nodes that know this secret join, until then.

        Raises `UsageError` if that is too much, or too many invitations are open.
        """
        self.take(Open(_digest(secret), terms, uses, now + ttl_s, []), now)

    def take(self, invitation: Open, now: float) -> None:
        """Redeem one that another node gave out; one that is known stays as it is."""
        _check_range("uses", invitation.uses, USES_MAX)
        _check_range("seconds", invitation.ends_at - now, TTL_MAX_S)
        if any(one.digest == invitation.digest for one in self._open):
            return
        if len(self._open) >= INVITATIONS_MAX:
            self._open = [one for one in self._open if one.ends_at > now]
        if len(self._open) >= INVITATIONS_MAX:
            raise UsageError(
                "no room for another invitation",
                because=f"{INVITATIONS_MAX} are open",
                hint="withdraw some, or wait until they expire",
            )
        self._open.append(invitation)

    def redeem(self, secret: bytes, node: NodeId, now: float) -> Terms | str:
        """Return what `node` is granted for this secret, or why nothing.

        Who asks again, because the answer got lost, gets the same and uses up
        nothing.
        """
        found = self.find(secret)
        return UNKNOWN if found is None else self._redeem(found, node, now)

    def _redeem(self, found: Open, node: NodeId, now: float) -> Terms | str:
        if now >= found.ends_at:
            return f"the invitation expired {now - found.ends_at:.0f} s ago"
        if node not in found.joined:
            if len(found.joined) >= found.uses:
                return f"the invitation is used up: {found.uses} of {found.uses}"
            found.joined.append(node)
        return found.terms

    def redeem_by_proof(
        self, proof: bytes, node: NodeId, now: float
    ) -> tuple[Terms, bytes] | str:
        """Do the same for `node` at a gate, which showed a proof of the secret.

        Returns also the hash of the secret, by which the answer is proved.
        """
        one = self.proved(proof, node)
        if one is None:
            return UNKNOWN
        terms = self._redeem(one, node, now)
        return terms if isinstance(terms, str) else (terms, one.digest)

    def proved(self, proof: bytes, node: NodeId) -> Open | None:
        """Return the invitation whose secret this node has shown to know."""
        for one in self._open:
            if hmac.compare_digest(proof_by_hash(one.digest, joining(node)), proof):
                return one
        return None

    def withdraw(self, secret: bytes) -> bool:
        """End an invitation; return whether there was one."""
        found = self.find(secret)
        if found is None:
            return False
        self._open.remove(found)
        return True

    def find(self, secret: bytes) -> Open | None:
        """Return the invitation of a secret.

        All are looked at, each in constant time: how long it takes tells nothing.
        """
        digest, found = _digest(secret), None
        for one in self._open:
            if hmac.compare_digest(one.digest, digest):
                found = one
        return found


def proof_by_hash(digest: bytes, what: bytes) -> bytes:
    """Return the same as `proof_of`, by the hash of the secret."""
    return hmac.digest(digest, b"shoal-proof-v1\0" + what, "sha256")


def _digest(secret: bytes) -> bytes:
    return hashlib.sha256(b"shoal-invitation-v1\0" + secret).digest()


def _check_range(what: str, value: float, most: float) -> None:
    if not 0 < value <= most:
        raise UsageError(
            f"an invitation cannot be for {value:g} {what}",
            because=f"more than 0 and at most {most:,.0f} are possible",
            hint="write it like --uses 3 --ttl 2d",
        )
