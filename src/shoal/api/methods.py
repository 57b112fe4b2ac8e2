"""The calls of the API by name, for those who have a name and bytes, and no gRPC."""

from __future__ import annotations

import re
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, NamedTuple, final

from google.protobuf.message import DecodeError

from shoal.api import shoal_pb2 as pb
from shoal.api.failures import message_of, shown_of
from shoal.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable

    from google.protobuf.message import Message


class _Method(NamedTuple):
    request: type[Message]
    call: Callable[[Any], Any]
    streams: bool


@final
class Methods:
    """The calls that take one request; the others need gRPC."""

    def __init__(self, service: object) -> None:
        """Find `on_list` of the service for the call `List`, and so on."""
        described = pb.DESCRIPTOR.services_by_name["Shoal"].methods
        self._methods = {
            each.name: _Method(
                getattr(pb, each.input_type.name),
                getattr(service, f"on_{snake(each.name)}"),
                each.server_streaming,
            )
            for each in described
            if not each.client_streaming
        }

    async def answers(self, name: str, data: bytes) -> AsyncGenerator[Message]:
        """Return the answers to a call: one, or a stream, which ends with this."""
        method = self._methods.get(name)
        if method is None:
            raise UsageError(
                f"there is no call '{name[:80]}' here",
                because="the node is of another version than the command",
                hint="restart it: shoal down; shoal up",
            )
        request = method.request.FromString(data)
        if not method.streams:
            answer: Awaitable[Message] = method.call(request)
            yield await answer
            return
        stream: AsyncGenerator[Message] = method.call(request)
        async with aclosing(stream):
            async for each in stream:
                yield each


def told(error: Exception) -> pb.Error:
    """Return an error as whoever called is told of it."""
    if isinstance(error, DecodeError):
        error = UsageError("the request cannot be read")
    return message_of(*shown_of(error))


def snake(name: str) -> str:
    """Return the name of a call as the methods that answer it have it."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()
