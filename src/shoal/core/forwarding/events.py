"""Facts and effects of API calls between nodes of one owner."""

from __future__ import annotations

from typing import Literal

import msgspec

from shoal.core.membership.members import Admission
from shoal.model.ids import NodeId

AnswerKind = Literal["message", "error", "end", "bug"]
EndKind = Literal["end", "error", "refusal", "broken", "full"]

# Facts.


class CallAsked(msgspec.Struct, frozen=True):
    """A client of this node calls the API of `peer`. The host drew the token."""

    token: int
    peer: NodeId
    method: str
    request: bytes = b""


class AnswerTaken(msgspec.Struct, frozen=True):
    """The client has read one answer that was delivered."""

    token: int


class CallAbandoned(msgspec.Struct, frozen=True):
    """The client waits for no more answers."""

    token: int


class CallAnswered(msgspec.Struct, frozen=True):
    """The API of this node answered a call that was run for a peer.

    A message may be followed by others, once `ContinueCall` asks for them.
    """

    run: int
    kind: AnswerKind
    data: bytes = b""  # of a message or an error
    reason: str = ""  # of a bug


# Effects.


class RunCall(msgspec.Struct, frozen=True):
    """Have the API of this node answer a peer; each answer is a `CallAnswered`."""

    run: int
    caller: Admission
    method: str
    request: bytes


class RefuseCall(msgspec.Struct, frozen=True):
    """Have the API say, by one `CallAnswered`, that other owners are told nothing."""

    run: int
    caller: Admission
    method: str


class ContinueCall(msgspec.Struct, frozen=True):
    """Let the API go on to its next answer: there is room for it."""

    run: int


class StopCall(msgspec.Struct, frozen=True):
    """End a call that runs here: its caller is gone or lost its rights."""

    run: int


class DeliverAnswer(msgspec.Struct, frozen=True):
    """Give a client the next answer."""

    token: int
    data: bytes


class EndCall(msgspec.Struct, frozen=True):
    """Tell a client how its call ended; it comes once, after all answers."""

    token: int
    kind: EndKind
    data: bytes = b""  # of an error
    reason: str = ""


ForwardingEvent = CallAsked | AnswerTaken | CallAbandoned | CallAnswered
ForwardingEffect = (
    RunCall | RefuseCall | ContinueCall | StopCall | DeliverAnswer | EndCall
)
