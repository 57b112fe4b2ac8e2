"""All links over streams: admission, and one link per peer.

The opener of a stream greets first and shows its grant; the other side shows nothing
before the node has admitted it. It has a link when the opener has admitted it as well,
which shows in the ping that comes over every new link. If two peers open a stream to
each other at the same time, that of the smaller id stays, on both sides.
"""

from __future__ import annotations

from itertools import chain
from time import monotonic
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVarTuple, final

import trio

from shoal.errors import ProtocolError
from shoal.net.base import LEAVING
from shoal.net.direct.frames import Frame, FrameKind, FrameReader, closing, framed
from shoal.net.libp2p.finding.gossip_guard import Latest
from shoal.net.libp2p.streams.link import StreamLink
from shoal.net.libp2p.thread.notices import (
    Arrived,
    Ended,
    Knocked,
    Measured,
    Moved,
    Opened,
)
from shoal.net.libp2p.thread.trio_calls import scope, start
from shoal.protocol.codec import agree, decode, encode
from shoal.protocol.limits import FRAME_BYTES_MAX
from shoal.protocol.messages import Hello

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from shoal.model.ids import NodeId
    from shoal.net.libp2p.streams.pipe import Pipe
    from shoal.net.libp2p.thread.notices import Happening
    from shoal.net.libp2p.thread.shared_state import SharedState
    from shoal.protocol.messages import AnyMessage, Grant

Args = TypeVarTuple("Args")

PROTOCOL: Final = "/shoal/link/1"
LINKS_MAX: Final = 1_024
OPENINGS_MAX: Final = 64
"""Streams at one time that have not yet greeted: strangers get no more of us."""

HELLO_BYTES_MAX: Final = 16_384
WAITING_MAX: Final = 256  # frames for a peer whose stream is being opened
SHAKE_S: Final = 10.0
LEAVE_S: Final = 1.0
REFUSE_S: Final = 30.0
AGAIN_S: Final = 2.0  # after a peer was not reached
ADMITTED_S: Final = 3_600.0
PEERS_MAX: Final = 4_096
FULL_PAUSE_S: Final = 0.01


class Shaken(NamedTuple):
    """Both sides have greeted. `early` came in the same bytes as the greeting."""

    hello: Hello
    reader: FrameReader
    early: Iterator[Frame]


class LinkRow(NamedTuple):
    """A link that is up."""

    link: StreamLink
    opener: NodeId
    is_relayed: bool
    scope: trio.CancelScope


