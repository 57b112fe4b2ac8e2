"""Facts and effects of admission: about newcomers, invitations and the disk."""

from __future__ import annotations

import msgspec

from shoal.core.admission.invitation_book import InvitationTerms, OpenInvitation
from shoal.model.ids import NodeId, OwnerId
from shoal.protocol.admission import AdmissionHeard, AdmissionWanted
from shoal.protocol.messages import Grant, Join, PeerAddress, Refusal, Welcome

# Facts.


class JoinAsked(msgspec.Struct, frozen=True, kw_only=True):
    """A newcomer without a grant asks on a connection of its own, which proved its id.

    It is answered by one `AnswerJoin` with this token.
    """

    token: int
    peer: NodeId
    message: Join | AdmissionWanted
    address: str = ""
    origin: str = ""  # what guesses are counted by: a host, or a network
    is_near: bool = False  # whether it is on the local network
    objection: str = ""  # why this node can sign nothing now; empty if it can


class Invited(msgspec.Struct, frozen=True):
    """A user of this node invites; answered by `AnswerInvite`."""

    token: int
    digest: bytes  # of the secret, which the machine need not know
    terms: InvitationTerms
    uses: int
    ttl_s: float


class InvitationWithdrawn(msgspec.Struct, frozen=True):
    """Nobody may join any more by the invitation with this digest."""

    digest: bytes


class JoinApproved(msgspec.Struct, frozen=True):
    """A person lets in a newcomer that waits; without an owner it is its own."""

    peer: NodeId
    owner: OwnerId = OwnerId("")


class JoinDeclined(msgspec.Struct, frozen=True):
    """A person does not let in a newcomer that waits."""

    peer: NodeId


class HandOverRequested(msgspec.Struct, frozen=True):
    """The node is about to leave; answered by `HandedOver`, soon in any case."""

    token: int


class AdmissionSigned(msgspec.Struct, frozen=True):
    """The host has signed what `SignAdmission` asked for, or could not."""

    case: int
    grant: Grant | None
    reason: str = ""
    peers: tuple[PeerAddress, ...] = ()  # other members that a newcomer can dial


class InvitationsKept(msgspec.Struct, frozen=True):
    """What `KeepInvitations` asked for is on disk, or could not be written."""

    case: int
    trouble: str = ""


# Effects.


class AnswerJoin(msgspec.Struct, frozen=True):
    """Answer a newcomer on its own connection."""

    token: int
    answer: Welcome | Refusal | AdmissionHeard


class SignAdmission(msgspec.Struct, frozen=True):
    """Sign a grant with these rights; answered by `AdmissionSigned`."""

    case: int
    peer: NodeId
    terms: InvitationTerms


class KeepInvitations(msgspec.Struct, frozen=True):
    """Write all invitations to disk; answered by `InvitationsKept`."""

    case: int
    invitations: tuple[OpenInvitation, ...]


class AnswerInvite(msgspec.Struct, frozen=True):
    """Tell a user that an invitation is good from now on, or why there is none."""

    token: int
    refused: str = ""


class HandedOver(msgspec.Struct, frozen=True):
    """Tell the host that the invitations are given away, as far as that goes."""

    token: int


class AuditJoin(msgspec.Struct, frozen=True):
    """Note in the audit log that a newcomer was let in, or was not, and why."""

    peer: NodeId
    address: str
    grant: Grant | None
    because: str


class AnnounceRequest(msgspec.Struct, frozen=True):
    """Tell the user that a newcomer without an invitation waits for a decision."""

    peer: NodeId


AdmissionEvent = (
    JoinAsked
    | Invited
    | InvitationWithdrawn
    | JoinApproved
    | JoinDeclined
    | HandOverRequested
    | AdmissionSigned
    | InvitationsKept
)
AdmissionEffect = (
    AnswerJoin
    | SignAdmission
    | KeepInvitations
    | AnswerInvite
    | HandedOver
    | AuditJoin
    | AnnounceRequest
)
