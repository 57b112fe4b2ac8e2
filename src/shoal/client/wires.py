"""Two ways to call functions: a socket on this machine, gRPC from others."""

from __future__ import annotations

import contextlib
import queue
import socket
from typing import TYPE_CHECKING, Final, Protocol, final

from google.protobuf.message import DecodeError

from shoal.api import shoal_pb2 as pb
from shoal.api.call_frames import (
    ERROR,
    FRAME_BYTES_MAX,
    HEAD_BYTES,
    MESSAGE,
    frame,
)
from shoal.api.failures import error_of
from shoal.api.sockets import check_peer
from shoal.errors import ProtocolError, UnreachableError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from shoal.api.client import Client as ApiClient

READ_BYTES: Final = 1 << 18


class Wire(Protocol):
    """One connection. It is closed by any thread, and then has no more replies."""

    @property
    def believed(self) -> bool:
        """Whether the node is the caller's own, and believed about other nodes."""
        ...

    def send(self, request: pb.CallsRequest) -> None:
        """Send a message; raise `OSError` if the connection is gone."""
        ...

    def replies(self) -> Iterator[pb.CallsReply]:
        """Return what comes; raise `ShoalError` as the node says, or if it is gone."""
        ...

    def close(self) -> None:
        """Hang up."""
        ...


def _reply(kind: int, body: bytes) -> pb.CallsReply:
    """Return a reply, or raise: what the node says, or that it makes no sense."""
    try:
        if kind == ERROR:
            raise error_of(pb.Error.FromString(body))
        return pb.CallsReply.FromString(body)
    except DecodeError as error:
        raise _nonsense(str(error)) from None


def _nonsense(because: str) -> ProtocolError:
    return ProtocolError("the node says what makes no sense", because=because)


@final
class SocketWire:
    """The socket of the node of this machine."""

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
        """Return what comes; the socket is closed with the last of it."""
        with self._socket:
            yield from self._heard()

    def _heard(self) -> Iterator[pb.CallsReply]:
        unread = bytearray()
        while True:
            try:
                data = self._socket.recv(READ_BYTES)
            except OSError as error:
                raise self._gone(error) from None
            if not data:
                return
            unread += data
            while len(unread) >= HEAD_BYTES:
                end = HEAD_BYTES + int.from_bytes(unread[:4], "little")
                if end > FRAME_BYTES_MAX:
                    raise _nonsense(f"a message of {end} bytes")
                if len(unread) < end:
                    break
                kind, body = unread[4], bytes(memoryview(unread)[HEAD_BYTES:end])
                del unread[:end]
                yield _reply(kind, body)

    def close(self) -> None:
        """Hang up; whoever reads gets an end."""
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
    """A stream of gRPC, to any node."""

    def __init__(self, client: ApiClient) -> None:
        self._client = client
        self.believed = client.is_own
        self._requests: queue.SimpleQueue[pb.CallsRequest | None] = queue.SimpleQueue()

    def send(self, request: pb.CallsRequest) -> None:
        """Send a message."""
        self._requests.put(request)

    def replies(self) -> Iterator[pb.CallsReply]:
        """Return what comes."""
        with self._client as client:
            yield from client.calls(iter(self._requests.get, None))

    def close(self) -> None:
        """End the stream."""
        self._requests.put(None)
