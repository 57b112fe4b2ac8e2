"""Calls the local node over a Unix socket that only its user can open.

Theory of operation. The client connects to `node.plain`, sends one frame with the name
of a method, a zero byte and the request, and reads frames: answers, then an end or an
error. Where requests are a stream, further frames have a request each. One connection
serves one call; hanging up cancels it. The node's side is
`api/server/socket_server`; both serve the methods of `shoal.proto`, as gRPC does for
other machines (decision 35).
"""

from __future__ import annotations

import contextlib
import select
import socket
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias, TypeVar, final

from google.protobuf.message import DecodeError

from shoal.api import shoal_pb2 as pb
from shoal.api.call_frames import END, ERROR, MESSAGE, frame_buffer, packed
from shoal.api.sockets import check_peer
from shoal.errors import ProtocolError, ShoalError, UnreachableError
from shoal.framing import FramingError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from google.protobuf.message import Message

SUFFIX: Final = ".plain"
READ_BYTES: Final = 1 << 18

LOOK_UP_S: Final = 1.0
"""Longest single wait. Python notices a Ctrl-C that arrives just before it blocks only
when the wait returns."""

M = TypeVar("M", bound="Message")
Dial: TypeAlias = "Callable[[float | None], socket.socket]"


def plain_socket(api_socket: str | Path) -> Path:
    """Return the path of the socket for local commands."""
    return Path(api_socket).with_suffix(SUFFIX)


@final
class SocketCalls:
    """Calls one node, with one connection per call. Thread-safe."""

    def __init__(self, path: Path, name: str, dial: Dial | None = None) -> None:
        """Connect to `path`, or by `dial`; messages call the node `name`."""
        self._path = path
        self._name = name
        self._dial = dial or self._connected

    def ask(self, method: str, request: Message, type_: type[M], timeout_s: float) -> M:
        """Return the single answer to a call."""
        for answer in self.follow(method, request, type_, timeout_s):
            return answer
        raise self._silent("it hung up without an answer")

    def follow(
        self, method: str, request: Message, type_: type[M], timeout_s: float | None
    ) -> Iterator[M]:
        """Yield the answers to a call as they arrive."""
        until = None if timeout_s is None else time.monotonic() + timeout_s
        data = method.encode() + b"\0" + request.SerializeToString()
        failure = b""
        with self._line(timeout_s) as line:
            try:
                line.sendall(packed(MESSAGE, data))
                for kind, payload in self._frames(line, until):
                    if kind == END:
                        return
                    if kind == ERROR:
                        failure = payload
                        break
                    yield _read(type_, payload)
            except TimeoutError:
                raise self._silent(f"no answer within {timeout_s:g} s") from None
            except OSError as error:
                raise self._silent(error.strerror or str(error)) from None
        from shoal.api.failures import error_of  # noqa: PLC0415

        raise error_of(_read(pb.Error, failure))

    def stream(self, method: str, first: Message) -> SocketStream:
        """Begin a call whose requests are a stream."""
        line = self._line(None)
        try:
            line.sendall(packed(MESSAGE, method.encode() + b"\0" + _bytes(first)))
        except OSError as error:
            line.close()
            raise self._silent(error.strerror or str(error)) from None
        return SocketStream(line, self._silent("it hung up, so it ends or has died"))

    def _line(self, timeout_s: float | None) -> socket.socket:
        """Return a new connection; raise if the node does not take it."""
        try:
            return self._dial(timeout_s)
        except TimeoutError:
            raise self._silent(f"no answer within {timeout_s:g} s") from None
        except OSError as error:
            raise self._silent(error.strerror or str(error)) from None

    def _connected(self, timeout_s: float | None) -> socket.socket:
        line = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            line.settimeout(timeout_s)
            line.connect(str(self._path))
            check_peer(line, self._path)
        except BaseException:
            line.close()
            raise
        return line

    def _frames(
        self, line: socket.socket, until: float | None
    ) -> Iterator[tuple[int, bytes]]:
        """Yield the kind and payload of each frame from the node."""
        buffer = frame_buffer()
        while True:
            left_s = LOOK_UP_S if until is None else until - time.monotonic()
            line.settimeout(max(1e-3, min(left_s, LOOK_UP_S)))
            try:
                data = line.recv(READ_BYTES)
            except TimeoutError:
                if left_s > LOOK_UP_S or until is None:
                    continue
                raise
            if not data:
                raise self._silent("it hung up, so it ends or has died")
            try:
                bodies = buffer.feed(data)
            except FramingError as error:
                raise _nonsense(str(error)) from None
            for body in bodies:
                yield body[0], body[1:]

    def _silent(self, because: str) -> UnreachableError:
        return UnreachableError(
            f"the node {self._name} does not answer",
            because=because,
            hint="`shoal doctor` looks for the cause; "
            "its jobs go on when it is up again",
        )


