"""Invitations: a text that lets its holder join.

The text `shoal1-4MZWI3D-BONSGYC-...` contains addresses, the name of the shoal, the key
that must answer, and a secret shared with the inviting node, so an eavesdropper learns
and changes nothing. Each group of seven letters ends in a check letter, which locates
a typo.
"""

from __future__ import annotations

import base64
import hashlib
import secrets
from typing import TYPE_CHECKING, Annotated, Final

import msgspec
from msgspec import Meta

from shoal.errors import UsageError
from shoal.model.text.bounds import Count, Name
from shoal.net.identity.identity import public_key
from shoal.protocol.limits import Addresses

if TYPE_CHECKING:
    from shoal.model.ids import NodeId

PREFIX: Final = "shoal1"
GROUP_LENGTH: Final = 7
SECRET_BYTES: Final = 16
PRINT_BYTES: Final = 16
TOKEN_LENGTH_MAX: Final = 4_096

_SUM_BYTES: Final = 3
_LETTERS: Final = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"
_CODES: Final = {letter: code for code, letter in enumerate(_LETTERS)}
_MISREAD: Final = str.maketrans("018", "OIB")

KeyPrint = Annotated[bytes, Meta(min_length=PRINT_BYTES, max_length=PRINT_BYTES)]
InvitationSecret = Annotated[
    bytes, Meta(min_length=SECRET_BYTES, max_length=SECRET_BYTES)
]


class Invitation(msgspec.Struct, frozen=True, array_like=True):
    """The contents of an invitation. Its holder can join."""

    shoal: Name
    key_print: KeyPrint  # of the node that lets in
    secret: InvitationSecret
    expires_wall_s: Count  # only so that a newcomer can be told; the book decides
    addresses: Addresses  # where that node, or a gate to it, can be dialled

    def __repr__(self) -> str:
        return f"Invitation(shoal={self.shoal!r}, addresses={self.addresses!r})"


def new_secret() -> bytes:
    """Return a random secret."""
    return secrets.token_bytes(SECRET_BYTES)


def key_print(node: NodeId) -> bytes:
    """Return the fingerprint of the inviting node's key."""
    digest = hashlib.sha256(b"shoal-key-print-v1\0" + public_key(node)).digest()
    return digest[:PRINT_BYTES]


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
    """Parse an invitation; raise `UsageError` that locates the error.

    Lower case, spaces, missing dashes and 0, 1, 8 for O, I, B are accepted.
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
    """Check the groups and return them without their check letters."""
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
        "that is not an invitation",
        because=because,
        hint="copy it whole, or ask for a new one: `shoal invite` on a member",
    )
