"""A private key that is locked with a passphrase, as text in a file.

The passphrase goes through scrypt, which takes 64 MiB and some tenths of a second for
each guess, and the key is sealed with ChaCha20-Poly1305. What is open in the file is
bound to it, so a file that was changed opens no more.
"""

from __future__ import annotations

import base64
import binascii
import os
from typing import Final

import msgspec
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.kdf.scrypt import Scrypt

from shoal.errors import NotAllowedError, ShoalError, UsageError

BEGIN: Final = b"-----BEGIN SHOAL LOCKED KEY-----\n"
END: Final = b"-----END SHOAL LOCKED KEY-----\n"
PASSPHRASE_LENGTH_MIN: Final = 8
COST: Final = 1 << 16
COST_MAX: Final = 1 << 18
_KEY_BYTES: Final = 32
_SALT_BYTES: Final = 16
_NONCE_BYTES: Final = 12
_LINE: Final = 64


class _Box(msgspec.Struct, frozen=True, array_like=True):
    """What is in the file."""

    version: int
    cost: int
    salt: bytes
    nonce: bytes
    sealed: bytes


def is_locked(data: bytes) -> bool:
    """Whether this is a key that needs a passphrase."""
    return data.startswith(BEGIN)


def lock(key: bytes, passphrase: str) -> bytes:
    """Return a key as text that only the passphrase opens."""
    if len(passphrase) < PASSPHRASE_LENGTH_MIN:
        raise UsageError(
            "the passphrase is too short",
            because=f"{len(passphrase)} letters < {PASSPHRASE_LENGTH_MIN}",
            hint="take some words that nobody would guess",
        )
    salt, nonce = os.urandom(_SALT_BYTES), os.urandom(_NONCE_BYTES)
    cipher = ChaCha20Poly1305(_derived(passphrase, salt, COST))
    sealed = cipher.encrypt(nonce, key, _bound(1, COST, salt))
    box = msgspec.msgpack.encode(_Box(1, COST, salt, nonce, sealed))
    text = base64.b64encode(box)
    lines = [text[at : at + _LINE] for at in range(0, len(text), _LINE)]
    return BEGIN + b"\n".join(lines) + b"\n" + END


def unlock(data: bytes, passphrase: str) -> bytes:
    """Return the key; raise `NotAllowedError` if that is not its passphrase."""
    box = _read(data)
    cipher = ChaCha20Poly1305(_derived(passphrase, box.salt, box.cost))
    try:
        return cipher.decrypt(
            box.nonce, box.sealed, _bound(box.version, box.cost, box.salt)
        )
    except InvalidTag:
        raise NotAllowedError(
            "the key stays locked",
            because="that is not its passphrase, or the file was changed",
            hint="type it again; without it the key is lost",
        ) from None


def _read(data: bytes) -> _Box:
    body = data.removeprefix(BEGIN).partition(END)[0]
    try:
        raw = base64.b64decode(body.replace(b"\n", b""), validate=True)
        box = msgspec.msgpack.decode(raw, type=_Box)
    except (binascii.Error, msgspec.MsgspecError):
        raise _unreadable("it is damaged") from None
    if box.version != 1:
        raise _unreadable("a later version of shoal locked it")
    is_power = box.cost > 1 and not box.cost & (box.cost - 1)
    if not (is_power and box.cost <= COST_MAX and len(box.nonce) == _NONCE_BYTES):
        raise _unreadable("its figures make no sense")
    return box


def _derived(passphrase: str, salt: bytes, cost: int) -> bytes:
    scrypt = Scrypt(salt=salt, length=_KEY_BYTES, n=cost, r=8, p=1)
    return scrypt.derive(passphrase.encode())


def _bound(version: int, cost: int, salt: bytes) -> bytes:
    return b"shoal-locked-key\0" + msgspec.msgpack.encode((version, cost, salt))


def _unreadable(because: str) -> ShoalError:
    return ShoalError(
        "the locked key cannot be read", because=because, hint="restore it from a copy"
    )
