"""A running host of libp2p, in our names and types.

This module and `parts` are the only ones that import the library. Every trap of its
version 0.8.1 that we know is dealt with here, in `parts` or in `link`, beside a comment
that begins with "Trap" and says what would happen otherwise. The library has no common
base for its errors, and lets those of others through, so what is caught here is
`Exception`; nothing outside needs to.
"""

# pyright: reportMissingTypeStubs=false, reportPrivateUsage=false

from __future__ import annotations

import os
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any, Final, final

import trio
from libp2p.custom_types import TProtocol
from libp2p.kad_dht.kad_dht import DHTMode, KadDHT
from libp2p.network.swarm import Swarm
from libp2p.peer.peerinfo import PeerInfo
from libp2p.pubsub.gossipsub import GossipSub
from libp2p.relay.circuit_v2.config import RelayConfig, RelayRole
from libp2p.relay.circuit_v2.protocol import PROTOCOL_ID as HOP_PROTOCOL
from libp2p.relay.circuit_v2.transport import CircuitV2Transport
from libp2p.tools.anyio_service import background_trio_service
from libp2p.utils.address_validation import expand_wildcard_address
from multiaddr import Multiaddr  # type: ignore[import-untyped]

from shoal.model.ids import NodeId
from shoal.net.libp2p.finding import address_book
from shoal.net.libp2p.thread.host_parts import (
    DIAL_S,
    QUERY_S,
    GuardedGossip,
    HostPlan,
    MemberHost,
    MemberRelay,
    OneSidedPunching,
    PlainTcp,
    StreamPipe,
    Wiring,
    id_of,
    make_router,
    make_swarm,
    node_of,
)
from shoal.net.libp2p.thread.trio_calls import shielded

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence

    from libp2p.abc import INetConn, INetStream

    from shoal.net.libp2p.streams.pipe import Pipe

DIALS_MAX: Final = 4
STREAM_S: Final = 5.0
CLOSE_S: Final = 1.0
PING_S: Final = 3.0
PING_BYTES: Final = 32
PING_PROTOCOL: Final = "/ipfs/ping/1.0.0"
ADDRESS_TTL_S: Final = 3_600
RECORDS_MAX: Final = 20_000
"""Records of others that this node keeps for the DHT; the oldest go first."""


