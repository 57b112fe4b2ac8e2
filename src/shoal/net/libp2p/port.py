"""The node's view of libp2p: an object on the event loop that never blocks.

It obeys `Finder`, and `Links` for peers that no direct link reaches. Orders go to the
thread of libp2p, and what happens there comes back, through lanes with limits; what
is said while the host is down waits within these limits.
"""

from __future__ import annotations

import asyncio
import importlib.util
import threading
from typing import TYPE_CHECKING, Final, assert_never, final

from shoal.errors import ProtocolError
from shoal.model.addresses import as_stream, stream_ones
from shoal.model.directory import branches
from shoal.net.libp2p.finding import address_book
from shoal.net.libp2p.thread import notices
from shoal.net.libp2p.thread.shared_state import BATCH, SharedState
from shoal.protocol.codec import encode, encode_gossip
from shoal.protocol.messages import Announcement, LoadDigest, Revocation

if TYPE_CHECKING:
    from collections.abc import Sequence

    from shoal.model.ids import NodeId
    from shoal.net.base import StreamListener
    from shoal.net.identity.identity import Identity
    from shoal.net.libp2p.settings import Greeting, Libp2pSettings
    from shoal.net.libp2p.thread.notices import Happening
    from shoal.net.libp2p.thread.shared_state import Order
    from shoal.protocol.messages import AnyMessage

LEAVE_S: Final = 5.0


def is_installed() -> bool:
    """Whether this Python has libp2p; `pip install shoal` alone does not bring it."""
    return importlib.util.find_spec("libp2p") is not None


