"""Grants of a simulated shoal. A node's name is enough to sign as that node.

Honest nodes sign only as themselves; the forger never signs as the root.
"""

from __future__ import annotations

import hashlib
from typing import Final

import msgspec

from shoal.core.membership.members import Members, grant_payload, revocation_payload
from shoal.model.ids import NodeId, OwnerId
from shoal.protocol.messages import Grant, Revocation, Role

SHOAL: Final = "reef"
ROOT: Final = NodeId("root")
WALL_AT_START_S: Final = 1_700_000_000.0
"""Wall time at which every world begins."""

DAY_S: Final = 86_400.0


def members() -> Members:
    """Return the verifier of grants of the simulated shoal."""
    return Members(SHOAL, ROOT, verify)


def grant(
    node: NodeId,
    roles: tuple[Role, ...],
    owner: OwnerId,
    *,
    top_priority: int = 100,
    quota_cpu_milli: int | None = None,
    valid_for_s: float = DAY_S,
    serial: int = 1,
) -> Grant:
    """Return a grant by the root, valid from the start of the world."""
    return sign_grant(
        Grant(
            node=node,
            shoal=SHOAL,
            roles=roles,
            owner=owner,
            top_priority=top_priority,
            quota_cpu_milli=quota_cpu_milli,
            serial=serial,
            expires_wall_s=WALL_AT_START_S + valid_for_s,
            signer=ROOT,
        ),
        ROOT,
    )


def sign_grant(unsigned: Grant, key: NodeId) -> Grant:
    """Return the grant signed with `key`'s key."""
    signature = sign(key, grant_payload(unsigned))
    return msgspec.structs.replace(unsigned, signature=signature)


def revocation(node: NodeId, serial: int) -> Revocation:
    """Return a revocation by the root."""
    unsigned = Revocation(node=node, shoal=SHOAL, serial=serial, signer=ROOT)
    signature = sign(ROOT, revocation_payload(unsigned))
    return msgspec.structs.replace(unsigned, signature=signature)


def verify(signer: NodeId, payload: bytes, signature: bytes) -> bool:
    """Return whether `signer` made this signature."""
    return signature == sign(signer, payload)


def sign(key: NodeId, payload: bytes) -> bytes:
    """Return a node's signature of a payload."""
    return hashlib.blake2b(key.encode() + b"\0" + payload, digest_size=16).digest()
