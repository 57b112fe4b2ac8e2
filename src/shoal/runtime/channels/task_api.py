"""Connections by which tasks call the API of their shoal.

A task opens one over its own socket (`drivers.task_socket`). The worker opens a channel
to the scheduler of the attempt and answers the task with one line: `{"api": true}` once
the scheduler serves it, or `{"error": ...}`. From then on bytes go both ways. The
scheduler's API reads them from one end of a socket pair. `core.channels` decides who
may do this, and for how long.
"""

from __future__ import annotations

import contextlib
import json
import socket
from collections import Counter
from typing import TYPE_CHECKING, Final, final

from shoal.protocol.channels import items as channel_items
from shoal.protocol.channels.messages import ChannelUse
from shoal.runtime.channels.descriptors import DescriptorReader, DescriptorWriter

if TYPE_CHECKING:
    from collections.abc import Callable

    from shoal.model.ids import Attempt
    from shoal.runtime.channels.channel_ends import ChannelEnds, ChannelLine

CONNECTIONS_MAX: Final = 16
"""Connections that one task may have to the API."""

USE: Final = ChannelUse(kind="api")
HINT: Final = (
    "the program that submitted the job has a client of its own, and so have tasks on "
    "machines of its owner: `--on NODE` places one there"
)


@final
class TaskApi:
    """Opens a channel for each connection of a task that runs here."""

    def __init__(self, ends: ChannelEnds) -> None:
        self._ends = ends
        self._open: Counter[Attempt] = Counter()

    def open(self, attempt: Attempt, connection: socket.socket) -> None:
        """Let a task call the scheduler of its attempt; takes the connection over."""
        if self._open[attempt] >= CONNECTIONS_MAX:
            with connection:
                _tell(
                    connection, f"{CONNECTIONS_MAX} calls are open, which is the most"
                )
            return
        self._open[attempt] += 1

        def closed() -> None:
            self._open[attempt] -= 1
            if not self._open[attempt]:
                del self._open[attempt]

        self._ends.open(
            attempt.scheduler,
            USE,
            lambda line: SocketEnd(line, connection, closed, waits=True),
            attempt=attempt,
        )


@final
class SocketEnd:
    """Joins an end of a channel to a connected socket."""

    def __init__(
        self,
        line: ChannelLine,
        connection: socket.socket,
        closed: Callable[[], None],
        *,
        waits: bool = False,
    ) -> None:
        """Carry bytes, if `waits` once the other end is ready; then call `closed`."""
        self._line = line
        self._socket = connection
        self._closed = closed
        self._reader: DescriptorReader | None = None
        self._writer: DescriptorWriter | None = None
        self._is_over = False
        connection.setblocking(False)
        if not waits:
            self._begin()
            line.write(channel_items.READY)

    def deliver(self, items: tuple[bytes, ...]) -> None:
        """Write what the other end sent."""
        for item in items:
            kind, body = item[:1], item[1:]
            if kind == channel_items.READY and self._writer is None:
                self._say(json.dumps({"api": True}))
                self._begin()
            elif kind == channel_items.DATA and self._writer is not None:
                self._writer.write(body)
            elif kind == channel_items.EOF and self._writer is not None:
                self._writer.end()

    def pause(self, *, paused: bool) -> None:
        """Read nothing while the other end is behind."""
        if self._reader is not None:
            self._reader.pause(paused=paused)

    def ended(self, reason: str) -> None:
        """Hang up: the channel is gone."""
        if self._writer is None and not self._is_over:
            _tell(self._socket, reason)
        self._close()

    def _begin(self) -> None:
        fd = self._socket.fileno()
        self._writer = DescriptorWriter(fd, self._slowed, self._written)
        self._reader = DescriptorReader(fd, self._read, self._hung_up)

    def _read(self, data: bytes) -> None:
        self._line.write(channel_items.DATA + data)

    def _slowed(self, is_slow: bool) -> None:
        self._line.slow(slow=is_slow)

    def _written(self, _fd: int) -> None:
        """Hang up: the other end has said all, and it was read."""
        self._finish()

    def _hung_up(self) -> None:
        """Tell the other end that nobody listens here: a call ends with its caller."""
        self._finish()

    def _finish(self) -> None:
        if not self._is_over:
            self._line.write(channel_items.EOF)
            self._line.finish()
            self._close()

    def _close(self) -> None:
        if self._is_over:
            return
        self._is_over = True
        for each in (self._reader, self._writer):
            if each is not None:
                each.stop()
        self._socket.close()
        self._closed()

    def _say(self, line: str) -> None:
        with contextlib.suppress(OSError):
            self._socket.send(line.encode() + b"\n", socket.MSG_NOSIGNAL)


def _tell(connection: socket.socket, because: str) -> None:
    """Tell a task why it cannot call the API."""
    told = {"error": "the task cannot call its shoal", "because": because, "hint": HINT}
    with contextlib.suppress(OSError):
        connection.send(json.dumps(told).encode() + b"\n", socket.MSG_NOSIGNAL)
