"""A link over a stream: frames in order, never more than the peer takes in.

The frames are those of direct links. Pings do two things besides telling that the
peer lives: they measure the way, and they are the flow control. A peer answers a ping
when it has taken in all that was before it, so a sender never has more than `WINDOW`
bytes under way, and the stream below, which gives up after five seconds without room
(trap 5), never runs out of it.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final, Literal, final

import trio

from shoal.errors import ProtocolError
from shoal.net.direct.frames import Frame, FrameKind, FrameReader, closing, framed
from shoal.net.libp2p.thread.trio_calls import start
from shoal.protocol.codec import Decoder

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Awaitable, Callable, Iterable

    from shoal.net.libp2p.streams.pipe import Pipe
    from shoal.protocol.messages import AnyMessage

WINDOW_BYTES: Final = 128 * 1024
QUEUE_BYTES_MAX: Final = 4 << 20
CONTROLS_MAX: Final = 64
PINGS_MAX: Final = 16
PING_S: Final = 1.5
SILENCE_S: Final = 5.0
DOUBT_S: Final = 1.0
"""How long a link that is in doubt may be silent."""

PARTING_S: Final = 5.0
"""How long a link that was left for another waits for the other side to follow."""

End = Literal["broken", "closed", "silent", "moved"]
"""How a link came to its end: by accident, by the peer, or in favour of another."""


@final
class StreamLink:
    """One stream to one peer. One task writes; all others queue."""

    def __init__(
        self,
        pipe: Pipe,
        reader: FrameReader,
        take: Callable[[tuple[AnyMessage, ...]], Awaitable[None]],
        measured: Callable[[float], None],
        moved: Callable[[], Awaitable[None]],
        counts: Counter[str],
    ) -> None:
        """Hand over by `take`, and tell by `moved` that nothing more will come."""
        self.end: End = "broken"  # how it ended, once `run` is over
        self._pipe = pipe
        self._reader = reader
        self._take = take
        self._measured = measured
        self._moved = moved
        self._counts = counts
        self._decoder = Decoder()
        self._frames: deque[bytes] = deque()
        self._queued_bytes = 0  # of frames; at most QUEUE_BYTES_MAX
        self._controls: deque[bytes] = deque()  # at most CONTROLS_MAX
        self._work = trio.Event()
        self._sent_bytes = 0  # in frames of messages, since the beginning
        self._taken_bytes = 0  # of those, taken in by the peer for sure
        self._asked_bytes = 0  # of those, before the last ping
        self._pings: deque[tuple[bytes, float, int]] = deque()  # not yet answered
        self._ping_seq = 0
        self._heard_at = trio.current_time()
        self._leaving = False  # We have, or will have, said that nothing follows.
        self._left = False  # We have said so.
        self._is_left = False  # The peer has said so.

    def send(self, frame: bytes) -> bool:
        """Queue a frame of the codec; return False if the peer is too slow for it."""
        if self._leaving or self._queued_bytes + len(frame) > QUEUE_BYTES_MAX:
            return False
        self._frames.append(framed(FrameKind.MESSAGES, frame))
        self._queued_bytes += len(frame)
        self._work.set()
        return True

    def doubt(self) -> None:
        """Ask at once whether the peer lives, and give it less time to answer."""
        self._heard_at = min(self._heard_at, trio.current_time() - SILENCE_S + DOUBT_S)
        if len(self._pings) < PINGS_MAX:
            self._control(self._ping())

    @property
    def is_leaving(self) -> bool:
        """Whether it takes nothing more to send."""
        return self._leaving

    def move(self) -> None:
        """Send what is queued and then no more; end when the peer does the same."""
        self._leaving = True
        self._work.set()

    async def run(self, early: Iterable[Frame]) -> None:
        """Carry frames until the link breaks, falls silent or is cancelled.

        `early` came before the link was up, together with what opened it.
        """
        async with trio.open_nursery() as nursery:
            start(nursery, self._write_all, nursery.cancel_scope)
            start(nursery, self._ping_now_and_then, nursery.cancel_scope)
            await self._read_all(early)
            nursery.cancel_scope.cancel()

    async def close(self, reason: str) -> None:
        """Say why nothing follows, and end the stream. Only after `run` is over."""
        try:
            await self._pipe.write(closing(reason))
        except trio.BrokenResourceError:
            await self._pipe.reset()
        await self._pipe.close()

    async def _read_all(self, early: Iterable[Frame]) -> None:
        try:
            frames = early
            while await self._take_in(frames):
                data = await self._pipe.read()
                if not data:
                    return
                self._heard_at = trio.current_time()
                frames = self._reader.feed(data)
        except trio.BrokenResourceError:
            self._counts["stream-broken"] += 1
        except ProtocolError as error:
            self._counts[f"stream-{error.kind}"] += 1

    async def _take_in(self, frames: Iterable[Frame]) -> bool:
        """Act on frames, in order; return whether the link goes on."""
        for frame in frames:
            match frame.kind:
                case FrameKind.MESSAGES:
                    messages = self._decoder.decode(frame.payload)
                    if messages:
                        await self._take(messages)
                case FrameKind.PING:
                    if len(self._controls) >= CONTROLS_MAX:
                        self._counts["stream-ping-flood"] += 1
                        return False
                    self._control(framed(FrameKind.PONG, frame.payload))
                case FrameKind.PONG:
                    self._on_pong(frame.payload)
                case FrameKind.SELECT:
                    pass  # There is one stream to a peer: nothing to select.
                case FrameKind.CLOSE:
                    self.end = "closed"
                    return False
                case FrameKind.MOVED:
                    self._is_left = True
                    await self._moved()
        return not self._is_over()

    def _is_over(self) -> bool:
        """Whether both sides have moved, so that there is nothing left to wait for."""
        return self._left and self._is_left

    def _on_pong(self, payload: bytes) -> None:
        if not self._pings or self._pings[0][0] != payload:
            return  # Pongs come in the order of the pings; this one is made up.
        _, asked_at, taken_bytes = self._pings.popleft()
        self._taken_bytes = taken_bytes
        self._measured(trio.current_time() - asked_at)
        self._work.set()

    async def _write_all(self, scope: trio.CancelScope) -> None:
        try:
            while True:
                await self._work.wait()
                self._work = trio.Event()
                while self._controls or self._may_send():
                    await self._pipe.write(self._next())
                if self._leaving and not self._left and not self._frames:
                    await self._part(scope)
        except trio.BrokenResourceError:
            scope.cancel()

    async def _part(self, scope: trio.CancelScope) -> None:
        """Say that nothing follows, and wait no longer than need be for the peer."""
        await self._pipe.write(framed(FrameKind.MOVED))
        self._left, self.end = True, "moved"
        if self._is_over():
            scope.cancel()
        else:
            scope.deadline = trio.current_time() + PARTING_S

    def _may_send(self) -> bool:
        under_way = self._sent_bytes - self._taken_bytes
        return bool(self._frames) and under_way < WINDOW_BYTES

    def _next(self) -> bytes:
        """Return what is to be written next; control goes before messages."""
        if self._controls:
            return self._controls.popleft()
        data = self._frames.popleft()
        self._queued_bytes -= len(data) - 4
        self._sent_bytes += len(data)
        if self._sent_bytes - self._asked_bytes >= WINDOW_BYTES // 2:
            data += self._ping()  # Behind the frame, in the same write.
        return data

    def _ping(self) -> bytes:
        self._ping_seq += 1
        payload = self._ping_seq.to_bytes(8, "big")
        self._pings.append((payload, trio.current_time(), self._sent_bytes))
        self._asked_bytes = self._sent_bytes
        return framed(FrameKind.PING, payload)

    def _control(self, data: bytes) -> None:
        self._controls.append(data)
        self._work.set()

    async def _ping_now_and_then(self, scope: trio.CancelScope) -> None:
        while True:
            if len(self._pings) < PINGS_MAX:
                self._control(self._ping())
            await trio.sleep(PING_S)
            if trio.current_time() - self._heard_at > SILENCE_S:
                self._counts["stream-silent"] += 1
                self.end = "silent"
                scope.cancel()
