"""Messages by which a node calls the API of another node of its owner, for its user.

The link carries them in order. What is lost with a link ends the call: whoever asked
is told so, and may ask again.
"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from shoal.model.bounds import Count, Name, Text
from shoal.protocol.limits import API_REQUEST_BYTES_MAX, Piece
from shoal.protocol.message import Message


class ApiCall(Message, frozen=True, tag="api-call"):
    """Answer this call of your API. Numbers of one asker rise while a link lasts."""

    number: Count
    method: Name
    request: Annotated[bytes, Meta(max_length=API_REQUEST_BYTES_MAX)] = b""


class ApiPiece(Message, frozen=True, tag="api-piece"):
    """A piece of the answers to a call, after `seq` others.

    A `message` is made of the parts before it and of itself. So is an `error`, which is
    the last, as are `end` and `refusal`. `alive` says that more may follow.
    """

    number: Count
    seq: Count
    kind: Literal["part", "message", "error", "end", "refusal", "alive"]
    data: Piece = b""
    reason: Text = ""  # of a refusal


class ApiReceipt(Message, frozen=True, tag="api-receipt"):
    """So many pieces were taken; or nobody waits for more, and it may `stop`."""

    number: Count
    taken: Count
    stop: bool = False


ToApi = ApiCall | ApiPiece | ApiReceipt
