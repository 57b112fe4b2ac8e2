"""The table of API methods, shared by gRPC, local sockets and forwarded calls.

`shoal.proto` defines the methods; the service answers each with an `on_...` method.
"""

from __future__ import annotations

import re
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Final, NamedTuple, final

from google.protobuf.message import DecodeError

from shoal.api import shoal_pb2 as pb
from shoal.api.failures import message_of, shown_of
from shoal.errors import MovedError, NoJobError, UsageError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable

    from google.protobuf.message import Message


SERVICE: Final = pb.DESCRIPTOR.services_by_name["Shoal"]

FOLLOWING: Final = frozenset(
    {"Get", "Watch", "Logs", "Cancel", "Explain", "Curves", "Events"}
)
"""Methods that a node asks of the one that it forwarded their job to. What is fetched
by the hashes in an answer is not among them: the files are on that other node."""


class ApiMethod(NamedTuple):
    """One method, and the service's function that answers it."""

    name: str
    request: type[Message]
    call: Callable[[Any], Any]
    takes_stream: bool
    answers_stream: bool
    follow: Callable[[str, str, bytes], AsyncGenerator[bytes]]
    seek: Callable[[str], Awaitable[MovedError | None]]
    answer: type[Message]

    async def replies(self, asked: object) -> AsyncGenerator[Message]:
        """Yield the answer or answers to a request; closing this closes the stream.

        If the job was forwarded, the node that has it answers. If it is unknown here,
        other nodes of the owner are asked who has it, and the error names that one.
        """
        begun = False
        try:
            async with aclosing(self._own(asked)) as found:
                async for each in found:
                    begun = True
                    yield each
            return
        except NoJobError as error:
            raise await self.seek(error.job) or error from None
        except MovedError as moved:
            is_new = not begun or self.name == "Watch"
            if self.name not in FOLLOWING or not (moved.forwarded and is_new):
                raise
            node = moved.node
        assert isinstance(asked, self.request)
        there = self.follow(node, self.name, asked.SerializeToString())
        async with aclosing(there) as answers:
            async for data in answers:
                yield self.answer.FromString(data)

    async def _own(self, asked: object) -> AsyncGenerator[Message]:
        if not self.answers_stream:
            answer: Awaitable[Message] = self.call(asked)
            yield await answer
            return
        stream: AsyncGenerator[Message] = self.call(asked)
        async with aclosing(stream):
            async for each in stream:
                yield each


@final
class Methods:
    """All API methods by name."""

    def __init__(
        self,
        service: object,
        follow: Callable[[str, str, bytes], AsyncGenerator[bytes]],
        seek: Callable[[str], Awaitable[MovedError | None]],
    ) -> None:
        """Bind each method to the service: `List` to `on_list`, and so on.

        `follow` asks another node, by its id, a method and a request. `seek` says which
        node has a job that is not here.
        """
        self.by_name = {
            each.name: ApiMethod(
                each.name,
                getattr(pb, each.input_type.name),
                getattr(service, f"on_{snake(each.name)}"),
                each.client_streaming,
                each.server_streaming,
                follow,
                seek,
                getattr(pb, each.output_type.name),
            )
            for each in SERVICE.methods
        }

    def takes_stream(self, name: str) -> bool:
        """Return whether the request of a method is a stream."""
        method = self.by_name.get(name)
        return method is not None and method.takes_stream

    async def answers(self, name: str, data: bytes) -> AsyncGenerator[Message]:
        """Yield the answers to a call; refuse methods with request streams."""
        method = self.by_name.get(name)
        if method is None or method.takes_stream:
            raise _unknown(name)
        async with aclosing(method.replies(method.request.FromString(data))) as found:
            async for each in found:
                yield each

    async def stream_answers(
        self, name: str, requests: AsyncIterator[bytes]
    ) -> AsyncGenerator[Message]:
        """Yield the answers to a call whose request is a stream."""
        method = self.by_name.get(name)
        if method is None or not method.takes_stream:
            raise _unknown(name)
        asked = (method.request.FromString(data) async for data in requests)
        async with aclosing(method.replies(asked)) as found:
            async for each in found:
                yield each


def _unknown(name: str) -> UsageError:
    return UsageError(
        f"there is no call '{name[:80]}' here",
        because="the node is of another version than the command",
        hint="restart it: shoal down; shoal up",
    )


def told(error: Exception) -> pb.Error:
    """Encode an error for the caller."""
    if isinstance(error, DecodeError):
        error = UsageError("the request cannot be read")
    return message_of(*shown_of(error))


def snake(name: str) -> str:
    """Convert a method name to snake case: `ListSecrets` to `list_secrets`."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()
