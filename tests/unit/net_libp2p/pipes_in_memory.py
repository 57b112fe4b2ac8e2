"""Streams in memory, and loops of trio in virtual time."""

from collections import Counter
from collections.abc import Awaitable, Callable

import trio
from trio.testing import MockClock

from shoal.net.direct.frames import Frame, FrameKind, FrameReader, framed
from shoal.net.libp2p.streams.link import StreamLink
from shoal.protocol.codec import encode
from shoal.protocol.messages import AnyMessage


class End:
    """One end of a pipe. A peer that is `deaf` does not take in what it gets."""

    def __init__(self) -> None:
        self.written = bytearray()
        self.is_closed = False
        self.other: End | None = None
        self.deaf = False
        self._sender, self._receiver = trio.open_memory_channel[bytes](10_000)

    async def read(self) -> bytes:
        if self.deaf:
            await trio.sleep_forever()
        try:
            return await self._receiver.receive()
        except trio.EndOfChannel:
            return b""

    async def write(self, data: bytes) -> None:
        assert self.other is not None
        if self.is_closed or self.other.is_closed:
            raise trio.BrokenResourceError
        self.written += data
        await self.other._sender.send(data)

    async def close(self) -> None:
        self.is_closed = True
        if self.other is not None:
            self.other._sender.close()
        await trio.lowlevel.checkpoint()

    async def reset(self) -> None:
        await self.close()

    def said(self) -> list[Frame]:
        """Return the frames that were written here."""
        return list(FrameReader().feed(bytes(self.written)))


def pipe() -> tuple[End, End]:
    """Return the two ends of a stream."""
    one, other = End(), End()
    one.other, other.other = other, one
    return one, other


def framed_messages(*messages: AnyMessage) -> bytes:
    """Return one frame with these messages, as it is on the wire."""
    (frame,) = encode(messages)
    return framed(FrameKind.MESSAGES, frame)


class Side:
    """A link on one end of a pipe, and what came out of it."""

    def __init__(self, end: End) -> None:
        self.end = end
        self.taken: list[AnyMessage] = []
        self.rtts: list[float] = []
        self.counts: Counter[str] = Counter()
        self.moves = 0
        self.link = StreamLink(
            end,
            FrameReader(),
            self._take,
            self.rtts.append,
            self._note_move,
            self.counts,
        )

    async def _note_move(self) -> None:
        self.moves += 1
        await trio.lowlevel.checkpoint()

    async def _take(self, messages: tuple[AnyMessage, ...]) -> None:
        self.taken += messages
        await trio.lowlevel.checkpoint()


def run(work: Callable[[], Awaitable[None]]) -> None:
    """Run a loop of trio whose clock jumps to whatever is next."""
    trio.run(work, clock=MockClock(autojump_threshold=0))
