"""The parts of a libp2p host, each with workarounds for the library's traps.

See `adapter` about traps, and about what is caught here.
"""

# pyright: reportMissingTypeStubs=false, reportPrivateUsage=false

from __future__ import annotations

import hashlib
import logging
import time
from typing import TYPE_CHECKING, Final, NamedTuple, final
from weakref import WeakSet

import libp2p.kad_dht.peer_routing as routing_module
import libp2p.kad_dht.provider_store as records_module
import libp2p.network.swarm as swarm_module
import trio
from libp2p import new_swarm
from libp2p.crypto.ed25519 import create_new_key_pair
from libp2p.crypto.x25519 import create_new_key_pair as create_noise_key_pair
from libp2p.custom_types import TProtocol
from libp2p.host.basic_host import BasicHost
from libp2p.network.auto_connector import AutoConnector
from libp2p.network.config import ConnectionConfig, RetryConfig
from libp2p.network.swarm import Swarm
from libp2p.peer.id import ID
from libp2p.pubsub.gossipsub import PROTOCOL_ID_V11, GossipSub
from libp2p.pubsub.pubsub import Pubsub
from libp2p.pubsub.validators import signature_validator
from libp2p.relay.circuit_v2.dcutr import DCUtRProtocol
from libp2p.relay.circuit_v2.protocol import CircuitV2Protocol
from libp2p.relay.circuit_v2.protocol_buffer import StatusCode
from libp2p.relay.circuit_v2.resources import RelayLimits
from libp2p.security.noise.transport import PROTOCOL_ID as NOISE_PROTOCOL
from libp2p.security.noise.transport import Transport as NoiseTransport
from libp2p.stream_muxer.yamux.yamux import PROTOCOL_ID as YAMUX_PROTOCOL
from libp2p.stream_muxer.yamux.yamux import Yamux
from libp2p.transport.tcp.tcp import TCP
from multiaddr import Multiaddr  # type: ignore[import-untyped]

from shoal.model.ids import NodeId
from shoal.net.libp2p.finding import address_book
from shoal.net.libp2p.settings import RelayRoom
from shoal.net.libp2p.streams.circuit_limits import CircuitLimits
from shoal.net.libp2p.thread.trio_calls import shielded

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Callable, Sequence

    from libp2p.abc import INetStream, IRawConnection
    from libp2p.crypto.keys import KeyPair
    from libp2p.pubsub.pb import rpc_pb2
    from libp2p.relay.circuit_v2.pb.circuit_pb2 import HopMessage

    from shoal.net.libp2p.finding.gossip_guard import GossipGuard
    from shoal.protocol.codec import Gossip

DIAL_S: Final = 4.0
QUERY_S: Final = 2
WRITE_S: Final = 10.0
SAID_S: Final = 0.5
CHUNK_BYTES: Final = 60_000
READ_BYTES: Final = 65_536
CONNECTIONS_MAX: Final = 1_024
DEGREE: Final = 6
DEGREE_LOW: Final = 4
DEGREE_HIGH: Final = 12
HEARTBEAT_S: Final = 1
SEEN_S: Final = 120
RPC_BYTES_MAX: Final = 262_144

# Trap 6: every dial would wait 250 ms for a second address to be tried.
# There is no option for it.
swarm_module._HAPPY_EYEBALLS_DELAY = 0.0  # noqa: SLF001

# Trap: one node that has fallen silent would hold up every search for 10 s.
for _module in (routing_module, records_module):
    vars(_module)["QUERY_TIMEOUT"] = QUERY_S

# Trap: what peers do wrong is logged as errors, at their pace. We count it instead.
for _name in ("libp2p", "libp2p.network.auto_connector"):
    logging.getLogger(_name).setLevel(logging.CRITICAL)


class Wiring(NamedTuple):
    """What the host asks or tells the rest of us, all in its own thread."""

    guard: GossipGuard
    counts: Counter[str]
    shown: Callable[[], Sequence[str]]  # addresses that others are told
    deliver: Callable[[NodeId, Gossip], None]
    may_relay: Callable[[NodeId], bool]


