"""The libp2p thread: runs a host, and restarts it until told to leave."""

from __future__ import annotations

import gc
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Final, cast, final

import trio

from shoal.model.backoff import Backoff
from shoal.net.libp2p.finding import address_book
from shoal.net.libp2p.finding.dht import DhtDirectory
from shoal.net.libp2p.finding.mdns import Mdns
from shoal.net.libp2p.finding.mesh import Mesh
from shoal.net.libp2p.streams.links import PROTOCOL, StreamLinks
from shoal.net.libp2p.thread import notices
from shoal.net.libp2p.thread.host_adapter import Libp2pHost, running
from shoal.net.libp2p.thread.host_parts import HostPlan, Wiring
from shoal.net.libp2p.thread.shared_state import BATCH, SharedState
from shoal.net.libp2p.thread.trio_calls import run, soon, start

if TYPE_CHECKING:
    from shoal.model.ids import NodeId
    from shoal.net.libp2p.streams.pipe import Pipe
    from shoal.net.libp2p.thread.shared_state import Order
    from shoal.protocol.codec import Gossip

RESTART: Final = Backoff(0.5, 30.0)
STABLE_S: Final = 60.0
HEAD_START_S: Final = 1.0
"""How long a peer is dialled before gates are asked as well."""

PUBLISH_S: Final = 5.0
REASON_LENGTH_MAX: Final = 300


def serve(shared: SharedState) -> None:
    """Run hosts, one after another, until the node leaves. Never raises."""
    restarts = 0  # in a row
    while not shared.leaving.is_set():
        started = monotonic()
        try:
            run(run_host, shared)
            reason = "it ended by itself"
        except BaseException as error:  # noqa: BLE001 - whatever it is, start again
            reason = _reason(error)
        shared.orders.detach()
        # What the library left open, above all the port that we listen on, and
        # connections that others would take for alive.
        gc.collect()
        if shared.leaving.is_set():
            return
        shared.counts["host-restarts"] += 1
        shared.notices.put(notices.Stopped(reason))
        if monotonic() - started > STABLE_S:
            restarts = 0
        shared.leaving.wait(RESTART.pause_s(restarts))
        restarts += 1


def _reason(error: BaseException) -> str:
    """Return what went wrong first, however deep in groups of errors it is."""
    first: BaseException = error
    while isinstance(first, BaseExceptionGroup):
        group = cast("BaseExceptionGroup[BaseException]", first)
        first = group.exceptions[0]
    return f"{type(first).__name__}: {first}"[:REASON_LENGTH_MAX]


async def run_host(shared: SharedState) -> None:
    """Run one host until an order to leave; a crash in any part ends it."""
    settings = shared.settings
    topic = f"/shoal/{settings.shoal}/all/1"
    near = f"/shoal/{settings.shoal}/near/1"
    async with trio.open_nursery() as nursery:
        node: list[Libp2pThread] = []  # Filled when the host runs; it asks only later.

        def may_relay(peer: NodeId) -> bool:
            return bool(node) and node[0].links.is_member(peer)

        wiring = Wiring(
            guard=shared.guard,
            counts=shared.counts,
            shown=shared.shown,
            deliver=partial(_deliver, shared),
            may_relay=may_relay,
        )
        gate = (settings.is_gate, settings.relay)
        plan = HostPlan(shared.seed, shared.listen, (topic,), near, *gate)
        async with running(plan, wiring) as host:
            shared.listen, shared.reachable = host.listening(), host.reachable()
            async with Mdns(shared) as local:
                node.append(Libp2pThread(shared, host, nursery, topic, near, local))
                await node[0].run()
        nursery.cancel_scope.cancel()


def _deliver(shared: SharedState, origin: NodeId, message: Gossip) -> None:
    shared.notices.put(notices.Heard(origin, message))


@final
class Bell:
    """Wakes the loop of trio from another thread."""

    def __init__(self) -> None:
        self._token = trio.lowlevel.current_trio_token()
        self._rung = trio.Event()

    def ring(self) -> None:
        """Wake the waiting side. Any thread may call it, at any time."""
        try:
            soon(self._token, self._ring)
        except trio.RunFinishedError:
            return

    async def wait(self) -> None:
        """Wait for the next ring."""
        await self._rung.wait()
        self._rung = trio.Event()

    def _ring(self) -> None:
        self._rung.set()


