"""Members of a shoal with real keys, for tests of the network."""

import time

import msgspec

from shoal.core.membership.members import (
    Admission,
    Members,
    grant_payload,
    revocation_payload,
)
from shoal.model.ids import NodeId, OwnerId
from shoal.net.identity.identity import Identity, verify
from shoal.protocol.messages import Grant, Revocation

SHOAL = "reef"
YEAR_S = 365 * 86_400.0


def identity(number: int) -> Identity:
    """Return the same identity for the same number, in every run."""
    return Identity.from_seed(number.to_bytes(32, "big"))


ROOT = identity(0)


def granted(node: NodeId, signer: Identity = ROOT, **fields: object) -> Grant:
    """Return a grant for `node`, signed; `fields` differ from that of any member."""
    grant = Grant(
        node=node,
        shoal=SHOAL,
        roles=("scheduler", "worker", "gate"),
        owner=OwnerId("ann"),
        expires_wall_s=float(round(time.time() + YEAR_S)),
        signer=signer.node,
    )
    grant = msgspec.structs.replace(grant, **fields)
    signature = signer.sign(grant_payload(grant))
    return msgspec.structs.replace(grant, signature=signature)


def revoked(node: NodeId, serial: int = 0) -> Revocation:
    """Return a revocation by the root."""
    revocation = Revocation(node=node, shoal=SHOAL, serial=serial, signer=ROOT.node)
    signature = ROOT.sign(revocation_payload(revocation))
    return msgspec.structs.replace(revocation, signature=signature)


class Gatekeeper:
    """Says who is a member, as a host does with the machines of the core."""

    def __init__(self) -> None:
        self.members = Members(SHOAL, ROOT.node, verify)

    def verify(self, peer: NodeId, grant: Grant | None) -> Admission | str:
        """Return what a node with this grant may do now, or why nothing."""
        return self.members.admit(peer, grant, time.time())

    def __call__(self, peer: NodeId, grant: Grant | None) -> str | None:
        admission = self.verify(peer, grant)
        return admission if isinstance(admission, str) else None
