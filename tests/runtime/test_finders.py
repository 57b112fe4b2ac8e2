"""Finding others: neighbours, who is remembered, and what is heard once only."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from random import Random

import pytest
from tests.runtime.virtual_time import run

from shoal.errors import UsageError
from shoal.model.ids import NodeId, RequestId
from shoal.protocol.messages import (
    Announcement,
    AnyMessage,
    Goodbye,
    Grant,
    PeerAddress,
    PeersKnown,
    PeersWanted,
)
from shoal.runtime.discovery import neighbours as limits
from shoal.runtime.discovery.finders import ECHO_S, DeduplicatingListener
from shoal.runtime.discovery.known_members import KEPT_MAX, KnownMembers
from shoal.runtime.discovery.neighbours import Neighbours
from shoal.runtime.discovery.node_network import finding_of

US, ANN, BOB = NodeId("us"), NodeId("ann"), NodeId("bob")
PLACE = "/ip4/192.0.2.7/tcp/4001/p2p/bob"


class Links:
    """Links that come up as soon as they are wanted."""

    node = US
    addresses = ("/ip4/192.0.2.1/tcp/4001/p2p/us",)

    def __init__(self) -> None:
        self.connected: tuple[NodeId, ...] = ()
        self.known: dict[NodeId, tuple[str, ...]] = {}
        self.reached: list[NodeId] = []
        self.sent: list[tuple[NodeId, AnyMessage]] = []

    def know(self, peer: NodeId, addresses: Sequence[str]) -> None:
        self.known[peer] = tuple(addresses)

    def reach(self, peer: NodeId) -> None:
        self.reached.append(peer)

    def send(self, peer: NodeId, message: AnyMessage) -> None:
        self.sent.append((peer, message))


class Log:
    """A listener that remembers what it hears."""

    def __init__(self) -> None:
        self.heard_: list[AnyMessage] = []

    def connected(self, peer: NodeId, grant: Grant | None) -> None:
        pass

    def lost(self, peer: NodeId) -> None:
        pass

    def received(self, peer: NodeId, messages: Sequence[AnyMessage]) -> None:
        self.heard_ += messages

    def heard(self, origin: NodeId, message: AnyMessage) -> None:
        self.heard_.append(message)

    def looked_up(self, lookup: int, providers: Sequence[PeerAddress]) -> None:
        pass

    def measured(self, peer: NodeId, rtt_s: float) -> None:
        pass

    def estimated(self, nodes: int) -> None:
        pass


def neighbours(links: Links, *gates: str, asks: bool = True) -> Neighbours:
    return Neighbours(links, KnownMembers(None, gates), Random(1), asks=asks)


def named(*peers: NodeId) -> PeersKnown:
    rows = tuple(PeerAddress(peer, (PLACE,)) for peer in peers)
    return PeersKnown(request=RequestId("r"), peers=rows)


def test_a_new_neighbour_is_told_where_we_are_and_asked_for_others() -> None:
    links = Links()

    neighbours(links).on_connected(ANN)

    [(peer, wanted)] = links.sent
    assert peer == ANN
    assert isinstance(wanted, PeersWanted)
    assert wanted.addresses == links.addresses
    assert wanted.count == limits.PEERS_WANTED


def test_members_that_are_named_are_reached_until_there_are_enough() -> None:
    links = Links()
    ours = neighbours(links)

    ours.on_message(ANN, named(BOB))
    links.connected = tuple(NodeId(f"n{n}") for n in range(limits.LINKS_WANTED))
    ours.on_message(ANN, named(NodeId("more")))

    assert links.reached == [BOB]
    assert links.known[NodeId("more")] == (PLACE,)


def test_who_is_not_to_look_for_others_believes_a_peer_about_itself_only() -> None:
    links = Links()

    neighbours(links, asks=False).on_message(ANN, named(ANN, BOB))

    assert list(links.known) == [ANN]
    assert links.reached == []


def test_gates_are_tried_again_and_again_while_there_are_few_links() -> None:
    async def main() -> None:
        links = Links()
        ours = neighbours(links, "/ip4/192.0.2.9/tcp/4001/p2p/gate")
        ours.start()

        await asyncio.sleep(3.5 * limits.KNOCK_S)
        few = len(links.reached)
        links.connected = tuple(NodeId(f"n{n}") for n in range(limits.LINKS_FEW))
        await asyncio.sleep(limits.ASK_S - 4 * limits.KNOCK_S)
        await ours.close()

        assert few == 4
        assert len(links.reached) == few

    run(main())


def test_publishing_tells_all_neighbours() -> None:
    links = Links()
    links.connected = (ANN, BOB)

    neighbours(links).publish(Goodbye())

    assert links.sent == [(ANN, Goodbye()), (BOB, Goodbye())]


def test_linked_members_are_remembered_for_the_next_life(tmp_path: Path) -> None:
    async def main() -> None:
        file = tmp_path / "peers.json"
        links = Links()
        links.connected = (BOB,)
        known = KnownMembers(file)
        ours = Neighbours(links, known, Random(1))

        wanted = PeersWanted(request=RequestId("r"), count=1, addresses=(PLACE,))
        ours.on_message(BOB, wanted)
        await ours.close()

        assert list(KnownMembers(file)) == [(BOB, (PLACE,))]

    run(main())


def test_a_broken_file_of_members_is_an_empty_one(tmp_path: Path) -> None:
    file = tmp_path / "peers.json"
    file.write_text("{]")

    assert list(KnownMembers(file, [PLACE])) == [(BOB, (PLACE,))]


def test_few_members_are_remembered() -> None:
    known = KnownMembers(None)
    for number in range(2 * KEPT_MAX):
        known.note(NodeId(f"n{number}"), [PLACE])

    assert len(known) == KEPT_MAX


def hearing(scene: Callable[[DeduplicatingListener, Log], Awaitable[None]]) -> None:
    async def main() -> None:
        log = Log()
        await scene(DeduplicatingListener(log), log)

    run(main())


def test_an_announcement_is_heard_once_by_whatever_way_it_comes() -> None:
    async def scene(ours: DeduplicatingListener, log: Log) -> None:
        said = Announcement(scheduler=ANN, seq=1)

        ours.received(ANN, [said, Goodbye()])
        ours.heard(ANN, said)
        ours.received(ANN, [said, Goodbye()])
        ours.heard(ANN, Announcement(scheduler=ANN, seq=2))
        await asyncio.sleep(ECHO_S + 1)
        ours.heard(ANN, said)

        seqs = [m.seq for m in log.heard_ if isinstance(m, Announcement)]
        assert seqs == [1, 2, 1]
        assert log.heard_.count(Goodbye()) == 2

    hearing(scene)


def test_the_first_link_is_told_once() -> None:
    async def scene(ours: DeduplicatingListener, log: Log) -> None:
        firsts: list[int] = []
        ours.attach(neighbours(Links()), lambda: firsts.append(1))

        ours.connected(ANN, None)
        ours.connected(BOB, None)

        assert firsts == [1]

    hearing(scene)


def test_a_way_that_does_not_exist_cannot_be_switched_off() -> None:
    assert not finding_of(["mdns"]).mdns
    with pytest.raises(UsageError, match="no way 'pigeons'"):
        finding_of(["pigeons"])
