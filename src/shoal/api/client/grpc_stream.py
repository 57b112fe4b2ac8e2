"""A call over gRPC whose requests are a stream, with the methods of `SocketStream`."""

from __future__ import annotations

import queue
from typing import TYPE_CHECKING, Any, Final, TypeVar, final

import grpc

from shoal.api.grpc_failures import unpacked

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from google.protobuf.message import Message

    M = TypeVar("M", bound=Message)

WAITING_MAX: Final = 4
"""Requests that wait to be sent; whoever sends more waits."""


@final
class GrpcStream:
    """A call whose requests are a stream. One thread may write, and another read."""

    def __init__(
        self,
        call: Callable[..., Any],
        metadata: tuple[tuple[str, str], ...],
        first: Message,
        name: str,
    ) -> None:
        """Begin the call, with its first request."""
        self._name = name
        self._closed = False
        self._requests: queue.Queue[Message | None] = queue.Queue(WAITING_MAX)
        self._requests.put(first)
        self._replies = call(iter(self._requests.get, None), metadata=metadata)

    def send(self, request: Message) -> None:
        """Send a request, once there is room; raise `OSError` if the call is over."""
        while self._replies.is_active():
            try:
                self._requests.put(request, timeout=1.0)
            except queue.Full:
                continue
            return
        raise BrokenPipeError("the call is over")

    def replies(self, type_: type[M]) -> Iterator[M]:
        """Yield the answers; raise the error that the node reports."""
        del type_
        try:
            yield from self._replies
        except grpc.RpcError as error:
            if not self._closed:
                raise unpacked(error, self._name) from None

    def close(self) -> None:
        """Hang up, which ends the call; any thread may do that."""
        self._closed = True
        self._replies.cancel()
