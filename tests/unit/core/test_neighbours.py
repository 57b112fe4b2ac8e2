"""Which members a node links to, whom it asks, and whom it remembers."""

from random import Random

from shoal.core.discovery import neighbours as limits
from shoal.core.discovery.events import (
    ExpectCompany,
    KeepMembers,
    LearnAddresses,
    NetworkOpened,
    PeerMet,
    ReachPeer,
)
from shoal.core.discovery.known_members import KEPT_MAX, KnownMembers
from shoal.core.discovery.neighbours import Neighbours
from shoal.core.events import (
    AddressesChanged,
    DeadlineReached,
    Effect,
    MessageReceived,
    PeerConnected,
    PeerLost,
    Send,
)
from shoal.model.ids import NodeId, RequestId
from shoal.protocol.messages import (
    Announcement,
    PeerAddress,
    PeersKnown,
    PeersWanted,
)

US, ANN, BOB, GATE = NodeId("us"), NodeId("ann"), NodeId("bob"), NodeId("gate")
HERE, PLACE = "/ip4/192.0.2.1/tcp/4001/p2p/us", "/ip4/192.0.2.7/tcp/4001/p2p/bob"


def opened(*gates: str, asks: bool = True, relays: bool = False) -> Neighbours:
    ours = Neighbours(US, KnownMembers(gates), Random(1), asks=asks)
    ours.handle(AddressesChanged((HERE,)), 0.0)
    ours.handle(NetworkOpened(relays), 0.0)
    return ours


def link(ours: Neighbours, *peers: NodeId) -> list[Effect]:
    return [e for peer in peers for e in ours.handle(PeerConnected(peer, None), 0.0)]


def crowd(count: int) -> list[NodeId]:
    return [NodeId(f"n{n}") for n in range(count)]


def named(*peers: NodeId) -> PeersKnown:
    rows = tuple(PeerAddress(peer, (PLACE,)) for peer in peers)
    return PeersKnown(request=RequestId("r"), peers=rows)


def wanted(*addresses: str, relays: bool = False) -> PeersWanted:
    request = RequestId("r")
    return PeersWanted(request=request, count=1, addresses=addresses, relays=relays)


def reached(effects: list[Effect]) -> list[NodeId]:
    return [effect.peer for effect in effects if isinstance(effect, ReachPeer)]


def asked(effects: list[Effect]) -> list[NodeId]:
    return [effect.peer for effect in effects if isinstance(effect, Send)]


def test_a_new_neighbour_is_told_where_we_are_and_asked_for_others() -> None:
    [company, sent] = link(opened(relays=True), ANN)

    assert company == ExpectCompany()
    assert isinstance(sent, Send)
    assert isinstance(sent.message, PeersWanted)
    assert sent.peer == ANN
    assert sent.message.addresses == (HERE,)
    assert sent.message.count == limits.PEERS_WANTED
    assert sent.message.relays


def test_nothing_is_asked_before_the_network_is_open() -> None:
    ours = Neighbours(US, KnownMembers([PLACE]), Random(1))

    assert link(ours, ANN) == []
    assert ours.next_deadline() is None


def test_all_neighbours_are_told_when_we_can_be_reached_elsewhere() -> None:
    ours = opened()
    link(ours, ANN, BOB)

    assert asked(ours.handle(AddressesChanged(("/new",)), 1.0)) == [ANN, BOB]


def test_members_that_are_named_are_reached_until_there_are_enough() -> None:
    ours = opened()
    link(ours, ANN)

    first = ours.handle(MessageReceived(ANN, named(BOB, US, ANN)), 1.0)
    link(ours, *crowd(limits.LINKS_WANTED))
    later = ours.handle(MessageReceived(ANN, named(NodeId("more"))), 2.0)

    assert reached(first) == [BOB]
    assert reached(later) == []
    assert LearnAddresses(NodeId("more"), (PLACE,)) in later


def test_who_is_not_to_look_for_others_believes_a_peer_about_itself_only() -> None:
    ours = opened(asks=False)

    effects = ours.handle(MessageReceived(ANN, named(ANN, BOB)), 1.0)

    assert effects == [LearnAddresses(ANN, (PLACE,))]
    assert reached(ours.handle(PeerMet(BOB, (PLACE,)), 2.0)) == []


