"""Signatures for tests: whoever has the name of a node can sign as that node."""

import hashlib

import msgspec

from shoal.core.membership.members import grant_payload, revocation_payload
from shoal.model.ids import NodeId, OwnerId
from shoal.protocol.messages import Grant, Revocation

SHOAL = "reef"
ROOT = NodeId("root")
EXPIRES_WALL_S = 1_000.0


def sign(signer: NodeId, payload: bytes) -> bytes:
    """Sign `payload` in the name of `signer`."""
    return hashlib.sha256(signer.encode() + b"\0" + payload).digest()


def verify(signer: NodeId, payload: bytes, signature: bytes) -> bool:
    """Say whether `sign` made this signature."""
    return signature == sign(signer, payload)


def signed(grant: Grant) -> Grant:
    """Return `grant` with the signature of whom it names as signer."""
    signature = sign(grant.signer, grant_payload(grant))
    return msgspec.structs.replace(grant, signature=signature)


def granted(node: str, above: Grant | None = None, **fields: object) -> Grant:
    """Return a grant for `node` by the root, or by the node that `above` is for.

    It gives all that the signer has, other than what `fields` say.
    """
    base = above or Grant(
        node=ROOT,
        shoal=SHOAL,
        roles=("scheduler", "worker", "gate", "admin"),
        owner=OwnerId("ann"),
        top_priority=50,
        expires_wall_s=EXPIRES_WALL_S,
    )
    grant = msgspec.structs.replace(
        base, node=NodeId(node), signer=base.node, delegation=above
    )
    return signed(msgspec.structs.replace(grant, **fields))


def revoked(node: str, above: Grant | None = None, *, serial: int = 0) -> Revocation:
    """Return a revocation by the root, or by the node that `above` is for."""
    revocation = Revocation(
        node=NodeId(node),
        shoal=SHOAL,
        serial=serial,
        signer=above.node if above else ROOT,
        delegation=above,
    )
    signature = sign(revocation.signer, revocation_payload(revocation))
    return msgspec.structs.replace(revocation, signature=signature)
