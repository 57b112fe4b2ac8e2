"""Transports of function calls: a Unix socket, gRPC to other machines, or a task's."""

from __future__ import annotations

import contextlib
import queue
import socket
from typing import TYPE_CHECKING, Final, Protocol, final

from google.protobuf.message import DecodeError

from shoal.api import shoal_pb2 as pb
from shoal.api.call_frames import ERROR, MESSAGE, frame, frame_buffer
from shoal.api.failures import error_of
from shoal.api.sockets import check_peer
from shoal.errors import ProtocolError, UnreachableError
from shoal.framing import FramingError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from shoal.api.client.client import Client as ApiClient
    from shoal.api.client.socket_client import SocketStream

READ_BYTES: Final = 1 << 18


class Wire(Protocol):
    """One connection. Any thread may close it, which ends `replies`."""

    @property
    def believed(self) -> bool:
        """Whether the node is the caller's own, and trusted about other nodes."""
        ...

    def send(self, request: pb.CallsRequest) -> None:
        """Send a message; raise `OSError` if the connection is gone."""
        ...

    def replies(self) -> Iterator[pb.CallsReply]:
        """Yield replies; raise `ShoalError` if the node reports one or is gone."""
        ...

    def close(self) -> None:
        """Close the connection."""
        ...


def _reply(kind: int, body: bytes) -> pb.CallsReply:
    """Decode a reply; raise the error it reports, or `ProtocolError`."""
    try:
        if kind == ERROR:
            raise error_of(pb.Error.FromString(body))
        return pb.CallsReply.FromString(body)
    except DecodeError as error:
        raise _nonsense(str(error)) from None


def _nonsense(because: str) -> ProtocolError:
    return ProtocolError("the node's answer cannot be read", because=because)


@final
class SocketWire:
    """A connection to the local node over its Unix socket."""

    believed = True

    def __init__(self, path: Path) -> None:
        self._path = path
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._socket.connect(str(path))
            check_peer(self._socket, path)
        except OSError as error:
            self._socket.close()
            raise self._gone(error) from None

    def send(self, request: pb.CallsRequest) -> None:
        """Send a message."""
        self._socket.sendall(frame(MESSAGE, request))

    def replies(self) -> Iterator[pb.CallsReply]:
        """Yield replies; close the socket after the last."""
        with self._socket:
            yield from self._heard()

    def _heard(self) -> Iterator[pb.CallsReply]:
        buffer = frame_buffer()
        # `recv` would map and unmap that much memory for each reply.
        space = memoryview(bytearray(READ_BYTES))
        while True:
            try:
                count = self._socket.recv_into(space)
            except OSError as error:
                raise self._gone(error) from None
            if not count:
                return
            try:
                bodies = buffer.feed(space[:count])
            except FramingError as error:
                raise _nonsense(str(error)) from None
            for body in bodies:
                yield _reply(body[0], body[1:])

    def close(self) -> None:
        """Shut the socket down; a blocked reader sees the end of the stream."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def _gone(self, error: OSError) -> UnreachableError:
        return UnreachableError(
            "the node does not answer",
            because=f"{error.strerror or error}, at {self._path}",
            hint="`shoal up` starts it; `shoal doctor` looks for the cause",
        )


@final
class GrpcWire:
    """A gRPC stream to any node."""

    def __init__(self, client: ApiClient) -> None:
        self._client = client
        self.believed = client.is_own
        self._requests: queue.SimpleQueue[pb.CallsRequest | None] = queue.SimpleQueue()

    def send(self, request: pb.CallsRequest) -> None:
        """Send a message."""
        self._requests.put(request)

    def replies(self) -> Iterator[pb.CallsReply]:
        """Yield replies."""
        with self._client as client:
            yield from client.calls(iter(self._requests.get, None))

    def close(self) -> None:
        """End the stream."""
        self._requests.put(None)


@final
class StreamWire:
    """A stream from inside a task to the scheduler of its job."""

    believed = True

    def __init__(self, stream: SocketStream) -> None:
        self._stream = stream

    def send(self, request: pb.CallsRequest) -> None:
        """Send a message."""
        self._stream.send(request)

    def replies(self) -> Iterator[pb.CallsReply]:
        """Yield replies."""
        return self._stream.replies(pb.CallsReply)

    def close(self) -> None:
        """Hang up."""
        self._stream.close()
