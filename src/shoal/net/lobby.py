"""Connections that are no links yet: how many, for how long, and who waits at the desk.

Everybody may connect, so everybody has a deadline, and doors that let only so many in.
Whoever has no grant may say one thing: that it was invited. The desk answers that.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, final

from shoal.errors import ProtocolError
from shoal.net.doors import Doors
from shoal.net.frames import Kind, framed
from shoal.protocol import codec
from shoal.protocol.messages import Join, Refusal, Welcome
from shoal.protocol.newcomers import AdmissionHeard, AdmissionWanted

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from shoal.model.ids import NodeId
    from shoal.net.connection import Connection
    from shoal.protocol.messages import AnyMessage

    Desk = Callable[[NodeId, Join, str], Awaitable[Welcome | Refusal]]
    """Answers somebody at an address who holds the secret of an invitation."""

    Porter = Callable[
        [NodeId, AdmissionWanted, str], Welcome | Refusal | AdmissionHeard
    ]
    """Answers somebody without one, who asks from an address."""

NO_GRANT = "no grant: join with an invitation first"


@final
class Lobby:
    """Keeps whoever has connected, until there is a link or an end."""

    def __init__(
        self, desk: Desk | None, handshake_s: float, porter: Porter | None = None
    ) -> None:
        """Let newcomers speak to `desk`, if there is one, within so many seconds."""
        self._desk = desk
        self._porter = porter
        self._handshake_s = handshake_s
        self._doors: Doors[Connection] = Doors()
        # A connection that ends, or becomes the link, leaves both.
        self._deadlines: dict[Connection, float] = {}
        self._newcomers: dict[Connection, NodeId] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def has_desk(self) -> bool:
        """Whether newcomers are taken in here."""
        return self._desk is not None

    @property
    def waiting(self) -> list[Connection]:
        """All who are here now."""
        return list(self._deadlines)

    def enter(self, connection: Connection, now: float) -> list[Connection]:
        """Let a connection wait, with a deadline; return whom to send away for it."""
        self._deadlines[connection] = now + self._handshake_s
        if connection.dialled:
            return []
        return self._doors.arrive(connection, connection.address, now)

    def leave(self, connection: Connection) -> None:
        """Forget a connection that is over, or the link by now."""
        self._deadlines.pop(connection, None)
        self._newcomers.pop(connection, None)
        self._doors.leave(connection)

    def late(self, now: float, excused_s: float) -> list[Connection]:
        """Return who took too long, not counting the time in which we stood still."""
        slow: list[Connection] = []
        for connection, at in self._deadlines.items():
            self._deadlines[connection] = at + excused_s
            if now >= at + excused_s:
                slow.append(connection)
        return slow

    def expect(self, connection: Connection, node: NodeId) -> None:
        """Let a node without a grant say what it wants."""
        self._newcomers[connection] = node

    def take(self, connection: Connection, messages: Sequence[AnyMessage]) -> None:
        """Hear what a newcomer wants; raise `ProtocolError` if nobody asked it."""
        node = self._newcomers.pop(connection, None)
        if node is None or self._desk is None:
            raise ProtocolError("a frame that nobody asked for")
        if len(messages) == 1 and isinstance(messages[0], Join):
            work = self._receive(self._desk, connection, node, messages[0])
            task = asyncio.get_running_loop().create_task(work)
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        elif (
            len(messages) == 1
            and isinstance(messages[0], AdmissionWanted)
            and self._porter is not None
        ):
            answer = self._porter(node, messages[0], connection.address)
            _answer(connection, answer)
        else:
            connection.close(NO_GRANT, "not admitted")

    async def close(self) -> None:
        """Answer nobody any more."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _receive(
        self, desk: Desk, connection: Connection, node: NodeId, join: Join
    ) -> None:
        _answer(connection, await desk(node, join, connection.address))


def _answer(connection: Connection, answer: Welcome | Refusal | AdmissionHeard) -> None:
    frames = codec.encode([answer])
    connection.send(*(framed(Kind.MESSAGES, frame) for frame in frames))
    joined = isinstance(answer, Welcome)
    connection.close("that is all", "joined" if joined else "join refused")
