"""Encrypt data so that only one node can open it, and only for one purpose.

A node's id contains its Ed25519 public key, which is converted to X25519. The sender
generates an ephemeral key and agrees with it on a shared secret; HKDF derives the key
of ChaCha20-Poly1305 from that. The purpose is authenticated as associated data, so
data sealed for one attempt does not open for another.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import (
    X25519PrivateKey,
    X25519PublicKey,
)
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from shoal.net.identity.identity import public_key

if TYPE_CHECKING:
    from shoal.model.ids import Attempt, JobId, NodeId
    from shoal.net.identity.identity import Identity

KEY_BYTES: Final = 32
_INFO: Final = b"shoal sealed 1"
_NONCE: Final = bytes(12)  # Safe: each key encrypts once.
_PRIME: Final = 2**255 - 19


def secret_purpose(user: Attempt | JobId, name: str) -> str:
    """Return the purpose that binds a sealed secret to one attempt, or to one job."""
    return f"secret {name} of {user}"


def seal(node: NodeId, purpose: str, data: bytes) -> bytes:
    """Return `data` sealed to a node; raise `UsageError` if its id is invalid."""
    receiver = _montgomery(public_key(node))
    once = X25519PrivateKey.generate()
    shared = once.exchange(X25519PublicKey.from_public_bytes(receiver))
    own = once.public_key().public_bytes_raw()
    return own + _cipher(shared, own, receiver).encrypt(_NONCE, data, purpose.encode())


def unseal(identity: Identity, purpose: str, sealed: bytes) -> bytes | None:
    """Return the opened data; None if not sealed to this node and purpose."""
    if len(sealed) < KEY_BYTES:
        return None
    own, data = sealed[:KEY_BYTES], sealed[KEY_BYTES:]
    seed = hashlib.sha512(identity.key.private_bytes_raw()).digest()[:KEY_BYTES]
    receiver = X25519PrivateKey.from_private_bytes(seed)
    try:
        shared = receiver.exchange(X25519PublicKey.from_public_bytes(own))
        known = receiver.public_key().public_bytes_raw()
        cipher = _cipher(shared, own, known)
        return cipher.decrypt(_NONCE, data, purpose.encode())
    except (InvalidTag, ValueError):
        return None


def _cipher(shared: bytes, once: bytes, receiver: bytes) -> ChaCha20Poly1305:
    hkdf = HKDF(SHA256(), KEY_BYTES, salt=once + receiver, info=_INFO)
    return ChaCha20Poly1305(hkdf.derive(shared))


def _montgomery(edwards: bytes) -> bytes:
    """Return the X25519 form of an Ed25519 public key: u = (1 + y) / (1 - y)."""
    y = int.from_bytes(edwards, "little") & ((1 << 255) - 1)
    u = (1 + y) * pow(1 - y, -1, _PRIME) % _PRIME
    return u.to_bytes(KEY_BYTES, "little")