@final
class Libp2pHost:
    """A running host of libp2p: connections, streams, gossip, the DHT and relays."""

    def __init__(
        self,
        host: MemberHost,
        gossip: GuardedGossip,
        router: GossipSub,
        dht: KadDHT,
        transport: CircuitV2Transport,
    ) -> None:
        self._host = host
        self._gossip = gossip
        self._router = router
        self._dht = dht
        self._transport = transport

    # Connections and streams.

    def listening(self) -> tuple[str, ...]:
        """Return the addresses that the host listens on."""
        return tuple(str(address) for address in self._host.get_transport_addrs())

    def reachable(self) -> tuple[str, ...]:
        """Return the same as others see it: each interface, instead of all."""
        addresses: list[str] = []
        for address in self._host.get_transport_addrs():
            expanded = [str(a) for a in expand_wildcard_address(address)]
            outside = [a for a in expanded if not address_book.is_only_here(a)]
            addresses += outside or expanded
        return tuple(dict.fromkeys(addresses))

    def connected(self) -> list[NodeId]:
        """Return the peers that there are connections to."""
        return [node_of(peer) for peer in self._host.get_connected_peers()]

    def is_connected(self, peer: NodeId) -> bool:
        """Return whether there is a connection to a peer."""
        return self._host.is_peer_connected(id_of(peer))

    def is_relayed(self, peer: NodeId) -> bool:
        """Return whether the only way to a connected peer leads through a gate."""
        connections = self._swarm.connections.get(id_of(peer), [])
        return bool(connections) and all(map(_is_circuit, connections))

    def connection(self, peer: NodeId) -> object:
        """Return what stands for the connection to a peer: another one is another."""
        connections = self._swarm.connections.get(id_of(peer), [])
        return connections[0] if connections else None

    def is_relay(self, peer: NodeId) -> bool:
        """Return whether a connected peer offers to relay."""
        try:
            return HOP_PROTOCOL in self._host.get_peerstore().get_protocols(id_of(peer))
        except Exception:  # noqa: BLE001 - see the module
            return False

    async def connect(self, peer: NodeId, addresses: Sequence[str]) -> bool:
        """Dial a peer at these addresses until one answers; return whether one did."""
        if self.is_connected(peer):
            return True
        self._swarm.unblock_peer(
            id_of(peer)
        )  # Trap: refused for a minute after a miss.
        plain = [a for a in addresses if address_book.is_plain(a)]
        # Trap: the library dials one TCP address of a peer only, whichever is first.
        for address in plain[:DIALS_MAX]:
            if await self._dial(peer, address):
                return True
        return False

    async def open(self, peer: NodeId, protocol: str) -> Pipe | None:
        """Open a stream to a peer that is connected; return None if that fails."""
        if not self.is_connected(peer):
            return None
        try:
            with trio.fail_after(STREAM_S):
                stream = await self._host.new_stream(id_of(peer), [TProtocol(protocol)])
        except Exception:  # noqa: BLE001 - see the module
            return None
        return StreamPipe(stream)

    def serve(
        self, protocol: str, handler: Callable[[NodeId, Pipe], Awaitable[None]]
    ) -> None:
        """Call `handler` for each stream that a peer opens."""

        async def on_stream(stream: INetStream) -> None:
            pipe = StreamPipe(stream)
            try:
                await handler(node_of(stream.muxed_conn.peer_id), pipe)
            finally:
                await pipe.close()

        self._host.set_stream_handler(TProtocol(protocol), on_stream)

    async def is_alive(self, peer: NodeId) -> bool:
        """Return whether a connected peer answers.

        Trap: nobody looks, and a connection whose other end vanished stays for ever.
        """
        payload = os.urandom(PING_BYTES)
        answer = b""
        with trio.move_on_after(PING_S):
            pipe = await self.open(peer, PING_PROTOCOL)
            if pipe is None:
                return False
            try:
                await pipe.write(payload)
                answer = await pipe.read()
            except trio.BrokenResourceError:
                return False
            finally:
                await pipe.reset()
        return answer == payload

    async def disconnect(self, peer: NodeId) -> None:
        """End all connections to a peer."""
        try:
            await self._host.disconnect(id_of(peer))
        except Exception:  # noqa: BLE001 - see the module
            return

    def addresses_of(self, peer: NodeId) -> tuple[str, ...]:
        """Return what libp2p has learnt about where a peer is."""
        try:
            known = self._host.get_peerstore().addrs(id_of(peer))
        except Exception:  # noqa: BLE001 - see the module
            return ()
        return tuple(str(address) for address in known)

    # Gossip.

    async def publish(self, topic: str, data: bytes) -> None:
        """Gossip to all who hear this topic."""
        await self._gossip.publish(topic, data)

    def neighbours(self) -> list[NodeId]:
        """Return the peers that gossip is exchanged with."""
        return [node_of(peer) for peer in self._gossip.peers]

    def mesh(self, topic: str) -> int:
        """Return how many peers get gossip of a topic at once."""
        return len(self._router.mesh.get(topic, ()))

    async def befriend(self, peer: NodeId) -> bool:
        """See to it that gossip is exchanged with a connected peer.

        Trap 4: gossip gives a peer up for ever if the first stream to it fails.
        """
        try:
            return await self._gossip.ensure_peer_stream(id_of(peer), STREAM_S)
        except Exception:  # noqa: BLE001 - see the module
            return False

    # The DHT.

    async def join(self, peer: NodeId) -> None:
        """Take a connected peer for a node of the DHT."""
        await self._dht.add_peer(id_of(peer))

    def routed(self) -> list[NodeId]:
        """Return the nodes of the DHT that we know."""
        return [node_of(peer) for peer in self._dht.routing_table.get_peer_ids()]

    def closest_known(self, key: bytes) -> list[NodeId]:
        """Return the known nodes that are nearest to a key."""
        table = self._dht.routing_table
        return [node_of(peer) for peer in table.find_local_closest_peers(key)]

    async def closest(self, key: bytes) -> list[NodeId]:
        """Return the nodes that records with this key belong to."""
        try:
            found = await self._dht.peer_routing.find_closest_peers_network(key)
        except Exception:  # noqa: BLE001 - see the module
            return []
        return [node_of(peer) for peer in found]

    async def closest_to(self, peer: NodeId) -> list[NodeId]:
        """Return the nodes around a peer, the peer among them if it is known."""
        return await self.closest(id_of(peer).to_bytes())

    async def provide(self, key: bytes) -> bool:
        """Store a record of ours at its nearest nodes; return whether any took it."""
        store = self._dht.provider_store
        try:
            return await store.provide(key)
        except Exception:  # noqa: BLE001 - see the module
            return False
        finally:
            # Trap: it would be repeated every 22 h for ever. Ours is another rhythm.
            store.providing_keys.discard(key)

    def records_here(self, key: bytes) -> list[tuple[NodeId, tuple[str, ...]]]:
        """Return the records with this key that this node keeps."""
        return _records(self._dht.provider_store.get_providers(key))

    async def records_at(
        self, peer: NodeId, key: bytes
    ) -> list[tuple[NodeId, tuple[str, ...]]]:
        """Ask one node for the records with this key.

        Trap 9: the search of the library returns what it once found, for two days,
        and twenty records at most. So we ask each node that should have some.
        """
        store = self._dht.provider_store
        ask = store._get_providers_from_peer_with_closers  # noqa: SLF001
        try:
            with trio.fail_after(QUERY_S):
                found, _ = await ask(id_of(peer), key)
        except Exception:  # noqa: BLE001 - see the module
            return []
        return _records(found)

    def trim(self) -> int:
        """Forget the oldest records of others beyond the limit; return how many.

        Trap: nothing limits how many keys a peer may write to.
        """
        store = self._dht.provider_store.providers
        rows = [
            (record.timestamp, key, peer)
            for key, peers in store.items()
            for peer, record in peers.items()
        ]
        surplus = sorted(rows)[: max(0, len(rows) - RECORDS_MAX)]
        for _, key, peer in surplus:
            del store[key][peer]
            if not store[key]:
                del store[key]
        return len(surplus)

    # Relays.

    async def reserve(self, gate: NodeId) -> bool:
        """Ask a connected gate to relay to us; return whether it will."""
        try:
            with trio.fail_after(STREAM_S):
                stream = await self._host.new_stream(id_of(gate), [HOP_PROTOCOL])
                reserve = self._transport._make_reservation  # noqa: SLF001
                is_granted = await reserve(stream, id_of(gate))
                await stream.close()
        except Exception:  # noqa: BLE001 - see the module
            return False
        return is_granted

    async def connect_through(self, address: str) -> bool:
        """Connect to a peer through a gate.

        Trap 10: `connect` of the library refuses such addresses.
        """
        try:
            with trio.fail_after(STREAM_S):
                await self._transport.dial(Multiaddr(address))
        except Exception:  # noqa: BLE001 - see the module
            return False
        peer = address_book.peer_of(address)
        return peer is not None and self.is_connected(peer)

    async def _dial(self, peer: NodeId, address: str) -> bool:
        try:
            target = Multiaddr(address_book.bare(address))
            self._swarm.peerstore.add_addrs(id_of(peer), [target], ADDRESS_TTL_S)
            # Longer than the library waits: to cancel a dial leaks its socket.
            with trio.fail_after(3 * DIAL_S):
                await self._swarm.dial_addr(target, id_of(peer))
        except Exception:  # noqa: BLE001 - see the module
            return False
        return self.is_connected(peer)

    @property
    def _swarm(self) -> Swarm:
        network = self._host.get_network()
        assert isinstance(network, Swarm)
        return network