@final
class Libp2pThread:
    """One libp2p host and its services."""

    def __init__(
        self,
        shared: SharedState,
        host: Libp2pHost,
        nursery: trio.Nursery,
        topic: str,
        near: str,
        local: Mdns,
    ) -> None:
        self._shared = shared
        self._host = host
        self._nursery = nursery
        self._topic = topic
        self._near = near
        self.links = StreamLinks(shared, self._reach, host.is_relayed, nursery)
        self._mesh = Mesh(shared, host, self.links, topic, local.peers)
        self._directory = DhtDirectory(shared, host)

    async def run(self) -> None:
        """Carry out orders until the node leaves and none is left."""
        self._host.serve(PROTOCOL, self.links.on_stream)
        start(self._nursery, self._mesh.run)
        start(self._nursery, self._directory.run)
        bell = Bell()
        self._shared.orders.attach(bell.ring)
        self._shared.notices.put(notices.Ready(self._host.reachable()))
        while True:
            batch = self._shared.orders.take(BATCH)
            for order in batch:
                order(self)
            if len(batch) == BATCH:
                await trio.lowlevel.checkpoint()
            elif self._shared.leaving.is_set():
                await self.links.leave()
                return
            else:
                await bell.wait()

    def act_on(self, peer: NodeId, act: Order) -> None:
        """Carry out an order about a peer, whose id may be what some peer made up."""
        if address_book.is_id(peer):
            act(self)
        else:
            self._shared.counts["no-such-id"] += 1

    def publish(self, data: bytes, *, is_near: bool) -> None:
        """Gossip these bytes to all, or only to the neighbours."""
        topic = self._near if is_near else self._topic
        start(self._nursery, self._publish, topic, data)

    def look_up(self, lookup: int, key: str, limit: int) -> None:
        """Find out who provides a key; answered by `Found`."""
        start(self._nursery, self._directory.look_up, lookup, key, limit)

    def provide(self, keys: tuple[str, ...]) -> None:
        """Provide these keys in the DHT, and no others."""
        self._shared.keys = keys
        self._directory.changed()

    def cut(self, peer: NodeId, reason: str) -> None:
        """End the stream to a peer, and refuse it for a while."""
        self.note_link(peer, is_up=False)
        self.links.cut(peer, reason)
        # With its connection end the circuits that we relay for it.
        start(self._nursery, self._host.disconnect, peer)

    def note_link(self, peer: NodeId, *, is_up: bool) -> None:
        """Note that there is, or is no more, a direct link to this member."""
        shared = self._shared
        shared.linked.pop(peer, None)
        if is_up:
            shared.linked[peer] = None
            shared.guard.trust(peer, monotonic())

    async def _publish(self, topic: str, data: bytes) -> None:
        if not self._host.neighbours():
            self._shared.counts["nobody-heard"] += 1
        try:
            with trio.move_on_after(PUBLISH_S):
                await self._host.publish(topic, data)
        except Exception:  # noqa: BLE001 - one message is not worth the host
            self._shared.counts["publish-failed"] += 1

    async def _reach(self, peer: NodeId) -> Pipe | None:
        """Open a stream to a peer by any route; None if there is none."""
        host = self._host
        if host.is_connected(peer):
            pipe = await host.open(peer, PROTOCOL)
            if pipe is not None or not host.is_relayed(peer):
                return pipe
            await host.disconnect(peer)  # Trap: of a circuit that is broken, too.
        known = (*self._shared.book.of(peer), *host.addresses_of(peer))
        dialled = trio.Event()
        start(self._nursery, self._dial, peer, known, dialled)
        with trio.move_on_after(HEAD_START_S):
            await dialled.wait()
        if not host.is_connected(peer):
            await self._go_through_gates(peer, known)
        if not host.is_connected(peer):
            await dialled.wait()
        return await host.open(peer, PROTOCOL)

    async def _dial(
        self, peer: NodeId, addresses: tuple[str, ...], dialled: trio.Event
    ) -> None:
        """Dial a peer, in a task of its own: routers that drop calls take long.

        It is not cancelled when another way was faster; see trap 19.
        """
        try:
            await self._host.connect(peer, addresses)
        finally:
            dialled.set()

    async def _go_through_gates(self, peer: NodeId, known: tuple[str, ...]) -> bool:
        """Try the peer's gates, then the gates that we know."""
        named = [address for address in known if address_book.is_circuit(address)]
        guesses = [address_book.circuit(a, peer) for a in self._mesh.gate_addresses()]
        for address in dict.fromkeys([*named, *guesses]):
            gate = address_book.gate_of(address)
            if gate is None or gate in {peer, self._shared.node}:
                continue
            if not await self._host.connect(
                gate, (address_book.gate_address(address),)
            ):
                continue
            dial = self._host.connect_through
            if await self.links.as_member(gate, dial, address):
                self._shared.counts["relayed"] += 1
                return True
        return False
