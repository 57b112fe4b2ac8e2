"""Messages about who is no member yet, besides `Join`: asking, and passing it on."""

from typing import Annotated

from msgspec import Meta

from shoal.model.bounds import Amount, Count, Name, Seconds, Text
from shoal.model.ids import OwnerId, RequestId
from shoal.protocol.limits import ROLES_MAX, Priority, Secret
from shoal.protocol.message import Message


class AdmissionWanted(Message, frozen=True, tag="admission-wanted"):
    """Let me in: I have no invitation, but somebody at your screen may say yes.

    First with a hash of a random number; then, when the receiver has said its own,
    again with that number. Of both, both sides make the code that people compare.
    """

    request: RequestId
    commitment: Secret
    nonce: Secret = b""
    has: Text = ""  # what the sender would lend, for people


class AdmissionHeard(Message, frozen=True, tag="admission-heard"):
    """The sender drew this number: show yours."""

    request: RequestId
    nonce: Secret


class InvitationGiven(Message, frozen=True, tag="invitation-given"):
    """Redeem this invitation from now on: the sender has given it away, and leaves.

    It may be that the receiver never hears of it, but never that both redeem it.
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


class InvitationTaken(Message, frozen=True, tag="invitation-taken"):
    """The sender has written down what it was given, and redeems it."""

    request: RequestId
