"""Direct links: one TLS connection per pair of nodes, which carries all messages.

A link comes up in three steps. The TLS handshake proves both ids and shows both
grants. Each side that admits the other sends `Hello`. Then the node with the smaller
id selects the link; until then neither sends messages. So if both dial at once, or a
node comes back before the other has missed it, one node decides which connection is
the link, and messages stay in order.
"""

from __future__ import annotations

import asyncio
import socket
import time
from collections import Counter
from random import Random
from typing import TYPE_CHECKING, Final, final

from shoal.errors import ProtocolError, ShoalError
from shoal.net import multiaddr
from shoal.net.base import IT_SAID, LEAVING
from shoal.net.direct.binding import bound
from shoal.net.direct.connection import Connection
from shoal.net.direct.dialler import Dialler, Endpoint
from shoal.net.direct.frames import Frame, FrameKind, framed, reason_of
from shoal.net.direct.lobby import NO_GRANT, Lobby
from shoal.net.direct.outbox import Budget, Drop, Outbox
from shoal.net.direct.pairs import LATE_S, TICK_S, DirectLink, Pair, PairNotes
from shoal.net.direct.settings import LinkSettings
from shoal.net.identity.certificates import Shown, contexts
from shoal.protocol import codec
from shoal.protocol.limits import FRAME_BYTES_MAX
from shoal.protocol.messages import Hello

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from shoal.model.ids import NodeId
    from shoal.net.base import LinkListener
    from shoal.net.direct.lobby import Desk
    from shoal.net.identity.identity import Identity
    from shoal.protocol.messages import AnyMessage, Grant

    Admit = Callable[[NodeId, Grant | None], str | None]
    """Returns why a peer with this grant is not a member; None if it is one."""

BAD_FRAMES_MAX: Final = 3
"""Unreadable frames after which a peer is disconnected."""

FLUSH_BYTES: Final = 262_144
"""Bytes to encrypt at once, while the connection is writable."""

TROUBLES_MAX: Final = 1_024
POLL_S: Final = 0.01

_NOT_A_MEMBER: Final = "not a member of this shoal"