def test_known_members_are_tried_again_and_again_while_there_are_few_links() -> None:
    ours = opened("/ip4/192.0.2.9/tcp/4001/p2p/gate")
    knocks: list[NodeId] = []
    for _ in range(4):
        due = ours.next_deadline()
        assert due is not None
        knocks += reached(ours.handle(DeadlineReached(), due))

    link(ours, *crowd(limits.LINKS_FEW))
    while (due := ours.next_deadline()) is not None and due < limits.ASK_S:
        assert ours.handle(DeadlineReached(), due) == []

    assert knocks == [GATE] * 4
    assert due is not None
    again = ours.handle(DeadlineReached(), due)
    assert reached(again) == [GATE]
    assert len(asked(again)) == limits.LINKS_FEW


def test_linked_members_are_remembered_for_the_next_life() -> None:
    ours = opened()
    link(ours, BOB)

    first = ours.handle(MessageReceived(BOB, wanted(PLACE)), 1.0)
    again = ours.handle(MessageReceived(BOB, wanted(PLACE)), 2.0)

    assert first == [LearnAddresses(BOB, (PLACE,)), KeepMembers({BOB: (PLACE,)})]
    assert again == [LearnAddresses(BOB, (PLACE,))]


def test_a_gate_is_known_as_one_while_it_is_linked() -> None:
    ours = opened()
    link(ours, BOB)

    ours.handle(MessageReceived(BOB, wanted(PLACE, relays=True)), 1.0)
    while_linked = dict(ours.gates)
    ours.handle(PeerLost(BOB), 2.0)

    assert while_linked == {BOB: (PLACE,)}
    assert ours.gates == {}


def test_a_scheduler_that_announces_can_be_dialled() -> None:
    ours = opened()
    said = Announcement(scheduler=BOB, addresses=(PLACE,))

    assert ours.handle(MessageReceived(BOB, said), 1.0) == [
        LearnAddresses(BOB, (PLACE,))
    ]
    assert ours.handle(MessageReceived(ANN, said), 1.0) == []


def test_few_members_are_remembered() -> None:
    known = KnownMembers()
    for node in crowd(2 * KEPT_MAX):
        known.note(node, [PLACE])

    assert len(known) == KEPT_MAX


def test_one_neighbour_that_never_answers_does_not_keep_us_from_the_others() -> None:
    ours = opened()
    peers = crowd(limits.LINKS_FEW)
    link(ours, *peers)
    ours.handle(DeadlineReached(), 0.0)

    effects = ours.handle(DeadlineReached(), limits.ASK_S)

    assert sorted(e.peer for e in effects if isinstance(e, Send)) == sorted(peers)


def test_a_node_with_links_enough_dials_its_gates_and_one_known_member_a_minute() -> (
    None
):
    earlier = dict.fromkeys(crowd(limits.SMALL_SHOAL), (PLACE,))
    ours = Neighbours(US, KnownMembers([f"/x/p2p/{GATE}"], earlier), Random(1))
    ours.handle(NetworkOpened(relays=False), 0.0)
    link(ours, *(NodeId(f"linked{n}") for n in range(limits.LINKS_WANTED)))

    effects = ours.handle(DeadlineReached(), limits.ASK_S)

    reached = [e.peer for e in effects if isinstance(e, ReachPeer)]
    assert reached[0] == GATE
    assert len(reached) == 2
    assert reached[1] in earlier


def test_in_a_small_shoal_a_node_dials_all_that_it_knows() -> None:
    earlier = dict.fromkeys(crowd(limits.SMALL_SHOAL - limits.LINKS_WANTED), (PLACE,))
    ours = Neighbours(US, KnownMembers([], earlier), Random(1))
    ours.handle(NetworkOpened(relays=False), 0.0)
    link(ours, *(NodeId(f"linked{n}") for n in range(limits.LINKS_WANTED)))

    effects = ours.handle(DeadlineReached(), limits.ASK_S)

    assert {e.peer for e in effects if isinstance(e, ReachPeer)} == set(earlier)
