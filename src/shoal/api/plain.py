"""Calls over a plain socket, for commands on the node's own machine.

To load gRPC takes longer than all else that a short command does. So there is a second
socket beside that of the API, `node.plain`, which only the node's user can open: the
client writes the name of a call and its request, and the node writes its answers, in
the frames of `call_frames`. `plain_door` is the node's side.
"""

from __future__ import annotations

import socket
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar, final

from shoal.api.call_frames import END, ERROR, HEAD_BYTES, head
from shoal.api.sockets import check_peer
from shoal.errors import ProtocolError, UnreachableError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from google.protobuf.message import Message

SUFFIX: Final = ".plain"

LOOK_UP_S: Final = 1.0
"""How long to wait at one go. A Ctrl-C that comes just before Python begins to wait is
noticed only when it looks up again."""

M = TypeVar("M", bound="Message")


def plain_socket(api_socket: str | Path) -> Path:
    """Return where commands of this machine call."""
    return Path(api_socket).with_suffix(SUFFIX)


@final
class PlainCalls:
    """Calls one node, over a connection for each call. Threads may share it."""

    def __init__(self, path: Path, name: str) -> None:
        self._path = path
        self._name = name

    def ask(self, method: str, request: Message, type_: type[M], timeout_s: float) -> M:
        """Return the one answer to a call."""
        for answer in self.follow(method, request, type_, timeout_s):
            return answer
        raise self._silent("it hung up without an answer")

    def follow(
        self, method: str, request: Message, type_: type[M], timeout_s: float | None
    ) -> Iterator[M]:
        """Return the answers to a call, as they come."""
        until = None if timeout_s is None else time.monotonic() + timeout_s
        data = method.encode() + b"\0" + request.SerializeToString()
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as line:
            try:
                line.settimeout(timeout_s)
                line.connect(str(self._path))
                check_peer(line, self._path)
                line.sendall(head(len(data), 0) + data)
                while True:
                    kind, payload = self._frame(line, until)
                    if kind == END:
                        return
                    if kind == ERROR:
                        break
                    yield _read(type_, payload)
            except TimeoutError:
                raise self._silent(f"no answer within {timeout_s:g} s") from None
            except OSError as error:
                raise self._silent(error.strerror or str(error)) from None
        from shoal.api import shoal_pb2 as pb  # noqa: PLC0415 - Only after a mistake.
        from shoal.api.failures import error_of  # noqa: PLC0415

        raise error_of(_read(pb.Error, payload))

    def _frame(self, line: socket.socket, until: float | None) -> tuple[int, bytes]:
        begin = self._exactly(line, HEAD_BYTES, until)
        size = int.from_bytes(begin[:4], "little")
        return begin[4], self._exactly(line, size, until)

    def _exactly(self, line: socket.socket, size: int, until: float | None) -> bytes:
        parts: list[bytes] = []
        while size:
            left_s = LOOK_UP_S if until is None else until - time.monotonic()
            line.settimeout(max(1e-3, min(left_s, LOOK_UP_S)))
            try:
                part = line.recv(min(size, 1 << 20))
            except TimeoutError:
                if left_s > LOOK_UP_S or until is None:
                    continue
                raise
            if not part:
                raise self._silent("it hung up, so it ends or has died")
            parts.append(part)
            size -= len(part)
        return b"".join(parts)

    def _silent(self, because: str) -> UnreachableError:
        return UnreachableError(
            f"the node {self._name} does not answer",
            because=because,
            hint="`shoal doctor` looks for the cause; "
            "its jobs go on when it is up again",
        )


def _read(type_: type[M], data: bytes) -> M:
    """Return an answer of the node; raise `ProtocolError` if it is none."""
    from google.protobuf.message import DecodeError  # noqa: PLC0415 - As the caller.

    try:
        return type_.FromString(data)
    except DecodeError as error:
        raise ProtocolError(
            "the node says what makes no sense",
            because=str(error),
            hint="is it of another version? `shoal down`, then `shoal up`",
        ) from None