@final
class DirectLinks:
    """Carries messages over TLS connections between nodes that can dial each other.

    Create and use it on a running event loop. `admit` is asked about every peer that
    dials us or that we dial. `desk` answers newcomers, if this node admits any. With
    `holds`, messages for peers that cannot be dialled wait for a while: another path
    may be found, and `take_waiting` hands them out for it. `counts` counts
    events by a fixed set of kinds.
    """

    def __init__(
        self,
        identity: Identity,
        grant: Grant,
        *,
        admit: Admit,
        listener: LinkListener,
        hello: Hello | None = None,
        desk: Desk | None = None,
        settings: LinkSettings | None = None,
        holds: bool = False,
    ) -> None:
        self.node: Final = identity.node
        self.counts: Counter[str] = Counter()
        self._identity = identity
        self._admit = admit
        self._listener = listener
        self._hello = hello or Hello()
        self._settings = settings or LinkSettings()
        self._holds = holds
        self._loop = asyncio.get_running_loop()
        self._clock = time.monotonic  # That of uvloop knows milliseconds only.
        self._decoder = codec.Decoder()
        self._budget = Budget()
        self._lobby = Lobby(desk, self._settings.handshake_s)
        self._servers: list[asyncio.Server] = []
        self._announced: list[str] = []
        self._dialler = Dialler(
            self._connect, self._missed, self._settings, Random(identity.node)
        )
        # Links in any stage, by connection.
        self._links: dict[Connection, DirectLink] = {}
        self._open: set[Connection] = set()
        self._dials: dict[Connection, asyncio.Future[str]] = {}
        self._peers: dict[NodeId, Pair] = {}
        self._up: dict[NodeId, DirectLink] = {}
        self._dirty: dict[NodeId, Pair] = {}
        self._refused: PairNotes[float] = PairNotes(self._settings.refused_max)
        self._troubles: PairNotes[str] = PairNotes(TROUBLES_MAX)
        self._closing = False
        self.renew(grant)
        self._tick_at = self._clock() + TICK_S
        self._ticker = self._loop.call_later(TICK_S, self._tick)

    # What the host calls.

    @property
    def addresses(self) -> tuple[str, ...]:
        """Return where this node can be dialled, as multiaddrs."""
        return tuple(self._announced)

    @property
    def connected(self) -> tuple[NodeId, ...]:
        """Return the peers that are linked now."""
        return tuple(self._up)

    @property
    def drops(self) -> Counter[Drop]:
        """Return how many messages were dropped."""
        return self._budget.drops

    @property
    def queued_bytes(self) -> int:
        """Return the bytes queued for all peers, so that producers can slow down."""
        return self._budget.bytes

    def renew(self, grant: Grant) -> None:
        """Show this grant from now on. Links that are up stay as they are."""
        self._grant = grant
        self._contexts = contexts(self._identity, grant)

    async def listen(self, host: str, port: int = 0) -> None:
        """Listen at this address; port 0 picks a free one. Raises `OSError`."""
        sockets = await bound(host, port)
        await self.serve(sockets, multiaddr.reachable(sockets, self.node))

    async def serve(
        self, sockets: Iterable[socket.socket], announce: Iterable[str]
    ) -> None:
        """Accept links on bound sockets; tell others these addresses."""
        make, create = self._accepted, self._loop.create_server
        for sock in sockets:
            self._servers.append(await create(make, sock=sock, backlog=256))
        self._announced += announce

    def _accepted(self) -> Connection:
        return Connection(self, self._contexts.accepting)

    def know(self, peer: NodeId, addresses: Sequence[str]) -> None:
        """Remember where a peer may be dialled."""
        book = self._dialler.book
        before = book.get(peer)
        if bad := book.add(peer, addresses):
            self.counts["bad address"] += bad
        if book.get(peer) != before:
            self._dialler.hurry(peer)

    def trouble(self, peer: NodeId) -> str:
        """Return why there is no link to a peer, as far as is known."""
        return self._troubles.get(peer) or ""

    def send(self, peer: NodeId, message: AnyMessage) -> None:
        """Queue a message; messages queued in one turn go in one frame.

        Opens a link if there is none and an address is known. Messages without room
        or without a path are dropped and counted.
        """
        if self._closing or peer == self.node or self._is_refused(peer):
            self.counts["dropped refused"] += 1
            return
        known = self._peers.get(peer)
        if known is None and not self._holds and not self.can_dial(peer):
            self.counts["dropped unreachable"] += 1
            return
        try:
            part = codec.encode_one(message)
        except ProtocolError:
            self.counts["dropped oversized"] += 1
            return
        known = known or self._peer(peer)
        if known.outbox.put(message, part):
            self._wake(known)

    def can_dial(self, peer: NodeId) -> bool:
        """Return whether an address of a peer is known."""
        return bool(self._dialler.book.get(peer))

    def reach(self, peer: NodeId) -> None:
        """Open a link to a peer if there is none; else measure it."""
        refused = self._closing or peer == self.node or self._is_refused(peer)
        if peer in self._up:
            self._ask(self._up[peer])
        elif not refused and self.can_dial(peer):
            self._dial(self._peer(peer))

    def generation(self, peer: NodeId) -> int:
        """Return the generation of the linked peer."""
        return self._up[peer].generation

    def waiting(self, peer: NodeId) -> int:
        """Return how many messages wait for a link to a peer, or for room on it."""
        known = self._peers.get(peer)
        return len(known.outbox) if known is not None else 0

    def take_waiting(self, peer: NodeId) -> list[bytes]:
        """Remove and return the frames queued for a peer, to send them another way."""
        known = self._peers.get(peer)
        if known is None or not len(known.outbox):
            return []
        frames = codec.frames_of(known.outbox.take(known.outbox.bytes))
        self._forget_if_idle(known)
        return frames

    def disconnect(self, peer: NodeId, reason: str) -> None:
        """Cut the link to a peer, and refuse it for a while."""
        self._refused.put(peer, self._clock() + self._settings.refuse_s)
        for connection, link in list(self._links.items()):
            if link.node == peer:
                connection.close(reason, "disconnected")
        if (known := self._peers.get(peer)) is not None:
            known.outbox.clear()
            self._dialler.stop(peer)
            self._forget_if_idle(known)

    async def close(self) -> None:
        """Flush the queues briefly and close all links."""
        self._closing = True
        self._ticker.cancel()
        for server in self._servers:
            server.close()
        self._flush()
        await self._until(self._flushed, self._settings.flush_s)
        for known in self._peers.values():
            known.outbox.clear()
        await self._dialler.close()
        for connection in [*self._lobby.waiting, *self._links]:
            connection.close(LEAVING, "left")
        await self._lobby.close()
        await self._until(lambda: not self._open, self._settings.flush_s)
        for connection in list(self._open):
            connection.hang_up()
        await self._until(lambda: not self._open, self._settings.flush_s)

    # What connections tell us.

    def arrived(self, connection: Connection) -> None:
        """Track a new connection, with a deadline."""
        self._open.add(connection)
        crowd = self._lobby.enter(connection, self._clock())
        if self._closing or len(self._up) >= self._settings.links_max:
            connection.abort("no room", "no room")
            return
        for other in crowd:
            other.abort("too many at the door", "crowded")

    def proved(self, connection: Connection, shown: Shown) -> None:
        """Admit the peer and greet it, or close the connection."""
        node, grant = shown
        if node == self.node:
            connection.close("this is you", "self")
        elif connection.expects not in (None, node):
            connection.close("another node was meant", "wrong id")
        elif self._is_refused(node):
            connection.close("refused for a while", "refused")
        elif grant is None and self._lobby.has_desk and not connection.dialled:
            self._lobby.expect(connection, node)
        elif reason := self._admit(node, grant):
            connection.close(self._told(reason, grant), "not admitted")
        else:
            self._links[connection] = DirectLink(connection, shown, self._clock())
            connection.send(*_frames(codec.encode([self._hello])))

    def took(self, connection: Connection, frame: Frame) -> None:
        """Handle a frame according to the state of its link."""
        if frame.kind == FrameKind.CLOSE:
            connection.abort(f"{IT_SAID}{reason_of(frame.payload)}", "closed by peer")
            return
        link = self._links.get(connection)
        if link is None:
            self._lobby.take(connection, self._read(frame))
        elif link.stage == "up":
            self._on_frame(link, frame)
        elif link.stage == "proved":
            self._on_greeting(link, frame)
        else:
            self._on_selection(link, frame)

    def drained(self, connection: Connection) -> None:
        """Resume sending to a peer that caught up."""
        link = self._links.get(connection)
        if link is not None and link.stage == "up":
            self._wake(self._peers[link.node])

    def ended(self, connection: Connection, why: str, kind: str) -> None:
        """Forget a connection; tell the listener if it was the link."""
        self.counts[kind] += 1
        self._lobby.leave(connection)
        self._note_trouble(connection, why)
        if (dial := self._dials.pop(connection, None)) and not dial.done():
            dial.set_result(why)
        link = self._links.pop(connection, None)
        if link is not None:
            self._on_end_of_link(link)

    def gone(self, connection: Connection) -> None:
        """Forget a connection whose final frames have left."""
        self._open.discard(connection)

    # How a link comes up.

    def _on_greeting(self, link: DirectLink, frame: Frame) -> None:
        messages = self._read(frame)
        if len(messages) != 1 or not isinstance(messages[0], Hello):
            raise ProtocolError("no greeting in the first frame")
        version = codec.agree(self._hello.versions, messages[0].versions)
        if isinstance(version, ProtocolError):
            raise version
        link.generation = messages[0].generation
        link.stage = "greeted"
        link.connection.widen(FRAME_BYTES_MAX)
        if self.node < link.node:
            self._choose(link)

    def _choose(self, link: DirectLink) -> None:
        """Decide between links, as the node with the smaller id.

        An existing link is pinged first: if it answers, the new connection is
        redundant; if it ends, the new one becomes the link.
        """
        known = self._peer(link.node)
        current = known.link
        if current is None:
            self._select(link)
        elif link.generation < current.generation:
            link.connection.close("a later life of yours is here", "duplicate")
        else:
            if known.rival is not None:
                known.rival.connection.close("one of several", "duplicate")
            known.rival = link
            if link.generation > current.generation:
                current.connection.close("you came back", "replaced")
            else:
                self._ask(current)

    def _select(self, link: DirectLink) -> None:
        link.connection.send(framed(FrameKind.SELECT))
        if not link.connection.over:
            self._rise(link)

    def _on_selection(self, link: DirectLink, frame: Frame) -> None:
        if frame.kind != FrameKind.SELECT or self.node < link.node:
            raise ProtocolError("a frame before the link was selected")
        current = self._peer(link.node).link
        if current is not None:
            current.connection.close("another was selected", "replaced")
        self._rise(link)

    def _rise(self, link: DirectLink) -> None:
        """Make this the link to its peer."""
        connection, known = link.connection, self._peer(link.node)
        assert known.link is None
        link.stage = "up"
        known.link, known.rival, known.broke = link, None, False
        self._up[link.node] = link
        self._lobby.leave(connection)
        self._troubles.drop(link.node)
        if settled := self._dials.pop(connection, None):
            settled.set_result("")
            self._dialler.arrive(link.node)
        else:
            self._dialler.stop(link.node)
        self.counts["up"] += 1
        self._listener.connected(link.node, link.grant)
        self._ask(link)
        if len(known.outbox):
            self._wake(known)

    # What happens while it is up.

    def _on_frame(self, link: DirectLink, frame: Frame) -> None:
        now = self._clock()
        link.pulse.hear(now)
        match frame.kind:
            case FrameKind.MESSAGES:
                self._on_messages(link, frame)
            case FrameKind.PING:
                if (
                    link.connection.writable
                ):  # A peer that does not read gets no answers.
                    link.connection.send(framed(FrameKind.PONG, frame.payload))
            case FrameKind.PONG:
                self._on_pong(link, link.pulse.answer(frame.payload, now))
            case _:
                raise ProtocolError("a control frame out of turn")

    def _on_messages(self, link: DirectLink, frame: Frame) -> None:
        try:
            messages = self._read(frame)
        except ProtocolError as error:
            link.bad_frames += 1
            self.counts["bad frame"] += 1
            if link.bad_frames >= BAD_FRAMES_MAX:
                link.connection.close(str(error), error.kind)
            return
        if messages:
            self._listener.received(link.node, messages)

    def _on_pong(self, link: DirectLink, rtt_s: float | None) -> None:
        if rtt_s is None:
            return
        rival = self._peers[link.node].rival
        if rival is not None:
            rival.connection.close("one of two", "duplicate")
        self._listener.measured(link.node, rtt_s)

    def _on_end_of_link(self, link: DirectLink) -> None:
        known = self._peers.get(link.node)
        if known is None:
            return
        if known.rival is link:
            known.rival = None
        if known.link is link:
            known.link, known.broke = None, True
            known.since = self._clock()
            del self._up[link.node]
            if not self._closing:
                self._listener.lost(link.node)
            if known.rival is not None:
                self._select(known.rival)
            else:
                self._try_later(known)
        self._forget_if_idle(known)

    def _ask(self, link: DirectLink) -> None:
        if link.connection.writable:
            question = link.pulse.ask(self._clock())
            link.connection.send(framed(FrameKind.PING, question))

    def _tick(self) -> None:
        """Check timeouts of links, handshakes and queued messages."""
        now = self._clock()
        late_s = now - self._tick_at
        if late_s < LATE_S:
            late_s = 0.0
        self._tick_at = now + TICK_S
        self._ticker = self._loop.call_later(TICK_S, self._tick)
        for connection in self._lobby.late(now, late_s):
            connection.close("too slow", "slow handshake")
        for link in list(self._up.values()):
            self._feel(link, now, late_s)
        for known in list(self._peers.values()):
            known.since += late_s  # Nobody could come while this node stood still.
            if known.link is None and now - known.since >= self._settings.give_up_s:
                known.outbox.clear()
                self._dialler.stop(known.node)
                self._forget_if_idle(known)

    def _feel(self, link: DirectLink, now: float, late_s: float) -> None:
        link.pulse.excuse(late_s)
        is_amid_frame = link.connection.is_amid_frame
        if is_amid_frame:
            link.pulse.look(link.connection.bytes_read, now)
        match link.pulse.due(now, is_amid_frame=is_amid_frame):
            case "lost":
                link.connection.abort("silent", "silent")
            case "ask":
                self._ask(link)
            case None:
                pass

    # Sending.

    def _wake(self, known: Pair) -> None:
        """Schedule a flush for a peer at the end of this turn."""
        if known.link is None:
            self._dial(known)
            return
        if not self._dirty:
            self._loop.call_soon(self._flush)
        self._dirty[known.node] = known

    def _flush(self) -> None:
        dirty, self._dirty = self._dirty, {}
        for known in dirty.values():
            while (
                (link := known.link) is not None
                and link.connection.writable
                and len(known.outbox)
            ):
                parts = known.outbox.take(FLUSH_BYTES)
                link.connection.send(*_frames(codec.frames_of(parts)))

    def _flushed(self) -> bool:
        return not any(
            link.connection.unsent_bytes or len(self._peers[node].outbox)
            for node, link in self._up.items()
        )

    # Dialling.

    def _dial(self, known: Pair) -> None:
        if known.link is not None or self._closing:
            return
        if (
            known.broke
        ):  # Else two peers that disagree would link and part without pause.
            self._dialler.start_later(known.node)
        else:
            self._dialler.start(known.node)

    async def _connect(self, node: NodeId, place: Endpoint) -> None:
        """Connect to one address; return when the link is up, or raise the reason."""
        sock = socket.socket(place.family, socket.SOCK_STREAM)
        connection = Connection(self, self._contexts.dialling, expects=node)
        settled: asyncio.Future[str] = self._loop.create_future()
        self._dials[connection] = settled
        joined = False
        try:
            sock.setblocking(False)
            async with asyncio.timeout(self._settings.handshake_s):
                await self._loop.sock_connect(sock, (place.host, place.port))
            joined = True
            await self._loop.create_connection(lambda: connection, sock=sock)
            why = await settled
        except BaseException:
            self._dials.pop(connection, None)
            connection.abort("dialling stopped", "dial stopped")
            self.gone(connection)  # uvloop does not say so if it comes up just now.
            if not joined:
                sock.close()  # Else it is the transport's, which may yet come up.
            raise
        if why:
            raise ShoalError(f"{place.host} port {place.port}", because=why)

    def _missed(self, node: NodeId, why: str) -> None:
        """Note that a dial is over; it may have led to a link that broke since."""
        known = self._peers.get(node)
        if known is None or known.link is not None:
            return
        if why:
            self.counts["dial failed"] += 1
            self._troubles.put(node, why)
        self._try_later(known)
        self._forget_if_idle(known)

    def _try_later(self, known: Pair) -> None:
        if len(known.outbox) and not self._closing:
            self._dialler.start_later(known.node)

    # Keeping books.

    def _read(self, frame: Frame) -> tuple[AnyMessage, ...]:
        if frame.kind != FrameKind.MESSAGES:
            raise ProtocolError("a control frame out of turn")
        return self._decoder.decode(frame.payload)

    def _peer(self, node: NodeId) -> Pair:
        known = self._peers.get(node)
        if known is None:
            known = Pair(node, Outbox(self._budget), self._clock())
            self._peers[node] = known
        return known

    def _forget_if_idle(self, known: Pair) -> None:
        idle = known.link is None and known.rival is None and not len(known.outbox)
        if idle and not self._dialler.is_busy(known.node):
            self._peers.pop(known.node, None)

    def _is_refused(self, peer: NodeId) -> bool:
        until = self._refused.get(peer)
        return until is not None and self._clock() < until

    def _told(self, reason: str, grant: Grant | None) -> str:
        """Return the reason to tell a stranger, who learns nothing new from it."""
        if grant is None:
            return NO_GRANT
        return reason if grant.shoal == self._grant.shoal else _NOT_A_MEMBER

    def _note_trouble(self, connection: Connection, why: str) -> None:
        link = self._links.get(connection)
        node = link.node if link else connection.expects
        if node is not None:
            self._troubles.put(node, why)

    async def _until(self, condition: Callable[[], bool], timeout_s: float) -> None:
        deadline = self._clock() + timeout_s
        # Polled, because it is asked once in a life, about many things.
        while not condition() and self._clock() < deadline:  # noqa: ASYNC110
            await asyncio.sleep(POLL_S)


def _frames(frames: Sequence[bytes]) -> list[bytes]:
    """Return frames of the codec as frames of a connection."""
    return [framed(FrameKind.MESSAGES, frame) for frame in frames]
