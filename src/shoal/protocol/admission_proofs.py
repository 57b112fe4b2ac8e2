"""Proofs between newcomers and the nodes that admit them: hashes of what they know."""

from __future__ import annotations

import hashlib
import hmac
from typing import TYPE_CHECKING, Final

import msgspec

if TYPE_CHECKING:
    from shoal.model.ids import NodeId
    from shoal.protocol.messages import Grant

NONCE_BYTES: Final = 16


def secret_digest(secret: bytes) -> bytes:
    """Return what a node keeps of an invitation's secret: it opens nothing."""
    return hashlib.sha256(b"shoal-invitation-v1\0" + secret).digest()


def proof_of(secret: bytes, what: bytes) -> bytes:
    """Return a proof, for a holder of the secret or its hash, that we know it.

    Others who see the proof can use it for nothing but `what`.
    """
    return proof_by_digest(secret_digest(secret), what)


def proof_by_digest(digest: bytes, what: bytes) -> bytes:
    """Return the same as `proof_of`, by the hash of the secret."""
    return hmac.digest(digest, b"shoal-proof-v1\0" + what, "sha256")


def joining(node: NodeId) -> bytes:
    """Return what a newcomer proves: its own wish to join."""
    return b"join\0" + node.encode()


def welcoming(grant: Grant) -> bytes:
    """Return what the inviting node proves: the grant it gave."""
    return b"welcome\0" + grant.signature


def commitment(nonce: bytes, newcomer: NodeId, host: NodeId) -> bytes:
    """Return the hash that commits a newcomer to its number."""
    return digest_of(b"shoal-commitment-v1", nonce, newcomer.encode(), host.encode())


def digest_of(*parts: bytes) -> bytes:
    """Hash parts unambiguously: different lists give different bytes."""
    return hashlib.sha256(msgspec.msgpack.encode(parts)).digest()