@final
class SocketStream:
    """A call whose requests are a stream. One thread may write, and another read."""

    def __init__(self, line: socket.socket, silence: UnreachableError) -> None:
        """Raise `silence` if the node hangs up."""
        self._line = line
        self._silence = silence
        self._closed = False

    def send(self, request: Message) -> None:
        """Send a request, once there is room; raise `OSError` if the call is over."""
        self._line.sendall(packed(MESSAGE, _bytes(request)))

    def end(self) -> None:
        """Say that no more requests follow; raise `OSError` if the call is over."""
        self._line.sendall(packed(END, b""))

    def replies(self, type_: type[M]) -> Iterator[M]:
        """Yield the answers; raise the error that the node reports."""
        buffer = frame_buffer()
        while data := self._received():
            for body in buffer.feed(data):
                if body[0] == END:
                    return
                if body[0] == ERROR:
                    from shoal.api.failures import error_of  # noqa: PLC0415

                    raise error_of(_read(pb.Error, body[1:]))
                yield _read(type_, body[1:])
        if not self._closed:
            raise self._silence

    def _received(self) -> bytes:
        """Wait for bytes of the node; no timeout, which would concern `send`, too."""
        try:
            while not select.select([self._line], [], [], LOOK_UP_S)[0]:
                pass
            return self._line.recv(READ_BYTES)
        except (OSError, ValueError):  # It was closed here, or there.
            return b""

    def close(self) -> None:
        """Hang up, which ends the call; any thread may do that."""
        self._closed = True
        with contextlib.suppress(OSError):
            self._line.shutdown(socket.SHUT_RDWR)


def _bytes(message: Message) -> bytes:
    return message.SerializeToString()


def _read(type_: type[M], data: bytes) -> M:
    """Decode an answer; raise `ProtocolError` if it is malformed."""
    try:
        return type_.FromString(data)
    except DecodeError as error:
        raise _nonsense(str(error)) from None


def _nonsense(because: str) -> ProtocolError:
    return ProtocolError(
        "the node's answer cannot be read",
        because=because,
        hint="is it of another version? `shoal down`, then `shoal up`",
    )


@final
class ForwardedCalls:
    """Calls another node of the same owner through the local one: `service/forward`."""

    def __init__(self, near: SocketCalls, node: str) -> None:
        """Forward through the node of `near` to the node that a user calls `node`."""
        self._near = near
        self._node = node

    def ask(self, method: str, request: Message, type_: type[M], timeout_s: float) -> M:
        """Return the single answer to a call."""
        for answer in self.follow(method, request, type_, timeout_s):
            return answer
        raise UnreachableError(f"the node {self._node} gave no answer")

    def follow(
        self, method: str, request: Message, type_: type[M], timeout_s: float | None
    ) -> Iterator[M]:
        """Yield the answers to a call as they arrive."""
        wrapped = pb.ForwardRequest(
            node=self._node, method=method, request=request.SerializeToString()
        )
        replies = self._near.follow("Forward", wrapped, pb.ForwardReply, timeout_s)
        for reply in replies:
            try:
                answer = type_.FromString(reply.reply)
            except DecodeError:
                raise ShoalError(
                    f"the node {self._node} sent an answer that cannot be read",
                    because="it is of another version than this one, or broken",
                    hint="run the same version of shoal on both",
                ) from None
            yield answer

    def stream(self, method: str, first: Message) -> SocketStream:
        """Begin a call whose requests are a stream."""
        assert isinstance(first, pb.ChannelRequest), "nothing else is forwarded"
        first.target.node = self._node
        return self._near.stream(method, first)
