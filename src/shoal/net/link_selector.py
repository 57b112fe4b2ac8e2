"""One link to each peer: direct if possible, else a libp2p stream.

A send first tries a direct link; a moment later it tries a stream as well, and the
first to come up is the link. While a stream is the link, a direct one is tried now and
then. When it comes up, both sides announce on the stream that they have moved, and
messages over the new link wait for that announcement: order is kept, and the host
notices nothing.

A stream that breaks, as all do when libp2p restarts, may be reopened within a few
seconds before the host is told that the peer is lost. After a reopening the host is
told of a new link, because messages under way are lost and must be repeated. A broken
direct link is reported at once: that is how a crash is noticed.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, Final, Generic, Literal, Protocol, TypeVar, final

import msgspec

from shoal.model.addresses import direct_ones, stream_ones
from shoal.model.backoff import Backoff

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from shoal.model.ids import NodeId
    from shoal.net.base import LinkListener, Listener
    from shoal.protocol.messages import AnyMessage, Grant

HEAD_START_S: Final = 1.0
"""Head start of a direct link before a stream is tried as well."""

AGAIN: Final = Backoff(1.0, 16.0)
LIMBO_S: Final = 6.0
"""How long a stream that broke may be down before the peer counts as lost."""

WANTED_S: Final = 20.0
HANDOVER_S: Final = 5.0
HELD_MAX: Final = 4_096
UPGRADE: Final = Backoff(5.0, 300.0)

Path = Literal["direct", "stream", "relay", ""]


class Direct(Protocol):
    """The part of `DirectLinks` that the selector needs."""

    @property
    def addresses(self) -> tuple[str, ...]:
        """Return where this node can be dialled."""
        ...

    def know(self, peer: NodeId, addresses: Sequence[str]) -> None:
        """Remember where a peer may be dialled."""
        ...

    def can_dial(self, peer: NodeId) -> bool:
        """Return whether an address of a peer is known."""
        ...

    def reach(self, peer: NodeId) -> None:
        """Open a link to a peer if there is none; else measure it."""
        ...

    def send(self, peer: NodeId, message: AnyMessage) -> None:
        """Queue a message for a link, and dial if there is none."""
        ...

    def waiting(self, peer: NodeId) -> int:
        """Return how many messages wait."""
        ...

    def trouble(self, peer: NodeId) -> str:
        """Return why there is no link to a peer."""
        ...

    def take_waiting(self, peer: NodeId) -> list[bytes]:
        """Take what waits, as frames."""
        ...

    def generation(self, peer: NodeId) -> int:
        """Return the generation of a linked peer."""
        ...

    def disconnect(self, peer: NodeId, reason: str) -> None:
        """Cut the link to a peer, and refuse it for a while."""
        ...

    async def close(self) -> None:
        """End all links."""
        ...


class StreamTransport(Protocol):
    """The part of `Libp2p` that the selector needs."""

    @property
    def addresses(self) -> tuple[str, ...]:
        """Return where this node can be reached by streams."""
        ...

    @property
    def is_started(self) -> bool:
        """Whether there is any use in opening one."""
        ...

    def know(self, peer: NodeId, addresses: Sequence[str]) -> None:
        """Remember where a peer may be reached."""
        ...

    def open(self, peer: NodeId) -> None:
        """Open a stream to a peer if there is none."""
        ...

    def send(self, peer: NodeId, message: AnyMessage) -> None:
        """Queue a message for a stream."""
        ...

    def transmit(self, peer: NodeId, frames: Sequence[bytes]) -> None:
        """Queue frames for a stream."""
        ...

    def move(self, peer: NodeId) -> None:
        """Send what is queued, and let the stream end."""
        ...

    def note_link(self, peer: NodeId, *, is_up: bool) -> None:
        """Take note of a direct link."""
        ...

    def disconnect(self, peer: NodeId, reason: str) -> None:
        """End the stream to a peer, and refuse it for a while."""
        ...


class _Stream(msgspec.Struct):
    """A stream that is up."""

    grant: Grant | None
    generation: int
    is_relayed: bool
    moved_out: bool = False  # We say no more over it.
    moved_in: bool = False  # Nor does the peer.


class _Seeking(msgspec.Struct):
    """A peer that is wanted and not linked yet."""

    timer: asyncio.Handle
    until: float  # Afterwards it goes on only while messages wait.
    tries: int = 0


D = TypeVar("D", bound=Direct)
S = TypeVar("S", bound=StreamTransport)


@final
class LinkSelector(Generic[D, S]):
    """Implements `Links` with direct links and streams, for one listener.

    Create it on a running loop. Links and streams report to the selector, so it has
    them made: each is given its listener, and reports nothing while it is made.
    """

    def __init__(
        self,
        node: NodeId,
        listener: Listener,
        *,
        direct: Callable[[LinkListener], D],
        streams: Callable[[LinkSelector[D, S]], S] | None,
        dials: bool = True,
    ) -> None:
        """Select between direct links and streams; without `dials`, open no links."""
        self.node: Final = node
        self.counts: Counter[str] = Counter()
        self._listener = listener
        self._loop = asyncio.get_running_loop()
        self._dials = dials
        self._linked: dict[NodeId, None] = {}  # by a direct link
        self._open: dict[NodeId, _Stream] = {}
        # Peers that the listener takes for connected, and in which of their lives.
        self._told: dict[NodeId, int] = {}
        self._held: dict[NodeId, list[AnyMessage]] = {}  # came before their turn
        self._limbo: dict[NodeId, asyncio.TimerHandle] = {}
        self._seeking: dict[NodeId, _Seeking] = {}
        self._upgrades: dict[NodeId, asyncio.TimerHandle] = {}
        self._rtts: dict[NodeId, float] = {}  # of linked peers, in seconds
        self._pings: dict[NodeId, list[asyncio.Future[float]]] = {}  # that wait
        self._closing = False
        self.direct: Final = direct(self)
        self.streams: Final = streams(self) if streams is not None else None

    # What the host calls.

    @property
    def addresses(self) -> tuple[str, ...]:
        """Return where this node can be reached, the best first."""
        streams = self.streams.addresses if self.streams is not None else ()
        return (*self.direct.addresses, *streams)

    @property
    def peers(self) -> tuple[NodeId, ...]:
        """Return the peers that are linked now."""
        return tuple(peer for peer in self._told if peer not in self._limbo)

    def path(self, peer: NodeId) -> Path:
        """Return the path by which a peer is linked."""
        if peer in self._linked:
            return "direct"
        if (stream := self._open.get(peer)) is not None:
            return "relay" if stream.is_relayed else "stream"
        return ""

    def trouble(self, peer: NodeId) -> str:
        """Return why there is no direct link to a peer, as far as is known."""
        return self.direct.trouble(peer)

    async def ping(self, peer: NodeId) -> float:
        """Return how long a round trip to a linked peer takes now.

        A direct link is asked at once; a stream asks by itself every few seconds. Lasts
        until there is an answer: the caller knows how long to wait.
        """
        answer: asyncio.Future[float] = self._loop.create_future()
        self._pings.setdefault(peer, []).append(answer)
        try:
            if peer in self._linked:
                self.direct.reach(peer)
            return await answer
        finally:
            self._pings[peer].remove(answer)
            if not self._pings[peer]:
                del self._pings[peer]

    def rtt_s(self, peer: NodeId) -> float | None:
        """Return the measured round-trip time to a linked peer."""
        return self._rtts.get(peer)

    def know(self, peer: NodeId, addresses: Sequence[str]) -> None:
        """Remember where a peer may be reached, by either way."""
        if peer == self.node:
            return
        if self._dials and (direct := direct_ones(addresses)):
            self.direct.know(peer, direct)
            if peer in self._open:
                self.direct.reach(peer)
        if self.streams is not None and stream_ones(addresses):
            self.streams.know(peer, addresses)
            self._hurry(peer)

    def reach(self, peer: NodeId) -> None:
        """Open a link to a peer if there is none, without a message to send."""
        if peer != self.node and not self.path(peer):
            self.direct.reach(peer)
            self._seek(peer, WANTED_S)

    def send(self, peer: NodeId, message: AnyMessage) -> None:
        """Queue a message; without room or path it is dropped."""
        if peer not in self._linked:
            stream = self._open.get(peer)
            if stream is not None and self.streams is not None:
                self.streams.send(peer, message)
                return
            self._seek(peer, 0.0)
        self.direct.send(peer, message)

    def disconnect(self, peer: NodeId, reason: str) -> None:
        """Cut the link to a peer, and refuse it for a while."""
        was_told = self._told.pop(peer, None) is not None
        self._open.pop(peer, None)
        self._held.pop(peer, None)
        self._settle(peer)
        self.direct.disconnect(peer, reason)
        if self.streams is not None:
            self.streams.disconnect(peer, reason)
        if was_told:
            self._listener.lost(peer)

    async def close(self) -> None:
        """Flush the queues briefly and close all direct links."""
        self._closing = True
        for peer in [*self._seeking, *self._limbo, *self._upgrades]:
            self._settle(peer)
        await self.direct.close()

    # What happens to direct links: this is their `LinkListener`.

    def connected(self, peer: NodeId, grant: Grant | None) -> None:
        """Make a direct link the path to a peer."""
        generation = self.direct.generation(peer)
        was_down = peer in self._limbo or peer not in self._told
        self._linked[peer] = None
        self._settle(peer)
        if self.streams is not None:
            self.streams.note_link(peer, is_up=True)
        stream = self._open.get(peer)
        if stream is not None:
            self._hand_over(peer, stream)
        if self._told.get(peer) != generation:
            self._held.pop(peer, None)
            self._tell_connected(peer, grant, generation)
        elif was_down:
            self._listener.connected(peer, grant)
        else:
            self.counts["upgraded"] += 1

    def lost(self, peer: NodeId) -> None:
        """Fall back to the stream, if there is one; the listener hears of the break."""
        self._linked.pop(peer, None)
        self._release(peer)
        if self.streams is not None:
            self.streams.note_link(peer, is_up=False)
        if self._told.pop(peer, None) is None:
            return
        self._rtts.pop(peer, None)
        self._listener.lost(peer)
        stream = self._open.get(peer)
        if stream is not None and stream.moved_out:
            del self._open[peer]  # It ends by itself.
        elif stream is not None:
            self._use(peer, stream)
        elif self.direct.waiting(peer):
            self._seek(peer, 0.0)

    def received(self, peer: NodeId, messages: Sequence[AnyMessage]) -> None:
        """Deliver messages of a direct link, after those of the stream."""
        held = self._held.get(peer)
        if held is None:
            self._listener.received(peer, messages)
            return
        held.extend(messages)
        if len(held) > HELD_MAX:
            self._release(peer)

    def measured(self, peer: NodeId, rtt_s: float) -> None:
        """Note how far away a peer is."""
        if peer in self._told:
            self._rtts[peer] = rtt_s
            self._listener.measured(peer, rtt_s)
            for answer in self._pings.get(peer, ()):
                if not answer.done():
                    answer.set_result(rtt_s)

    # What happens to streams; messages of streams go to the listener at once.

    def opened(
        self, peer: NodeId, grant: Grant | None, *, generation: int, is_relayed: bool
    ) -> None:
        """Make a stream the path to a peer, unless there is a direct link."""
        stream = self._open[peer] = _Stream(grant, generation, is_relayed)
        if peer in self._linked:
            self._hand_over(peer, stream)
        else:
            self._use(peer, stream)

    def moved(self, peer: NodeId) -> None:
        """Deliver held messages: the peer has left the stream."""
        if (stream := self._open.get(peer)) is not None:
            stream.moved_in = True
        self._release(peer)

    def ended(self, peer: NodeId, *, is_definite: bool) -> None:
        """Drop a stream that ended, or wait for it to reopen."""
        stream = self._open.pop(peer, None)
        self._release(peer)
        if stream is None or peer in self._linked or peer not in self._told:
            return
        self._settle(peer)
        if is_definite or stream.moved_out:
            self._give_up(peer)
            return
        self.counts["limbo"] += 1
        self._limbo[peer] = self._loop.call_later(LIMBO_S, self._give_up, peer)
        self.direct.reach(peer)
        # One side begins, or two new streams would get in each other's way.
        self._seek(peer, LIMBO_S, delay_s=0.0 if self.node < peer else AGAIN.first_s)

    def stream_measured(self, peer: NodeId, rtt_s: float) -> None:
        """Note how far away a peer is by the stream, if that is the way."""
        if peer not in self._linked:
            self.measured(peer, rtt_s)

    # How ways change.

    def _use(self, peer: NodeId, stream: _Stream) -> None:
        """Send everything over a stream, queued messages first."""
        assert self.streams is not None
        was_down = peer in self._limbo
        self._settle(peer)
        if self._told.get(peer) != stream.generation:
            self._tell_connected(peer, stream.grant, stream.generation)
        elif was_down:
            self._listener.connected(peer, stream.grant)
        if frames := self.direct.take_waiting(peer):
            self.streams.transmit(peer, frames)
        self._plan_upgrade(peer, 0)

    def _hand_over(self, peer: NodeId, stream: _Stream) -> None:
        """Move from the stream to the direct link; hold early messages."""
        assert self.streams is not None
        if not stream.moved_out:
            stream.moved_out = True
            self.streams.move(peer)
        if not stream.moved_in and peer not in self._held:
            held = self._held[peer] = []
            self._loop.call_later(HANDOVER_S, self._hold_no_longer, peer, held)

    def _hold_no_longer(self, peer: NodeId, held: list[AnyMessage]) -> None:
        if self._held.get(peer) is held:
            self._release(peer)

    def _release(self, peer: NodeId) -> None:
        if held := self._held.pop(peer, None):
            self._listener.received(peer, held)

    def _tell_connected(
        self, peer: NodeId, grant: Grant | None, generation: int
    ) -> None:
        if self._told.pop(peer, None) is not None:
            self._listener.lost(peer)  # That was another life of it.
        self._told[peer] = generation
        self._listener.connected(peer, grant)

    def _give_up(self, peer: NodeId) -> None:
        self._settle(peer)
        self._rtts.pop(peer, None)
        if self._told.pop(peer, None) is not None:
            self._listener.lost(peer)

    def _settle(self, peer: NodeId) -> None:
        """Stop looking for a path: there is one, or none is wanted."""
        if (limbo := self._limbo.pop(peer, None)) is not None:
            limbo.cancel()
        if (seeking := self._seeking.pop(peer, None)) is not None:
            seeking.timer.cancel()
        if (upgrade := self._upgrades.pop(peer, None)) is not None:
            upgrade.cancel()

    # Looking for a way.

    def _seek(self, peer: NodeId, for_s: float, delay_s: float | None = None) -> None:
        """Try a stream soon, if there is no link by then, and again for a while."""
        if self.streams is None or self._closing:
            return
        until = self._loop.time() + for_s
        if (seeking := self._seeking.get(peer)) is not None:
            seeking.until = max(seeking.until, until)
            return
        if delay_s is None:
            delay_s = HEAD_START_S if self.direct.can_dial(peer) else 0.0
        timer = self._loop.call_later(delay_s, self._try_stream, peer)
        self._seeking[peer] = _Seeking(timer, until)

    def _try_stream(self, peer: NodeId) -> None:
        seeking = self._seeking.pop(peer)
        is_wanted = self.direct.waiting(peer) or self._loop.time() < seeking.until
        if self.streams is None or self.path(peer) or not is_wanted:
            return
        if self.streams.is_started:
            self.streams.open(peer)
        pause_s = AGAIN.pause_s(seeking.tries)
        seeking.timer = self._loop.call_later(pause_s, self._try_stream, peer)
        seeking.tries += 1
        self._seeking[peer] = seeking

    def _hurry(self, peer: NodeId) -> None:
        """Try again at once, because there may be a new address."""
        seeking = self._seeking.get(peer)
        if seeking is not None and seeking.tries:
            seeking.timer.cancel()
            seeking.timer = self._loop.call_soon(self._try_stream, peer)

    def _plan_upgrade(self, peer: NodeId, tries: int) -> None:
        pause_s = UPGRADE.pause_s(tries)
        self._upgrades[peer] = self._loop.call_later(
            pause_s, self._upgrade, peer, tries
        )

    def _upgrade(self, peer: NodeId, tries: int) -> None:
        del self._upgrades[peer]
        if peer in self._open and peer not in self._linked:
            self.direct.reach(peer)
            self._plan_upgrade(peer, tries + 1)
