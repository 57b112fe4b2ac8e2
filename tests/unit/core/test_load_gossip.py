"""What a node passes on, to whom, and what it remembers."""

from __future__ import annotations

from functools import partial
from random import Random

import msgspec
import pytest
from msgspec.structs import replace

from shoal.core.discovery.gossip_candidates import GossipCandidates
from shoal.core.discovery.load_gossip import (
    GossipNeighbours,
    LoadGossip,
    rumour_payload,
)
from shoal.core.events import (
    DeadlineReached,
    Effect,
    MessageReceived,
    NeighboursChanged,
    PeerConnected,
    PeerLost,
    Send,
    SizeEstimated,
)
from shoal.model.ids import NodeId
from shoal.model.resources import GIB, GpuNeed, Profile
from shoal.protocol.limits import HOPS_MAX, RUMOURS_MAX
from shoal.protocol.messages import Load, LoadDigest, LoadDigests, Rumour
from shoal.sim.node import trust

ME, ANN, BOB, CEM = map(NodeId, ("me", "ann", "bob", "cem"))
OWN = LoadDigest(
    node=ME,
    epoch=1,
    seq=5,
    load=Load(4_000, GIB, 0, (1_000, 250), (8 * GIB, 2 * GIB), 1),
)


def rumour(node: NodeId, seq: int, *, epoch: int = 1, hops: int = 3) -> Rumour:
    return Rumour(node, epoch, seq, hops, cpu_milli=1_000 * seq)


def heard(gossip: LoadGossip, peer: NodeId, *rumours: Rumour, now: float = 0.0) -> None:
    effects = gossip.handle(MessageReceived(peer, LoadDigests(rumours=rumours)), now)
    assert effects == []


def next_round(gossip: LoadGossip) -> dict[NodeId, list[Rumour]]:
    due = gossip.next_deadline()
    assert due is not None
    return told(gossip.handle(DeadlineReached(), due))


def told(effects: list[Effect]) -> dict[NodeId, list[Rumour]]:
    found: dict[NodeId, list[Rumour]] = {}
    for effect in effects:
        assert isinstance(effect, Send)
        assert isinstance(effect.message, LoadDigests)
        found[effect.peer] = list(effect.message.rumours)
    return found


def tree(*neighbours: NodeId) -> LoadGossip:
    return LoadGossip(ME, Random(7), GossipNeighbours(fixed=neighbours))


def test_our_own_room_is_told_to_all_neighbours_in_short_and_then_silence() -> None:
    gossip = tree(ANN, BOB)

    gossip.tell(OWN, 0.0)

    due = gossip.next_deadline()
    assert due is not None
    assert due == 2.0, "it waits to know how large the shoal is"
    short = Rumour(ME, 1, 5, HOPS_MAX - 1, 4_000, GIB, 1, 1_000, 8 * GIB)
    assert next_round(gossip) == {ANN: [short], BOB: [short]}
    assert gossip.next_deadline() is None


def test_a_rumour_goes_on_to_all_but_those_who_know_it() -> None:
    gossip = tree(ANN, BOB, CEM)

    heard(gossip, ANN, rumour(NodeId("x"), 1), rumour(CEM, 2))
    heard(gossip, BOB, rumour(NodeId("x"), 1))

    assert next_round(gossip) == {
        BOB: [rumour(CEM, 2, hops=2)],
        CEM: [rumour(NodeId("x"), 1, hops=2)],
    }


def test_old_news_is_no_news() -> None:
    gossip = tree(ANN)
    heard(gossip, ANN, rumour(BOB, 5))
    next_round_due = gossip.next_deadline()
    gossip.handle(DeadlineReached(), next_round_due or 0.0)

    heard(gossip, ANN, rumour(BOB, 4), rumour(BOB, 5), rumour(BOB, 9, epoch=0))

    assert gossip.next_deadline() is None
    assert gossip.known[BOB].seq == 5


def test_what_a_worker_says_of_itself_stands_against_gossip_candidates() -> None:
    gossip = tree(ANN)
    heard(gossip, ANN, rumour(BOB, 10**9))

    heard(gossip, BOB, rumour(BOB, 5))

    assert gossip.known[BOB].seq == 5


def test_nobody_is_told_by_others_about_itself() -> None:
    gossip = tree(ANN)
    gossip.tell(OWN, 0.0)

    heard(gossip, ANN, Rumour(ME, 9, 9, 9))

    assert gossip.known[ME].epoch == 1


def test_a_new_overlay_counts_from_the_next_round_on() -> None:
    gossip = tree(ANN, BOB)
    gossip.tell(OWN, 0.0)

    gossip.handle(NeighboursChanged((CEM,)), 0.1)

    assert list(next_round(gossip)) == [CEM]


