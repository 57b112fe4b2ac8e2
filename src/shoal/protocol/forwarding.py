"""Messages that forward a user's API call to another node of the same owner.

The link keeps their order. A broken link ends the call; the caller is told and may call
again.
"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from shoal.model.text.bounds import Count, Name, Text
from shoal.protocol.limits import API_REQUEST_BYTES_MAX, Piece
from shoal.protocol.message import Message

PieceKind = Literal["part", "message", "error", "end", "refusal", "alive"]


class ApiCall(Message, frozen=True, tag="api-call"):
    """Answer this call of your API. A caller's numbers increase during a link."""

    number: Count
    method: Name
    request: Annotated[bytes, Meta(max_length=API_REQUEST_BYTES_MAX)] = b""


class ApiPiece(Message, frozen=True, tag="api-piece"):
    """A piece of the answer to a call; `seq` pieces precede it.

    A `message` is made of the parts before it and of itself. So is an `error`, which is
    the last, as are `end` and `refusal`. `alive` says that more may follow.
    """

    number: Count
    seq: Count
    kind: PieceKind
    data: Piece = b""
    reason: Text = ""  # of a refusal


class ApiReceipt(Message, frozen=True, tag="api-receipt"):
    """The number of pieces received, or a request to `stop`."""

    number: Count
    taken: Count
    stop: bool = False


ToApi = ApiCall | ApiPiece | ApiReceipt
