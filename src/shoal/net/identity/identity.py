"""The identity of a node: an Ed25519 key and the id derived from it.

A node id is the libp2p peer id of the key as text, `12D3KooW...`. The public key is
inside the id, so a node that knows an id can verify what that node signed. The private
key is in one file that nobody but its owner may read.
"""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path
from typing import Final, final

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import (
    Ed25519PrivateKey,
    Ed25519PublicKey,
)
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from shoal.errors import KeyLockedError, ShoalError, UsageError
from shoal.model.ids import NodeId
from shoal.net.identity import locked_key

KEY_BYTES: Final = 32
KEY_FILE_BYTES_MAX: Final = 4_096

# An identity multihash (0x00) of 36 bytes, which are protobuf: the key's type is
# Ed25519 (field 1, value 1), and 32 bytes of key follow (field 2).
_PREFIX: Final = bytes.fromhex("0024080112" + "20")
_DIGITS: Final = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"
_VALUES: Final = {digit: value for value, digit in enumerate(_DIGITS)}
_ID_LENGTH: Final = 52


def node_id(public_key: bytes) -> NodeId:
    """Return the id of the node with this raw Ed25519 public key."""
    assert len(public_key) == KEY_BYTES
    number = int.from_bytes(_PREFIX + public_key, "big")
    digits: list[str] = []
    while number:
        number, value = divmod(number, len(_DIGITS))
        digits.append(_DIGITS[value])
    # The leading zero byte of the multihash is written as one digit of value zero.
    return NodeId(_DIGITS[0] + "".join(reversed(digits)))


def public_key(node: NodeId) -> bytes:
    """Return the raw public key that is inside an id; raise `UsageError` if none is."""
    if len(node) != _ID_LENGTH or not node.isascii():
        raise _no_id(node, f"{len(node)} letters instead of {_ID_LENGTH}")
    number = 0
    for place, digit in enumerate(node, start=1):
        value = _VALUES.get(digit)
        if value is None:
            raise _no_id(node, f"letter {place} is '{digit}', which base58 has not")
        number = number * len(_DIGITS) + value
    data = number.to_bytes(_ID_LENGTH, "big")[-len(_PREFIX) - KEY_BYTES :]
    key = data[len(_PREFIX) :]
    if node_id(key) != node:
        raise _no_id(node, "it is not that of an Ed25519 key")
    return key


def verify(node: NodeId, payload: bytes, signature: bytes) -> bool:
    """Return whether this node signed this payload. Never raises."""
    try:
        Ed25519PublicKey.from_public_bytes(public_key(node)).verify(signature, payload)
    except (InvalidSignature, UsageError, ValueError, UnsupportedAlgorithm):
        return False
    return True


@final
class Identity:
    """The private key of this node, which no `repr` shows."""

    def __init__(self, key: Ed25519PrivateKey) -> None:
        self._key = key
        self.node: Final = node_id(key.public_key().public_bytes_raw())

    @classmethod
    def generate(cls) -> Identity:
        """Create an identity that is not on disk."""
        return cls(Ed25519PrivateKey.generate())

    @classmethod
    def from_seed(cls, seed: bytes) -> Identity:
        """Derive an identity from 32 secret bytes."""
        return cls(Ed25519PrivateKey.from_private_bytes(seed))

    @classmethod
    def load(cls, path: Path, passphrase: str | None = None) -> Identity:
        """Read the key from its file, which only its owner may read.

        Raises `ShoalError` if others may, or if there is no such key in it, and
        `KeyLockedError` if it is locked and no passphrase is given.
        """
        data = _read_private(path)
        if not locked_key.is_locked(data):
            return cls(_parsed(path, data))
        if passphrase is None:
            raise KeyLockedError(
                f"the key in {path} is locked",
                because="it was locked with a passphrase",
                hint="shoal key unlock opens it",
            )
        return cls(_parsed(path, locked_key.unlock(data, passphrase)))

    @classmethod
    def load_or_create(cls, path: Path) -> Identity:
        """Read the key from its file, or create both.

        Of several processes that do this at once, all get the same identity, and
        none ever reads half a key.
        """
        with contextlib.suppress(FileNotFoundError):
            return cls.load(path)
        identity = cls.generate()
        if not _create(path, identity.pem()):
            return cls.load(path)
        return identity

    @classmethod
    def create_locked(cls, path: Path, passphrase: str) -> Identity:
        """Create a key in a locked file; raise if the file exists."""
        identity = cls.generate()
        if not _create(path, locked_key.lock(identity.pem(), passphrase)):
            raise UsageError(
                f"there is a file {path} already",
                because="a key is never replaced",
                hint="name another file, or move that one away",
            )
        return identity

    @property
    def key(self) -> Ed25519PrivateKey:
        """The private key itself, for certificates and for libp2p."""
        return self._key

    def sign(self, payload: bytes) -> bytes:
        """Return the signature of this node under `payload`."""
        return self._key.sign(payload)

    def pem(self) -> bytes:
        """Return the private key as it is in the file: PKCS 8, not encrypted."""
        return self._key.private_bytes(
            Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()
        )

    def __repr__(self) -> str:
        return f"Identity({self.node})"


def _read_private(path: Path) -> bytes:
    if path.is_dir():  # The error of `open` would name a number.
        raise ShoalError(
            f"no key of a node in {path}",
            because="it is a folder",
            hint="move it away, and a new identity is made",
        )
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    with open(descriptor, "rb") as file:  # noqa: PTH123 - the mode of what is open
        found = os.fstat(descriptor)
        mode = stat.S_IMODE(found.st_mode)
        if found.st_uid != os.geteuid():
            raise ShoalError(
                f"will not use the key in {path}",
                because=f"it belongs to user {found.st_uid}, and not to {os.geteuid()}",
                hint="start the node as its owner; or copy the key, and chown the copy",
            )
        if mode & 0o077:
            raise ShoalError(
                f"will not use the key in {path}",
                because=f"others may read it: its mode is {mode:04o}, not 0600",
                hint=f"chmod 600 {path}; if strangers had access, make a new key",
            )
        return file.read(KEY_FILE_BYTES_MAX)


def _parsed(path: Path, data: bytes) -> Ed25519PrivateKey:
    try:
        key = load_pem_private_key(data, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        key = None
    if not isinstance(key, Ed25519PrivateKey):
        raise ShoalError(
            f"no key of a node in {path}",
            because="it holds no unencrypted Ed25519 key in PEM form",
            hint="restore the file; or move it away, and a new identity is made",
        )
    return key


def _create(path: Path, data: bytes) -> bool:
    """Write a new file all at once; return False if there is one by now."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}.{os.urandom(4).hex()}")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    try:
        with open(os.open(draft, flags, 0o600), "wb") as file:  # noqa: PTH123
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.link(draft, path)  # Unlike a rename, it never replaces another's key.
    except FileExistsError:
        return False
    finally:
        draft.unlink(missing_ok=True)
    _sync_folder(path.parent)
    return True


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _no_id(text: str, because: str) -> UsageError:
    return UsageError(
        f"'{text[:80]}' is not a node id",
        because=because,
        hint="an id begins with 12D3KooW; `shoal nodes` lists the known ones",
    )