def test_a_rumour_without_hops_is_kept_and_goes_no_further() -> None:
    gossip = tree(ANN, BOB)

    heard(gossip, ANN, rumour(CEM, 1, hops=0))

    assert CEM in gossip.known
    assert gossip.next_deadline() is None


def test_drawn_neighbours_are_told_several_times_over() -> None:
    everybody = [NodeId(f"n{n}") for n in range(40)] + [ME]
    hood = GossipNeighbours(drawn_from=everybody, fan_out=3, repeats=2)
    gossip = LoadGossip(ME, Random(7), hood)
    gossip.tell(OWN, 0.0)

    first, second = next_round(gossip), next_round(gossip)

    assert len(first) == len(second) == 3
    assert ME not in first
    assert first.keys() != second.keys()
    assert gossip.next_deadline() is None


def test_live_nodes_draw_from_those_they_are_linked_to() -> None:
    gossip = LoadGossip(ME, Random(7))
    gossip.handle(PeerConnected(ANN, None), 0.0)
    gossip.handle(PeerConnected(BOB, None), 0.0)
    gossip.handle(PeerLost(BOB), 0.0)
    gossip.tell(OWN, 0.0)

    assert list(next_round(gossip)) == [ANN]


def test_a_neighbour_that_comes_back_is_told_what_it_missed() -> None:
    gossip = tree(ANN)
    heard(gossip, CEM, rumour(BOB, 1))

    assert told(gossip.handle(PeerConnected(ANN, None), 0.0)) == {
        ANN: [rumour(BOB, 1, hops=2)]
    }
    assert gossip.handle(PeerConnected(CEM, None), 0.0) == []


def test_memory_and_messages_are_bounded_whatever_is_heard() -> None:
    gossip = LoadGossip(ME, Random(7), GossipNeighbours(fixed=(ANN,), known_max=200))
    gossip.tell(OWN, 0.0)

    for start in range(0, 1_000, 100):
        many = [rumour(NodeId(f"n{n}"), 1) for n in range(start, start + 100)]
        heard(gossip, BOB, *many)

    assert len(gossip.known) <= 201
    assert ME in gossip.known
    while gossip.next_deadline() is not None:
        assert len(next_round(gossip)[ANN]) <= RUMOURS_MAX


def test_in_a_large_shoal_news_stays_in_the_neighbourhood() -> None:
    hood = GossipNeighbours(fixed=tuple(NodeId(f"n{n}") for n in range(5)))
    gossip = LoadGossip(ME, Random(7), hood)

    gossip.handle(SizeEstimated(10_000), 0.0)
    gossip.tell(OWN, 0.0)

    heard(gossip, ANN, rumour(BOB, 1, hops=9), rumour(CEM, 1, hops=2))
    sent = {r.node: r.hops for r in next_round(gossip)[NodeId("n0")]}
    assert sent[ME] == 4  # 4 ** 5 = 1,024 nodes, and no more, hear of it
    assert sent[BOB] == 4, "others may think that the shoal is smaller"
    assert sent[CEM] == 1


def test_news_on_its_way_goes_less_far_once_the_shoal_is_known_to_be_large() -> None:
    everybody = [NodeId(f"n{n}") for n in range(40)]
    gossip = LoadGossip(
        ME, Random(7), GossipNeighbours(drawn_from=everybody, repeats=2)
    )
    gossip.tell(OWN, 0.0)

    [before, *_] = next_round(gossip).values()
    gossip.handle(SizeEstimated(10_000), 2.0)
    [after, *_] = next_round(gossip).values()

    assert [r.hops for r in before] == [HOPS_MAX - 1]
    assert after[0].hops < before[0].hops


def gossip_candidates(*rumours: Rumour) -> GossipCandidates:
    known = {rumour.node: rumour for rumour in rumours}
    return GossipCandidates(ME, known, {ANN: 30, BOB: 10, CEM: 20}.__getitem__)


def test_the_nearest_with_room_are_asked_first_and_once() -> None:
    asker = gossip_candidates(rumour(ANN, 4), rumour(BOB, 1), rumour(CEM, 4))
    unmet = {Profile(cpu_milli=2_000): 1}

    assert asker.whom_to_ask(unmet, (), 0.0) == [CEM]
    assert asker.whom_to_ask(unmet, (), 0.1) == [], "it rests between two searches"
    assert asker.whom_to_ask(unmet, (), 1.0) == [ANN]
    assert asker.whom_to_ask(unmet, (), 2.0) == []
    assert asker.whom_to_ask(unmet, (CEM,), 9.0) == [ANN], "who is seen is not asked"