@final
class StreamLinks:
    """Opens, accepts and ends links over streams."""

    def __init__(
        self,
        shared: SharedState,
        reach: Callable[[NodeId], Awaitable[Pipe | None]],
        is_relayed: Callable[[NodeId], bool],
        nursery: trio.Nursery,
    ) -> None:
        """Get streams by `reach`, which returns None for a peer out of reach.

        `is_relayed` says whether the way to a peer leads through a gate.
        """
        self._shared = shared
        self._counts = shared.counts
        self._reach = reach
        self._is_relayed = is_relayed
        self._nursery = nursery
        self._rows: dict[NodeId, LinkRow] = {}
        self._opening: dict[NodeId, list[bytes]] = {}  # frames that wait
        self._later: dict[NodeId, list[bytes]] = {}  # for the link after this one
        self._settled = trio.Event()  # Set, and replaced, when an opening ends.
        self._judging: dict[int, tuple[trio.Event, list[str | None]]] = {}
        self._stream_seq = 0
        self._shaking = 0
        self._refused: Latest[NodeId, float] = Latest(PEERS_MAX)
        self._missed: Latest[NodeId, float] = Latest(PEERS_MAX)
        self._admitted: Latest[NodeId, float] = Latest(PEERS_MAX)

    def is_member(self, peer: NodeId) -> bool:
        """Return whether a peer was admitted, not long ago, or has a direct link."""
        at = self._admitted.get(peer)
        is_recent = at is not None and monotonic() - at < ADMITTED_S
        return is_recent or peer in self._shared.linked

    def is_refused(self, peer: NodeId) -> bool:
        """Return whether a peer was cut off, not long ago."""
        until = self._refused.get(peer)
        return until is not None and monotonic() < until

    def transmit(self, peer: NodeId, frame: bytes) -> None:
        """Send a frame, and open a link first if there is none."""
        row = self._rows.get(peer)
        if row is not None and row.link.is_leaving:
            later = self._later.setdefault(peer, [])
            if len(later) < WAITING_MAX:
                later.append(frame)
            return
        if row is not None:
            if not row.link.send(frame):
                self._counts["stream-too-slow"] += 1
            return
        waiting = self._opening.get(peer)
        if waiting is None:
            if not self._may_open(peer):
                self._counts["unreachable"] += 1
                return
            waiting = self._opening[peer] = []
            start(self._nursery, self._open, peer)
        if len(waiting) < WAITING_MAX:
            waiting.append(frame)
        else:
            self._counts["stream-too-slow"] += 1

    def open(self, peer: NodeId) -> None:
        """Open a link to a peer if there is none, and none is being opened."""
        if peer not in self._rows and peer not in self._opening:
            self._missed.pop(peer)
            self._opening[peer] = []
            start(self._nursery, self._open, peer)

    def move(self, peer: NodeId) -> None:
        """Close the link to a peer after its queue was sent."""
        row = self._rows.get(peer)
        if row is not None:
            row.link.move()

    def improve(self) -> None:
        """Leave links through gates for new ones, where a hole was punched.

        Only the node with the smaller id does so, or both would, at once.
        """
        for peer, row in self._rows.items():
            if not row.is_relayed or row.link.is_leaving or self._is_relayed(peer):
                continue
            self._counts["hole-punched"] += 1
            if self._shared.node < peer:
                row.link.move()

    def doubt_relayed(self) -> None:
        """See whether the links through gates still work: a gate has gone."""
        for row in self._rows.values():
            if row.is_relayed:
                row.link.doubt()

    async def ensure(self, peer: NodeId) -> bool:
        """Open a link to a peer if there is none; return whether there is one."""
        self.open(peer)
        with trio.move_on_after(SHAKE_S):
            while peer in self._opening:
                await self._settled.wait()
        return peer in self._rows

    async def as_member(
        self, gate: NodeId, ask: Callable[[*Args], Awaitable[bool]], *args: *Args
    ) -> bool:
        """Ask a gate for what it does for members only; return whether it did.

        A link is how it learns that we are one. It may have forgotten an earlier one.
        """
        if self.is_member(gate) and await ask(*args):
            return True
        if gate in self._shared.linked:
            return False  # It knows us, and has another reason.
        return await self.ensure(gate) and await ask(*args)

    def cut(self, peer: NodeId, reason: str) -> None:
        """End the link to a peer, and refuse it for a while."""
        self._refused.put(peer, monotonic() + REFUSE_S)
        self._admitted.pop(peer)
        row = self._rows.pop(peer, None)
        if row is not None:
            row.scope.cancel()
            start(self._nursery, row.link.close, reason)
            start(self._nursery, self._tell, Ended(peer, is_definite=True))

    async def leave(self) -> None:
        """Tell all peers that we go away, for no longer than a moment."""
        rows, self._rows = self._rows, {}
        with trio.move_on_after(LEAVE_S):
            async with trio.open_nursery() as nursery:
                for row in rows.values():
                    row.scope.cancel()
                    start(nursery, row.link.close, LEAVING)

    def judged(self, stream: int, reason: str | None) -> None:
        """Take the node's verdict on a peer that knocked: why it may not come in."""
        waiting = self._judging.pop(stream, None)
        if waiting is not None:
            waiting[1].append(reason)
            waiting[0].set()

    async def on_stream(self, peer: NodeId, pipe: Pipe) -> None:
        """Serve a stream that a peer opened, until it ends."""
        if self.is_refused(peer) or self._shaking >= OPENINGS_MAX:
            self._counts["stream-refused"] += 1
            await pipe.reset()
            return
        await self._carry(peer, pipe, opener=peer)

    async def _open(self, peer: NodeId) -> None:
        pipe = None if self.is_refused(peer) else await self._reach(peer)
        if pipe is None:
            self._missed.put(peer, monotonic() + AGAIN_S)
            lost = self._settle(peer)
            self._counts["unreachable"] += max(1, len(lost))
            return
        try:
            await self._carry(peer, pipe, opener=self._shared.node)
        finally:
            self._settle(peer)

    def _settle(self, peer: NodeId) -> list[bytes]:
        """Note that a stream is up or will not be; return the frames that waited."""
        waiting = self._opening.pop(peer, [])
        self._settled.set()
        self._settled = trio.Event()
        return waiting

    async def _carry(self, peer: NodeId, pipe: Pipe, *, opener: NodeId) -> None:
        shaken = await self._shake(peer, pipe, is_opener=opener == self._shared.node)
        if shaken is None:
            return
        rival = self._rows.get(peer)
        if rival is not None and opener > rival.opener:
            await pipe.close()
            return
        if rival is None and len(self._rows) >= LINKS_MAX:
            self._counts["stream-refused"] += 1
            await pipe.reset()
            return
        row = self._seat(peer, pipe, shaken, opener)
        if rival is not None:
            rival.scope.cancel()
            await self._tell(Ended(peer))
        hello = shaken.hello
        await self._tell(Opened(peer, hello.grant, hello.generation, row.is_relayed))
        await self._take(peer, (shaken.hello,))
        with row.scope:
            await row.link.run(shaken.early)
        if self._rows.get(peer) is row:
            del self._rows[peer]
            await self._tell(Ended(peer, is_definite=row.link.end == "closed"))
            if row.link.end == "moved":
                self._reopen(peer)
        await pipe.close()

    def _seat(
        self, peer: NodeId, pipe: Pipe, shaken: Shaken, opener: NodeId
    ) -> LinkRow:
        async def take(messages: tuple[AnyMessage, ...]) -> None:
            await self._take(peer, messages)

        def measured(rtt_s: float) -> None:
            self._shared.notices.put(Measured(peer, rtt_s))

        async def moved() -> None:
            link.move()  # The other side leaves as well.
            await self._tell(Moved(peer))

        link = StreamLink(pipe, shaken.reader, take, measured, moved, self._counts)
        row = self._rows[peer] = LinkRow(link, opener, self._is_relayed(peer), scope())
        for frame in (*self._later.pop(peer, ()), *self._settle(peer)):
            link.send(frame)
        return row

    def _reopen(self, peer: NodeId) -> None:
        """Go on over another stream, if there is something to say and no better way."""
        if peer in self._shared.linked:
            self._later.pop(peer, None)
        elif self._shared.node < peer:
            self.open(peer)
        elif peer in self._later:
            start(self._nursery, self._open_later, peer)

    async def _open_later(self, peer: NodeId) -> None:
        """Open a link, unless the peer, whose turn it is, has done so first."""
        await trio.sleep(AGAIN_S)
        self.open(peer)

    async def _shake(
        self, peer: NodeId, pipe: Pipe, *, is_opener: bool
    ) -> Shaken | None:
        """Greet, and let the node judge; None, and a closed stream, if that fails."""
        self._shaking += 1
        shaken: Shaken | None = None
        try:
            with trio.move_on_after(SHAKE_S):
                if is_opener:
                    await pipe.write(self._greeting())
                heard = await _read_hello(pipe)
                reason = await self._objection(peer, heard.hello)
                if reason is not None:
                    await pipe.write(closing(reason))
                elif is_opener:
                    shaken = heard
                else:
                    await pipe.write(self._greeting())
                    shaken = await _until_admitted(pipe, heard)
        except trio.BrokenResourceError:
            self._counts["stream-broken"] += 1
        except ProtocolError as error:
            self._counts[f"stream-{error.kind}"] += 1
        finally:
            self._shaking -= 1
        if shaken is None:
            self._counts["stream-refused"] += 1
            await pipe.close()
        return shaken

    def _greeting(self) -> bytes:
        (frame,) = encode([self._shared.greeting.hello()])
        return framed(FrameKind.MESSAGES, frame)

    async def _objection(self, peer: NodeId, hello: Hello) -> str | None:
        """Return why a peer may not come in; None if it may."""
        version = agree(self._shared.greeting.hello().versions, hello.versions)
        if isinstance(version, ProtocolError):
            self._counts["stream-version"] += 1
            return str(version)
        reason = await self._judge(peer, hello.grant)
        if reason is None:
            self._admitted.put(peer, monotonic())
            self._shared.guard.trust(peer, monotonic())
        return reason

    async def _judge(self, peer: NodeId, grant: Grant | None) -> str | None:
        self._stream_seq += 1
        number = self._stream_seq
        decided, verdict = self._judging[number] = (trio.Event(), [])
        try:
            await self._tell(Knocked(peer, number, grant))
            await decided.wait()
        finally:
            self._judging.pop(number, None)
        return verdict[0]

    async def _take(self, peer: NodeId, messages: tuple[AnyMessage, ...]) -> None:
        await self._tell(Arrived(peer, messages))

    async def _tell(self, happening: Happening) -> None:
        """Hand over, and wait for room: what came over a link is not dropped."""
        while self._shared.notices.full:  # noqa: ASYNC110 - another thread's pace
            await trio.sleep(FULL_PAUSE_S)
        self._shared.notices.put(happening)

    def _may_open(self, peer: NodeId) -> bool:
        until = self._missed.get(peer)
        return not self.is_refused(peer) and (until is None or monotonic() >= until)


async def _read_hello(pipe: Pipe) -> Shaken:
    """Read the first frame; raise `ProtocolError` if it is no greeting."""
    reader = FrameReader(HELLO_BYTES_MAX)
    frames: Iterator[Frame] = iter(())
    first: Frame | None = None
    while first is None:
        data = await pipe.read()
        if not data:
            raise trio.BrokenResourceError
        frames = reader.feed(data)
        first = next(frames, None)
    reader.bytes_max = FRAME_BYTES_MAX
    messages = decode(first.payload) if first.kind is FrameKind.MESSAGES else ()
    if len(messages) != 1 or not isinstance(messages[0], Hello):
        raise ProtocolError("no greeting")
    return Shaken(messages[0], reader, frames)


async def _until_admitted(pipe: Pipe, heard: Shaken) -> Shaken | None:
    """Wait for the opener's verdict on our grant; None if it wants no link."""
    frames = heard.early
    while (first := next(frames, None)) is None:
        data = await pipe.read()
        if not data:
            return None
        frames = heard.reader.feed(data)
    if first.kind is FrameKind.CLOSE:
        return None
    return heard._replace(early=chain((first,), frames))