class HostPlan(NamedTuple):
    """What host to make."""

    seed: bytes
    listen: Sequence[str]
    topics: Sequence[str]  # passed on by everybody
    near_topic: str  # only from neighbour to neighbour
    is_gate: bool
    relay: RelayRoom = RelayRoom()


@final
class IdleConnector(AutoConnector):
    """Never dials.

    Trap 10: the swarm dials known peers by itself, until it has half as many
    connections as it may have; a low watermark of 0 does not keep it from that.
    """

    async def maybe_connect(self) -> None:
        """Leave it to the mesh."""


@final
class PlainTcp(TCP):
    """TCP for libp2p, not for our direct links."""

    def __init__(self) -> None:
        super().__init__()
        self._dialled: WeakSet[IRawConnection] = WeakSet()

    async def close(self) -> None:
        """Close what was dialled and is still open.

        Trap 19: a dial that is given up leaves its socket, in whatever state, to the
        garbage collector; so does a host that ends while it dials.
        """
        with shielded(WRITE_S):
            for connection in list(self._dialled):
                await connection.close()

    def can_dial(self, maddr: Multiaddr) -> bool:
        """Leave addresses of direct links alone: what listens there is no libp2p."""
        return address_book.is_plain(str(maddr)) and super().can_dial(maddr)

    async def _dial_resolved(
        self, maddr: Multiaddr, source: tuple[str, int] | None = None
    ) -> IRawConnection:
        connection = await super()._dial_resolved(maddr, source)
        self._dialled.add(connection)
        return connection


@final
class MemberHost(BasicHost):
    """A host that survives its handlers and reports its real addresses."""

    def __init__(self, swarm: Swarm, wiring: Wiring) -> None:
        self._wiring = wiring  # First: the base class asks for addresses at once.
        super().__init__(network=swarm)

    def get_addrs(self) -> list[Multiaddr]:
        """Return what we want others to know.

        Trap: the base class cuts the address of a circuit at the id of the gate, and
        so tells others that we live at the gate's own address.
        """
        addresses: list[Multiaddr] = []
        for text in self._wiring.shown():
            whole = text if text.endswith(str(self.get_id())) else _owned(text, self)
            addresses.append(Multiaddr(whole))
        return addresses

    async def _swarm_stream_handler(self, net_stream: INetStream) -> None:
        # Trap 2: an exception in any handler, of ours or of the library, would end
        # the whole host. This is the one door through which all streams come.
        try:
            await super()._swarm_stream_handler(net_stream)
        except Exception:  # noqa: BLE001 - see the module
            self._wiring.counts["handler-failed"] += 1
            await _reset(net_stream)


