"""Admission messages besides `Join`: requests without an invitation, and hand-overs."""

from typing import Annotated

from msgspec import Meta

from shoal.model.ids import NodeId, OwnerId, RequestId
from shoal.model.text.bounds import Amount, Count, Name, Seconds, Text
from shoal.protocol.limits import ROLES_MAX, USES_MAX, Priority, Secret
from shoal.protocol.message import Message


class AdmissionWanted(Message, frozen=True, tag="admission-wanted"):
    """Let me in: I have no invitation, but a person at your screen may say yes.

    It is sent twice: first with the hash of a random number, then, after the receiver
    has sent its own number, with the number itself. Both sides derive from the two
    numbers the code that people compare.
    """

    request: RequestId
    commitment: Secret
    nonce: Secret = b""
    has: Text = ""  # what the sender would lend, for people


class AdmissionHeard(Message, frozen=True, tag="admission-heard"):
    """The sender drew this number; send yours."""

    request: RequestId
    nonce: Secret


class InvitationGiven(Message, frozen=True, tag="invitation-given"):
    """Redeem this invitation from now on: the sender is leaving and has given it away.

    The message may get lost, but sender and receiver never both redeem it.
    """

    request: RequestId
    digest: Secret  # of the secret that newcomers know
    roles: Annotated[tuple[Name, ...], Meta(max_length=ROLES_MAX)]
    uses: Count  # that are left
    ends_in_s: Seconds
    owner: OwnerId = OwnerId("")
    top_priority: Priority = 0
    quota_gpus: Count | None = None
    quota_cpu_milli: Amount | None = None
    valid_for_s: Seconds = 0.0  # of the grants
    joined: Annotated[tuple[NodeId, ...], Meta(max_length=USES_MAX)] = ()  # with it
    moves: Count = 0  # how often it was given away, this time included


class InvitationTaken(Message, frozen=True, tag="invitation-taken"):
    """The sender has stored the invitation and redeems it from now on."""

    request: RequestId