def test_gpus_count_by_what_a_rumour_tells_of_them() -> None:
    two = Rumour(ANN, 1, 1, 0, 8_000, GIB, 2, 1_000, 24 * GIB)
    share = Rumour(BOB, 1, 1, 0, 8_000, GIB, 0, 400, 4 * GIB)

    def asked(gpu: GpuNeed) -> list[NodeId]:
        profile = Profile(gpu=gpu)
        return gossip_candidates(two, share).whom_to_ask({profile: 9}, (), 0.0)

    assert asked(GpuNeed(count=2, count_max=2)) == [ANN]
    assert asked(GpuNeed(count=3, count_max=3)) == []
    assert asked(GpuNeed(milli=400)) == [BOB, ANN]
    assert asked(GpuNeed(milli=400, memory_min_bytes=8 * GIB)) == [ANN]
    drained = msgspec.structs.replace(two, draining=True)
    assert gossip_candidates(drained).whom_to_ask({Profile(): 1}, (), 0.0) == []


def signed(about: Rumour, key: NodeId) -> LoadDigests:
    signature = trust.sign(key, rumour_payload(about))
    return LoadDigests(rumours=(about,), signatures=(signature,))


def hear(gossip: LoadGossip, peer: NodeId, digests: LoadDigests) -> None:
    assert gossip.handle(MessageReceived(peer, digests), 0.0) == []


def wary() -> LoadGossip:
    return LoadGossip(
        ME, Random(7), GossipNeighbours(fixed=(ANN,)), verify=trust.verify
    )


@pytest.mark.parametrize("key", [CEM, None])
def test_a_forged_rumour_hides_no_worker(key: NodeId | None) -> None:
    gossip = wary()
    hear(gossip, ANN, signed(rumour(BOB, 5), BOB))
    full = Rumour(BOB, 10**9, 1, 3, draining=True)
    forged = LoadDigests(rumours=(full,)) if key is None else signed(full, key)

    hear(gossip, CEM, forged)

    assert gossip.known[BOB].epoch == 1
    hear(gossip, ANN, signed(rumour(BOB, 6), BOB))
    assert gossip.known[BOB].seq == 6


def test_what_is_signed_stands_against_what_was_heard_before() -> None:
    gossip = wary()
    heard(gossip, CEM, Rumour(BOB, 10**9, 1, 3, draining=True))

    hear(gossip, ANN, signed(rumour(BOB, 5), BOB))

    assert gossip.known[BOB].seq == 5
    assert not gossip.known[BOB].draining


def test_what_is_passed_on_can_be_verified() -> None:
    sign = partial(trust.sign, ME)
    mine = LoadGossip(ME, Random(7), GossipNeighbours(fixed=(ANN,)), sign=sign)
    mine.tell(OWN, 0.0)
    due = mine.next_deadline()
    assert due is not None
    [effect] = mine.handle(DeadlineReached(), due)
    assert isinstance(effect, Send)
    assert isinstance(effect.message, LoadDigests)
    other = LoadGossip(BOB, Random(7), verify=trust.verify)

    hear(other, ANN, effect.message)

    assert other.known[ME].seq == 5
    assert other.forged == 0


def test_a_rumour_that_was_changed_on_its_way_is_dropped() -> None:
    gossip = wary()
    digests = signed(rumour(BOB, 5), BOB)
    changed = (replace(digests.rumours[0], cpu_milli=0),)

    hear(gossip, ANN, replace(digests, rumours=changed))

    assert BOB not in gossip.known
    assert gossip.forged == 1


def test_more_signatures_than_rumours_mean_nothing() -> None:
    gossip = wary()

    hear(gossip, ANN, LoadDigests(rumours=(), signatures=(b"x", b"y")))

    assert not gossip.known


def test_in_a_large_shoal_the_same_peers_hear_what_comes_next() -> None:
    gossip = LoadGossip(ME, Random(7))
    peers = [NodeId(f"n{n}") for n in range(40)]
    for peer in peers:
        gossip.handle(PeerConnected(peer, None), 0.0)
    gossip.handle(SizeEstimated(100_000), 0.0)

    gossip.tell(OWN, 0.0)
    first = set(next_round(gossip))
    assert gossip.next_deadline() is None, "each is told once"
    gossip.tell(replace(OWN, seq=6), 10.0)
    again = set(next_round(gossip))
    gone = min(first)
    gossip.handle(PeerLost(gone), 20.0)
    gossip.tell(replace(OWN, seq=7), 30.0)
    later = set(next_round(gossip))

    assert len(first) == 9
    assert again == first
    assert len(later) == 9
    assert later > first - {gone}