@final
class GuardedGossip(Pubsub):
    """Gossip that passes the guard before it is believed or passed on."""

    def __init__(
        self, host: MemberHost, router: GossipSub, plan: HostPlan, w: Wiring
    ) -> None:
        # Trap 8: message ids of origin and sequence number would let one origin flood
        # under new numbers, and its numbers start at the wall clock. Ours are made of
        # the contents; the numbers count in microseconds and tell replays. Results of
        # checks are not kept, since a replay would find itself approved.
        super().__init__(
            host,
            router,
            seen_ttl=SEEN_S,
            strict_signing=True,
            msg_id_constructor=_message_id,
            validation_cache_ttl=-1,
            max_inbound_rpc_size=RPC_BYTES_MAX,
            max_subscriptions_per_peer=len(plan.topics) + 1,
            allowed_topics={*plan.topics, plan.near_topic},
        )
        self.counter = time.time_ns() // 1_000
        self._near = plan.near_topic
        self._wiring = w

    def notify_subscriptions(self, publish_message: rpc_pb2.Message) -> None:
        """Leave the queue alone: trap 8, it holds 32 messages and then loses some."""

    async def push_msg(self, msg_forwarder: ID, msg: rpc_pb2.Message) -> None:
        """Check a message, deliver it, and pass it on if it is for all."""
        if msg_forwarder == self.my_id:
            await super().push_msg(msg_forwarder, msg)
            return
        try:
            if self._is_msg_seen(msg) or not self._accept(msg_forwarder, msg):
                return
            is_near = self._near in msg.topicIDs
            if is_near:
                self._mark_msg_seen(msg)  # And that is all: neighbours keep it.
            else:
                await super().push_msg(msg_forwarder, msg)
        except Exception:  # noqa: BLE001 - a task of the service: it would end it
            self._wiring.counts["gossip-failed"] += 1

    def _accept(self, sender: ID, msg: rpc_pb2.Message) -> bool:
        guard, now = self._wiring.guard, time.monotonic()
        forwarder, origin = node_of(sender), node_of(ID(msg.from_id))
        if not guard.passes(forwarder, len(msg.data), now):
            return False
        is_foreign = self._near in msg.topicIDs and forwarder != origin
        if is_foreign or len(msg.topicIDs) != 1 or not _is_signed(msg):
            guard.blame(forwarder, "forged", now)
            return False
        if origin == node_of(self.my_id):
            return False
        number = int.from_bytes(msg.seqno[-8:], "big")
        message = guard.read(forwarder, origin, number, msg.data, now)
        if message is None:
            return False
        self._wiring.deliver(origin, message)
        return True


@final
class MemberRelay(CircuitV2Protocol):
    """A relay for members only, none of which takes all of it."""

    def __init__(self, host: MemberHost, w: Wiring, plan: HostPlan) -> None:
        room = plan.relay
        limits = RelayLimits(
            duration=room.circuit_s,
            data=room.circuit_bytes,
            max_circuit_conns=room.circuits,
            max_reservations=room.members,
        )
        super().__init__(host, limits, allow_hop=plan.is_gate)
        self._wiring = w
        self._circuits = CircuitLimits(room)

    async def _handle_hop_stream(self, stream: INetStream) -> None:
        if not self._wiring.may_relay(node_of(stream.muxed_conn.peer_id)):
            self._wiring.counts["relay-refused"] += 1
            await _reset(stream)
            return
        await super()._handle_hop_stream(stream)

    async def _handle_reserve(self, stream: INetStream, msg: HopMessage) -> None:
        # Trap: the name in the message counts, not that of the connection, so one
        # peer could take all places in the names of others.
        msg.ClearField("peer")
        await super()._handle_reserve(stream, msg)

    async def _handle_connect(self, stream: INetStream, msg: HopMessage) -> None:
        """Relay between two members, as long as they like or may."""
        source = node_of(stream.muxed_conn.peer_id)
        target = node_of(ID(msg.peer.id))
        if full := self._circuits.enter(source, target):
            self._wiring.counts["relay-full"] += 1
            code = StatusCode.RESOURCE_LIMIT_EXCEEDED
            await self._send_status(stream, code, full)
            await trio.sleep(SAID_S)  # Or the reset would overtake what was said.
            await _reset(stream)
            return
        try:
            await super()._handle_connect(stream, msg)
        finally:
            self._circuits.leave(source, target)


@final
class OneSidedPunching(DCUtRProtocol):
    """Punches holes, at the word of one end of a circuit: that with the smaller id."""

    async def initiate_hole_punch(self, peer_id: ID) -> bool:
        """Begin, unless that is the peer's turn.

        Trap 24: both ends of a circuit begin, as soon as they see it. If they do so at
        the same time, both dial from one port to one port and take the same part in
        the handshake, in round after round, and no hole is punched.
        """
        if node_of(self.host.get_id()) > node_of(peer_id):
            return False
        return await super().initiate_hole_punch(peer_id)

    async def _try_unilateral_upgrade(self, peer_id: ID) -> bool:
        # Trap 25: this dials the peer's addresses for some 8 s before anything is
        # punched. We did that before we took a circuit, and punching does it again.
        return False