@asynccontextmanager
async def running(plan: HostPlan, wiring: Wiring) -> AsyncGenerator[Libp2pHost, None]:
    """Run a host while the context lasts."""
    tcp = PlainTcp()
    host = MemberHost(make_swarm(plan, tcp), wiring)
    mode = DHTMode.SERVER if plan.listen else DHTMode.CLIENT
    # Trap 9: unknown kinds of values would be kept for anybody. We keep none.
    dht = KadDHT(host, mode, enable_values=False, strict_validation=True)
    router = make_router()
    gossip = GuardedGossip(host, router, plan, wiring)
    relay = MemberRelay(host, wiring, plan)
    transport = CircuitV2Transport(host, relay, RelayConfig(roles=RelayRole.STOP))
    async with AsyncExitStack() as stack:
        stack.push_async_callback(tcp.close)  # When nobody dials any more.
        listen = [Multiaddr(address) for address in plan.listen]
        await stack.enter_async_context(host.run(listen))
        services: list[Any] = [gossip, router, dht, relay]
        if plan.listen:
            # Trap 12: a minute after a hole was punched, the relayed connection is
            # closed with all its streams. Ours have moved by then (`links`).
            services.append(OneSidedPunching(host))
        for service in services:
            await stack.enter_async_context(background_trio_service(service))
        await gossip.wait_until_ready()
        for topic in (*plan.topics, plan.near_topic):
            await gossip.subscribe(topic)
        try:
            yield Libp2pHost(host, gossip, router, dht, transport)
        finally:
            await _end(host, gossip)


async def _end(host: MemberHost, gossip: GuardedGossip) -> None:
    """Close what the library would leave open: its connections, and a thread."""
    try:
        with shielded(CLOSE_S):
            await host.close()
    except Exception:  # noqa: BLE001 - see the module
        return
    finally:
        gossip.seen_messages.stop()


def _is_circuit(connection: INetConn) -> bool:
    addresses = connection.get_transport_addresses()
    return any(address_book.is_circuit(str(address)) for address in addresses)


def _records(found: Sequence[PeerInfo]) -> list[tuple[NodeId, tuple[str, ...]]]:
    return [(node_of(p.peer_id), tuple(str(a) for a in p.addrs)) for p in found]
