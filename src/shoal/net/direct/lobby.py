"""Connections that are not links yet: their number, deadlines and newcomers.

Anybody may connect, so every connection has a deadline, and their number is limited.
A peer without a grant may send one thing: its invitation. The desk answers that.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, final

from shoal.errors import ProtocolError
from shoal.net.direct.connection_limits import ConnectionLimits
from shoal.net.direct.frames import FrameKind, framed
from shoal.protocol import codec
from shoal.protocol.admission import AdmissionHeard, AdmissionWanted
from shoal.protocol.messages import Join, Refusal, Welcome

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from shoal.model.ids import NodeId
    from shoal.net.direct.connection import Connection
    from shoal.protocol.messages import AnyMessage

    Desk = Callable[
        [NodeId, Join | AdmissionWanted, str],
        Awaitable[Welcome | Refusal | AdmissionHeard],
    ]
    """Answers a newcomer, with or without the secret of an invitation."""

NO_GRANT = "no grant: join with an invitation first"


@final
class Lobby:
    """Tracks connections until they become links or end."""

    def __init__(self, desk: Desk | None, handshake_s: float) -> None:
        """Let newcomers talk to `desk`, if there is one, within a time limit."""
        self._desk = desk
        self._handshake_s = handshake_s
        self._doors: ConnectionLimits[Connection] = ConnectionLimits()
        # A connection that ends, or becomes the link, leaves both.
        self._deadlines: dict[Connection, float] = {}
        self._newcomers: dict[Connection, NodeId] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def has_desk(self) -> bool:
        """Whether this node admits newcomers."""
        return self._desk is not None

    @property
    def waiting(self) -> list[Connection]:
        """All connections in the lobby."""
        return list(self._deadlines)

    def enter(self, connection: Connection, now: float) -> list[Connection]:
        """Add a connection with a deadline; return the one to close for it, if any."""
        self._deadlines[connection] = now + self._handshake_s
        if connection.dialled:
            return []
        return self._doors.arrive(connection, connection.address, now)

    def leave(self, connection: Connection) -> None:
        """Forget a connection that has ended or become a link."""
        self._deadlines.pop(connection, None)
        self._newcomers.pop(connection, None)
        self._doors.leave(connection)

    def late(self, now: float, excused_s: float) -> list[Connection]:
        """Return connections past their deadline, not counting our own pauses."""
        slow: list[Connection] = []
        for connection, at in self._deadlines.items():
            self._deadlines[connection] = at + excused_s
            if now >= at + excused_s:
                slow.append(connection)
        return slow

    def expect(self, connection: Connection, node: NodeId) -> None:
        """Expect a request from a node without a grant."""
        self._newcomers[connection] = node

    def take(self, connection: Connection, messages: Sequence[AnyMessage]) -> None:
        """Handle a newcomer's request; raise `ProtocolError` if it is unexpected."""
        node = self._newcomers.pop(connection, None)
        if node is None or self._desk is None:
            raise ProtocolError("a frame that nobody asked for")
        if len(messages) == 1 and isinstance(messages[0], Join | AdmissionWanted):
            work = self._receive(self._desk, connection, node, messages[0])
            task = asyncio.get_running_loop().create_task(work)
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        else:
            connection.close(NO_GRANT, "not admitted")

    async def close(self) -> None:
        """Stop answering."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _receive(
        self,
        desk: Desk,
        connection: Connection,
        node: NodeId,
        message: Join | AdmissionWanted,
    ) -> None:
        _answer(connection, await desk(node, message, connection.address))


def _answer(connection: Connection, answer: Welcome | Refusal | AdmissionHeard) -> None:
    frames = codec.encode([answer])
    connection.send(*(framed(FrameKind.MESSAGES, frame) for frame in frames))
    joined = isinstance(answer, Welcome)
    connection.close("that is all", "joined" if joined else "join refused")