@final
class StreamPipe:
    """A stream of libp2p as a pipe."""

    def __init__(self, stream: INetStream) -> None:
        self._stream = stream

    async def read(self) -> bytes:
        """Return the next bytes, or none at the end."""
        try:
            return await self._stream.read(READ_BYTES)
        except Exception as error:
            raise trio.BrokenResourceError from error

    async def write(self, data: bytes) -> None:
        """Write in chunks that cannot be cancelled.

        Trap 1: to cancel a write destroys the connection, with all its streams. Trap
        5: a large write fails after 5 s if the peer does not read all of it.
        """
        try:
            for start in range(0, len(data), CHUNK_BYTES):
                with shielded(WRITE_S) as scope:
                    await self._stream.write(data[start : start + CHUNK_BYTES])
                if scope.cancelled_caught:
                    raise trio.BrokenResourceError
                await trio.lowlevel.checkpoint()
        except Exception as error:
            raise trio.BrokenResourceError from error

    async def close(self) -> None:
        """Close, and reset if that fails."""
        try:
            with shielded(WRITE_S):
                await self._stream.close()
        except Exception:  # noqa: BLE001 - see the module
            await _reset(self._stream)

    async def reset(self) -> None:
        """End the stream at once."""
        await _reset(self._stream)


def make_swarm(plan: HostPlan, tcp: PlainTcp) -> Swarm:
    """Return what dials and accepts connections: TCP, noise and yamux, no others."""
    keys = create_new_key_pair(plan.seed)
    swarm = new_swarm(
        key_pair=keys,
        # Trap 3: by default a host accepts peers without any encryption.
        sec_opt={NOISE_PROTOCOL: _noise(keys)},
        muxer_opt={TProtocol(YAMUX_PROTOCOL): Yamux},
        # Trap 7: QUIC is slow, and its idle streams die. TCP only.
        transports=[tcp],
        retry_config=RetryConfig(max_retries=0),
        connection_config=ConnectionConfig(
            max_connections=CONNECTIONS_MAX,
            min_connections=0,
            low_watermark=0,
            high_watermark=CONNECTIONS_MAX,
            dial_timeout=DIAL_S,
            inbound_upgrade_timeout=DIAL_S,
            outbound_upgrade_timeout=DIAL_S,
        ),
    )
    assert isinstance(swarm, Swarm)
    swarm.auto_connector = IdleConnector(swarm)
    return swarm


def make_router() -> GossipSub:
    """Return what chooses who gets gossip."""
    # Trap 8: a mesh would be mended every 120 s only, and 10 messages/s let through
    # per topic. The guard has limits of its own.
    return GossipSub(
        protocols=[PROTOCOL_ID_V11],
        degree=DEGREE,
        degree_low=DEGREE_LOW,
        degree_high=DEGREE_HIGH,
        heartbeat_interval=HEARTBEAT_S,
        spam_protection_enabled=False,
        adaptive_gossip_enabled=False,
    )


def _noise(keys: KeyPair) -> NoiseTransport:
    return NoiseTransport(keys, noise_privkey=create_noise_key_pair().private_key)


async def _reset(stream: INetStream) -> None:
    try:
        with shielded(WRITE_S):
            await stream.reset()
    except Exception:  # noqa: BLE001 - see the module
        return


def _is_signed(msg: rpc_pb2.Message) -> bool:
    try:
        return signature_validator(msg)
    except Exception:  # noqa: BLE001 - a key that cannot be read, for one
        return False


def _message_id(msg: rpc_pb2.Message) -> bytes:
    parts = (msg.from_id, *(topic.encode() for topic in msg.topicIDs), msg.data)
    digest = hashlib.sha256()
    for part in parts:
        digest.update(len(part).to_bytes(4, "big") + part)
    return digest.digest()


def _owned(address: str, host: MemberHost) -> str:
    return f"{address}/p2p/{host.get_id()}"


def node_of(peer: ID) -> NodeId:
    """Return our name for a peer."""
    return NodeId(peer.to_base58())


def id_of(node: NodeId) -> ID:
    """Return the name that libp2p has for a node."""
    return ID.from_base58(node)
