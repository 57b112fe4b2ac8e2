"""One link out of two ways, with ways that do what the test says."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import pytest
from tests.runtime.virtual_time import run

from shoal.model.ids import LeaseId, NodeId
from shoal.net import link_selector
from shoal.net.base import LinkListener
from shoal.net.link_selector import LinkSelector
from shoal.protocol.codec import encode
from shoal.protocol.messages import AnyMessage, Grant, PeerAddress, Release

US, BOB = NodeId("us"), NodeId("bob")
DIRECT = "/ip4/192.0.2.7/tcp/4001/p2p/bob"
STREAM = "/ip4/192.0.2.7/tcp/4002/noise/p2p/bob"


def word(number: int) -> Release:
    return Release(leases=(LeaseId(str(number)),))


class Direct:
    """Direct links that come up when a test says so."""

    addresses = ("/ip4/127.0.0.1/tcp/1",)

    def __init__(self) -> None:
        self.up: dict[NodeId, int] = {}
        self.known: dict[NodeId, tuple[str, ...]] = {}
        self.outbox: list[AnyMessage] = []
        self.sent: list[AnyMessage] = []
        self.reached = 0
        self.cut: list[NodeId] = []

    def know(self, peer: NodeId, addresses: Sequence[str]) -> None:
        self.known[peer] = tuple(addresses)

    def can_dial(self, peer: NodeId) -> bool:
        return peer in self.known

    def reach(self, peer: NodeId) -> None:
        self.reached += 1

    def send(self, peer: NodeId, message: AnyMessage) -> None:
        (self.sent if peer in self.up else self.outbox).append(message)

    def waiting(self, peer: NodeId) -> int:
        return len(self.outbox)

    def trouble(self, peer: NodeId) -> str:
        return "no answer"

    def take_waiting(self, peer: NodeId) -> list[bytes]:
        taken, self.outbox = self.outbox, []
        return encode(taken) if taken else []

    def generation(self, peer: NodeId) -> int:
        return self.up[peer]

    def disconnect(self, peer: NodeId, reason: str) -> None:
        self.cut.append(peer)

    async def close(self) -> None:
        await asyncio.sleep(0)


class Streams:
    """Streams that open when a test says so."""

    addresses = ("/ip4/127.0.0.1/tcp/2/noise/p2p/us",)
    is_started = True

    def __init__(self) -> None:
        self.opens = 0
        self.said: list[object] = []
        self.known: dict[NodeId, tuple[str, ...]] = {}
        self.links: dict[NodeId, bool] = {}
        self.cut: list[NodeId] = []

    def know(self, peer: NodeId, addresses: Sequence[str]) -> None:
        self.known[peer] = tuple(addresses)

    def open(self, peer: NodeId) -> None:
        self.opens += 1

    def send(self, peer: NodeId, message: AnyMessage) -> None:
        self.said.append(message)

    def transmit(self, peer: NodeId, frames: Sequence[bytes]) -> None:
        self.said += frames

    def move(self, peer: NodeId) -> None:
        self.said.append("moved")

    def note_link(self, peer: NodeId, *, is_up: bool) -> None:
        self.links[peer] = is_up

    def disconnect(self, peer: NodeId, reason: str) -> None:
        self.cut.append(peer)


class Log:
    """A listener that remembers everything."""

    def __init__(self) -> None:
        self.events: list[str] = []
        self.taken: list[AnyMessage] = []
        self.rtts: list[float] = []

    def connected(self, peer: NodeId, grant: Grant | None) -> None:
        self.events.append("connected")

    def lost(self, peer: NodeId) -> None:
        self.events.append("lost")

    def received(self, peer: NodeId, messages: Sequence[AnyMessage]) -> None:
        self.taken += messages

    def measured(self, peer: NodeId, rtt_s: float) -> None:
        self.rtts.append(rtt_s)

    def heard(self, origin: NodeId, message: AnyMessage) -> None:
        raise AssertionError

    def looked_up(self, lookup: int, providers: Sequence[PeerAddress]) -> None:
        raise AssertionError

    def estimated(self, nodes: int) -> None:
        raise AssertionError


class Stage:
    """Our end, and what a test can let happen to it."""

    def __init__(self) -> None:
        self.log = Log()
        self.direct = Direct()
        self.streams = Streams()
        self.ways = LinkSelector(
            US, self.log, direct=self._linked, streams=lambda _: self.streams
        )

    def _linked(self, ears: LinkListener) -> Direct:
        self.direct_ears = ears
        return self.direct

    def link(self, generation: int = 1) -> None:
        self.direct.up[BOB] = generation
        self.direct_ears.connected(BOB, None)
        self.direct.sent += self.direct.outbox
        self.direct.outbox = []

    def unlink(self) -> None:
        del self.direct.up[BOB]
        self.direct_ears.lost(BOB)

    def open(self, generation: int = 1, *, is_relayed: bool = False) -> None:
        self.ways.opened(BOB, None, generation=generation, is_relayed=is_relayed)


def play(scene: Callable[[Stage], Awaitable[None]]) -> None:
    async def stage() -> None:
        set_up = Stage()
        await scene(set_up)
        await set_up.ways.close()

    run(stage())


def test_a_direct_link_has_a_head_start_before_a_stream_is_tried() -> None:
    async def scene(stage: Stage) -> None:
        stage.ways.know(BOB, [DIRECT, STREAM])

        stage.ways.send(BOB, word(1))
        await asyncio.sleep(link_selector.HEAD_START_S * 0.9)
        early = stage.streams.opens
        await asyncio.sleep(link_selector.HEAD_START_S * 0.2)

        assert early == 0
        assert stage.streams.opens == 1
        assert stage.direct.known[BOB] == (DIRECT,)

    play(scene)


def test_whom_nobody_can_dial_is_tried_by_a_stream_at_once() -> None:
    async def scene(stage: Stage) -> None:
        stage.ways.know(BOB, [STREAM])

        stage.ways.send(BOB, word(1))
        await asyncio.sleep(0.01)

        assert stage.streams.opens == 1

    play(scene)


def test_nobody_is_tried_any_more_when_there_is_a_link() -> None:
    async def scene(stage: Stage) -> None:
        stage.ways.know(BOB, [DIRECT])
        stage.ways.send(BOB, word(1))

        stage.link()
        await asyncio.sleep(60)

        assert stage.streams.opens == 0
        assert stage.direct.sent == [word(1)]
        assert stage.log.events == ["connected"]
        assert stage.ways.path(BOB) == "direct"

    play(scene)


def test_what_waited_goes_by_the_stream_before_anything_else() -> None:
    async def scene(stage: Stage) -> None:
        stage.ways.send(BOB, word(1))
        stage.ways.send(BOB, word(2))

        stage.open(is_relayed=True)
        stage.ways.send(BOB, word(3))

        assert stage.streams.said == [*encode([word(1), word(2)]), word(3)]
        assert stage.ways.path(BOB) == "relay"
        assert stage.log.events == ["connected"]

    play(scene)


def test_a_better_way_is_taken_in_order_and_without_notice() -> None:
    async def scene(stage: Stage) -> None:
        stage.open()
        stage.ways.send(BOB, word(1))

        stage.link()
        stage.ways.send(BOB, word(2))
        stage.direct_ears.received(BOB, [word(12)])
        stage.log.received(BOB, [word(11)])
        early = list(stage.log.taken)
        stage.ways.moved(BOB)
        stage.direct_ears.received(BOB, [word(13)])
        stage.ways.ended(BOB, is_definite=True)

        assert stage.streams.said == [word(1), "moved"]
        assert stage.direct.sent == [word(2)]
        assert early == [word(11)]
        assert stage.log.taken == [word(11), word(12), word(13)]
        assert stage.log.events == ["connected"]
        assert stage.ways.counts["upgraded"] == 1

    play(scene)


def test_a_peer_that_never_moves_is_waited_for_but_not_for_ever() -> None:
    async def scene(stage: Stage) -> None:
        stage.open()
        stage.link()
        stage.direct_ears.received(BOB, [word(1)])

        early = list(stage.log.taken)
        await asyncio.sleep(link_selector.HANDOVER_S + 1)

        assert early == []
        assert stage.log.taken == [word(1)]

    play(scene)


def test_what_is_held_back_is_bounded() -> None:
    async def scene(stage: Stage) -> None:
        stage.open()
        stage.link()

        for number in range(link_selector.HELD_MAX + 1):
            stage.direct_ears.received(BOB, [word(number)])

        assert len(stage.log.taken) == link_selector.HELD_MAX + 1

    play(scene)


def test_a_stream_beside_a_direct_link_ends_at_once() -> None:
    async def scene(stage: Stage) -> None:
        stage.link()

        stage.open()
        stage.ways.send(BOB, word(1))

        assert stage.streams.said == ["moved"]
        assert stage.direct.sent == [word(1)]
        assert stage.log.events == ["connected"]

    play(scene)


def test_a_direct_link_that_breaks_is_told_though_there_is_a_stream() -> None:
    async def scene(stage: Stage) -> None:
        stage.link()
        stage.unlink()
        stage.open()

        assert stage.log.events == ["connected", "lost", "connected"]
        assert stage.streams.links == {BOB: False}

    play(scene)


def test_a_stream_that_breaks_for_a_moment_is_a_new_link_and_no_loss() -> None:
    async def scene(stage: Stage) -> None:
        stage.open()
        stage.ways.ended(BOB, is_definite=False)
        await asyncio.sleep(link_selector.LIMBO_S / 2)
        assert not stage.ways.peers
        assert stage.streams.opens >= 1
        stage.ways.send(BOB, word(1))

        stage.open()

        assert stage.streams.said == encode([word(1)])
        assert stage.log.events == ["connected", "connected"]
        assert stage.ways.peers == (BOB,)

    play(scene)


def test_a_stream_that_stays_away_is_told() -> None:
    async def scene(stage: Stage) -> None:
        stage.open()
        stage.ways.ended(BOB, is_definite=False)

        await asyncio.sleep(link_selector.LIMBO_S + 0.1)

        assert stage.log.events == ["connected", "lost"]

    play(scene)


def test_a_peer_that_said_goodbye_is_lost_at_once() -> None:
    async def scene(stage: Stage) -> None:
        stage.open()
        stage.ways.ended(BOB, is_definite=True)

        assert stage.log.events == ["connected", "lost"]

    play(scene)


def test_another_life_of_a_peer_is_told() -> None:
    async def scene(stage: Stage) -> None:
        stage.open(generation=1)
        stage.ways.ended(BOB, is_definite=False)

        stage.open(generation=2)
        stage.link(generation=3)

        told = ["connected", "lost", "connected", "lost", "connected"]
        assert stage.log.events == told

    play(scene)


def test_a_direct_link_is_tried_again_ever_more_rarely() -> None:
    async def scene(stage: Stage) -> None:
        stage.open()

        await asyncio.sleep(60)
        first_minute = stage.direct.reached
        await asyncio.sleep(3_600)

        assert first_minute == 3
        assert stage.direct.reached < 3 + 20

    play(scene)


def test_a_new_address_of_a_peer_on_a_stream_is_tried_at_once() -> None:
    async def scene(stage: Stage) -> None:
        stage.open()

        stage.ways.know(BOB, [DIRECT])

        assert stage.direct.reached == 1

    play(scene)


def test_who_is_cut_off_is_cut_off_on_both_ways_and_told_once() -> None:
    async def scene(stage: Stage) -> None:
        stage.link()
        stage.open()

        stage.ways.disconnect(BOB, "revoked")
        stage.unlink()
        stage.ways.ended(BOB, is_definite=True)

        assert stage.direct.cut == [BOB]
        assert stage.streams.cut == [BOB]
        assert stage.log.events == ["connected", "lost"]

    play(scene)


def test_only_the_way_in_use_is_measured() -> None:
    async def scene(stage: Stage) -> None:
        stage.open()
        stage.ways.stream_measured(BOB, 0.040)
        stage.link()
        stage.ways.stream_measured(BOB, 0.041)
        stage.direct_ears.measured(BOB, 0.001)

        assert stage.log.rtts == [0.040, 0.001]
        assert stage.ways.rtt_s(BOB) == 0.001

    play(scene)


def test_all_addresses_are_told_the_best_first() -> None:
    async def scene(stage: Stage) -> None:
        assert stage.ways.addresses == (*Direct.addresses, *Streams.addresses)

    play(scene)


def test_a_ping_asks_the_direct_link_and_returns_its_answer() -> None:
    async def scene(stage: Stage) -> None:
        stage.link()
        before = stage.direct.reached

        asked = [asyncio.ensure_future(stage.ways.ping(BOB)) for _ in range(2)]
        await asyncio.sleep(0)
        assert stage.direct.reached == before + 2
        stage.direct_ears.measured(BOB, 0.25)

        async with asyncio.timeout(5.0):
            assert [await each for each in asked] == [0.25, 0.25]

    play(scene)


def test_a_ping_over_a_stream_is_the_next_that_it_measures() -> None:
    async def scene(stage: Stage) -> None:
        stage.open(is_relayed=True)

        asked = asyncio.ensure_future(stage.ways.ping(BOB))
        await asyncio.sleep(0)
        stage.ways.stream_measured(BOB, 0.5)

        async with asyncio.timeout(5.0):
            assert await asked == 0.5
        assert stage.direct.reached == 0

    play(scene)


def test_a_ping_that_nobody_answers_leaves_nothing_behind() -> None:
    async def scene(stage: Stage) -> None:
        stage.link()

        with pytest.raises(TimeoutError):
            async with asyncio.timeout(5.0):
                await stage.ways.ping(BOB)

        stage.direct_ears.measured(BOB, 0.25)  # Too late, and no harm.
        assert stage.ways.rtt_s(BOB) == 0.25

    play(scene)