@final
class Libp2p:
    """The libp2p side of a node. All calls are made on one event loop."""

    def __init__(
        self,
        identity: Identity,
        settings: Libp2pSettings,
        greeting: Greeting,
        listener: StreamListener,
    ) -> None:
        """Prepare, but start nothing and load nothing."""
        self.ready = asyncio.Event()  # Set once, when the first host listens.
        self.stopped_because = ""  # why the last host died, if one did
        self._shared = SharedState(identity, settings, greeting)
        self._listener = listener
        self._loop = asyncio.get_running_loop()
        self._thread: threading.Thread | None = None
        self._is_down = False  # A host died, and the next one is not up yet.
        self._reachable: tuple[str, ...] = ()
        self._circuits: tuple[str, ...] = ()
        self._open: dict[NodeId, None] = {}  # peers whose stream is up, in order
        self._unsent: dict[NodeId, list[AnyMessage]] = {}  # of this turn

    def start(self) -> None:
        """Start the thread; libp2p must be installed."""
        self._shared.notices.attach(self._wake)
        self._thread = threading.Thread(
            target=_serve, args=(self._shared,), name="shoal-libp2p", daemon=True
        )
        self._thread.start()

    @property
    def is_started(self) -> bool:
        """Whether it was started, be its host up or not."""
        return self._thread is not None

    @property
    def is_up(self) -> bool:
        """Whether a host runs now."""
        return self.ready.is_set() and not self._is_down

    @property
    def counts(self) -> dict[str, int]:
        """How often what happened, by name; also what was dropped on the way."""
        shared = self._shared
        return {
            **dict(shared.counts),
            **{f"gossip-{k}": n for k, n in dict(shared.guard.counts).items()},
            "orders-dropped": shared.orders.dropped,
            "happenings-dropped": shared.notices.dropped,
        }

    @property
    def addresses(self) -> tuple[str, ...]:
        """Where this node can be reached by streams, itself and through gates."""
        node = self._shared.node
        return (*(as_stream(a, node) for a in self._reachable), *self._circuits)

    # Finder.

    def publish(self, message: AnyMessage) -> None:
        """Gossip to the whole shoal."""
        self._gossip(message, is_near=False)

    def spread(self, message: AnyMessage) -> None:
        """Tell the neighbours, who do not pass it on."""
        self._gossip(message, is_near=True)

    def look_up(self, lookup: int, key: str, limit: int) -> None:
        """Ask the DHT who provides a key; answered by `looked_up`."""
        if not self._shared.orders.put(lambda host: host.look_up(lookup, key, limit)):
            self._loop.call_soon(self._listener.looked_up, lookup, ())

    def provide(self, wanted: Sequence[str]) -> None:
        """Tell the DHT that this node provides these keys, the rarest at any rate."""
        keys = branches.prioritised(wanted)
        self._shared.orders.put(lambda host: host.provide(keys))

    # Links, over streams.

    def know(self, peer: NodeId, addresses: Sequence[str]) -> None:
        """Remember where a peer may be reached by streams; the rest is left out."""
        if known := stream_ones(addresses):
            self._order(peer, lambda _host: self._shared.book.add(peer, known))

    def open(self, peer: NodeId) -> None:
        """Open a stream to a peer if there is none, by any route."""
        self._order(peer, lambda host: host.links.open(peer))

    def transmit(self, peer: NodeId, frames: Sequence[bytes]) -> None:
        """Queue frames of the codec."""
        self._flush()
        for frame in frames:
            self._transmit(peer, frame)

    def move(self, peer: NodeId) -> None:
        """Send what is queued, and let the stream end: there is a better way."""
        self._flush()
        self._order(peer, lambda host: host.links.move(peer))

    def send(self, peer: NodeId, message: AnyMessage) -> None:
        """Queue a message; messages queued in one turn go in one frame."""
        if not self._unsent:
            self._loop.call_soon(self._flush)
        self._unsent.setdefault(peer, []).append(message)

    def disconnect(self, peer: NodeId, reason: str) -> None:
        """End the stream to a peer, and refuse it for a while."""
        self._order(peer, lambda host: host.cut(peer, reason))

    # Beyond both.

    def note_link(self, peer: NodeId, *, is_up: bool) -> None:
        """Take a peer for a member while there is a direct link to it."""
        self._order(peer, lambda host: host.note_link(peer, is_up=is_up))

    async def close(self) -> None:
        """Leave the network cleanly; after some seconds, leave it anyway."""
        self._flush()
        self._shared.leaving.set()
        self._shared.orders.put(lambda _host: None)  # Wakes it to leave.
        if self._thread is not None:
            await asyncio.to_thread(self._thread.join, LEAVE_S)
        self._shared.notices.detach()

    def _gossip(self, message: AnyMessage, *, is_near: bool) -> None:
        assert isinstance(message, Announcement | LoadDigest | Revocation)
        try:
            data = encode_gossip(message)
        except ProtocolError:
            self._shared.counts["too-large-to-gossip"] += 1
            return
        self._shared.orders.put(lambda host: host.publish(data, is_near=is_near))

    def _flush(self) -> None:
        unsent, self._unsent = self._unsent, {}
        for peer, messages in unsent.items():
            try:
                frames = encode(messages)
            except ProtocolError:
                self._shared.counts["too-large-to-send"] += 1
                continue
            for frame in frames:
                self._transmit(peer, frame)

    def _transmit(self, peer: NodeId, frame: bytes) -> None:
        self._order(peer, lambda host: host.links.transmit(peer, frame))

    def _order(self, peer: NodeId, act: Order) -> None:
        """Have the host do something about a peer, whose id may be made up."""
        self._shared.orders.put(lambda host: host.act_on(peer, act))

    def _wake(self) -> None:
        """Have the loop take what happened. Called in the other thread."""
        try:
            self._loop.call_soon_threadsafe(self._take_some)
        except RuntimeError:
            return  # The loop is closed: nobody is left to be told.

    def _take_some(self) -> None:
        batch = self._shared.notices.take(BATCH)
        for happening in batch:
            self._tell(happening)
        if len(batch) == BATCH:
            self._loop.call_soon(self._take_some)

    def _tell(self, happening: Happening) -> None:
        listener = self._listener
        match happening:
            case notices.Heard():
                listener.heard(happening.origin, happening.message)
            case notices.Arrived():
                listener.received(happening.peer, happening.messages)
            case notices.Opened():
                self._open[happening.peer] = None
                listener.opened(
                    happening.peer,
                    happening.grant,
                    generation=happening.generation,
                    is_relayed=happening.is_relayed,
                )
            case notices.Moved():
                listener.moved(happening.peer)
            case notices.Ended():
                self._end(happening.peer, is_definite=happening.is_definite)
            case notices.Met():
                listener.met(happening.peer, happening.addresses)
            case notices.Measured():
                listener.measured(happening.peer, happening.rtt_s)
            case notices.Knocked():
                self._judge(happening)
            case notices.Found():
                listener.looked_up(happening.lookup, happening.providers)
            case notices.Estimated():
                listener.estimated(happening.nodes)
            case notices.Ready():
                self._reachable = tuple(
                    address_book.bare(a) for a in happening.addresses
                )
                self._is_down = False
                self.ready.set()
                listener.moved_house()
            case notices.Relayed():
                self._circuits = happening.addresses
                listener.moved_house()
            case notices.Stopped():
                self.stopped_because, self._is_down = happening.reason, True
                for peer in list(self._open):
                    self._end(peer, is_definite=False)
            case _:
                assert_never(happening)

    def _end(self, peer: NodeId, *, is_definite: bool) -> None:
        if peer in self._open:
            del self._open[peer]
            self._listener.ended(peer, is_definite=is_definite)

    def _judge(self, knock: notices.Knocked) -> None:
        reason = self._shared.greeting.admit(knock.peer, knock.grant)
        self._shared.orders.put(lambda host: host.links.judged(knock.stream, reason))


def _serve(shared: SharedState) -> None:
    # Imported here: it takes a second, and needs the libraries.
    from shoal.net.libp2p.thread import thread as node  # noqa: PLC0415

    node.serve(shared)
