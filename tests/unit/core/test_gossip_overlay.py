"""Which linked peers are told what a node hears of load."""

from __future__ import annotations

import pytest

from shoal.core.discovery.gossip_overlay import (
    NEAREST,
    REWIRE_S,
    STRAYS,
    GossipOverlay,
    mark_of,
)
from shoal.core.events import (
    Effect,
    MessageReceived,
    NeighboursChanged,
    PathMeasured,
    PeerConnected,
    PeerLost,
    Send,
    Tell,
)
from shoal.model.ids import NodeId
from shoal.model.kinds import Overlay
from shoal.protocol.messages import Neighbourhood

ME, ANN, BOB, CEM = map(NodeId, ("me", "ann", "bob", "cem"))
NEAR_US, FAR_US = 500.0, 40_000.0


def linked(overlay: Overlay, **rtts_us: float) -> GossipOverlay:
    """Return a machine that is linked to these peers and measures them."""
    rtts = {NodeId(name): rtt_us for name, rtt_us in rtts_us.items()}
    machine = GossipOverlay(ME, rtts, overlay)
    for peer in rtts:
        machine.handle(PeerConnected(peer, None), 0.0)
    return machine


def hear(machine: GossipOverlay, peer: NodeId, links: dict[NodeId, int]) -> None:
    """Let a peer tell of its links."""
    told = Neighbourhood(links=tuple((mark_of(n), far) for n, far in links.items()))
    machine.handle(MessageReceived(peer, told), 0.0)


def look(machine: GossipOverlay, now: float) -> list[Effect]:
    return machine.handle(PathMeasured(ANN, NEAR_US / 1e6), now)


def test_random_says_and_hears_nothing() -> None:
    machine = linked("random", ann=NEAR_US)

    assert machine.chosen is None
    assert look(machine, 1.0) == []


def test_flood_tells_all_and_says_nothing_of_its_links() -> None:
    machine = linked("flood", ann=NEAR_US, bob=FAR_US)

    assert machine.chosen == (ANN, BOB)
    assert look(machine, 1.0) == []


def test_a_tree_leaves_out_a_peer_that_another_one_is_nearer_to() -> None:
    machine = linked("mst", ann=NEAR_US, bob=FAR_US)
    hear(machine, ANN, {ME: 0, BOB: 2})
    hear(machine, BOB, {ME: 5, ANN: 2})

    effects = look(machine, 1.0)

    mine = Neighbourhood(links=((mark_of(ANN), 0), (mark_of(BOB), 5)))
    changed = NeighboursChanged((ANN,), strays=STRAYS)
    assert effects == [Send(ANN, mine), Send(BOB, mine), Tell(changed)]
    assert look(machine, 1.0 + REWIRE_S) == [], "nothing is said twice"


def test_a_link_that_one_end_claims_leaves_nobody_out() -> None:
    machine = linked("mst", ann=NEAR_US, bob=FAR_US)
    hear(machine, ANN, {ME: 0, BOB: 0})
    hear(machine, BOB, {ME: 5})

    look(machine, 1.0)

    assert machine.chosen == (ANN, BOB)


def test_a_link_is_as_long_as_its_longer_end_says() -> None:
    machine = linked("mst", ann=NEAR_US, bob=NEAR_US)
    hear(machine, ANN, {ME: 0, BOB: 0})
    hear(machine, BOB, {ME: 0, ANN: 7})

    look(machine, 1.0)

    assert machine.chosen == (ANN, BOB)


def test_who_says_nothing_is_always_told() -> None:
    machine = linked("mst", ann=NEAR_US, bob=NEAR_US, cem=FAR_US)
    hear(machine, ANN, {ME: 0, BOB: 0, CEM: 0})

    look(machine, 1.0)

    assert machine.chosen == (ANN, BOB, CEM)


def test_a_tree_is_made_anew_at_once_when_a_peer_is_lost() -> None:
    machine = linked("mst", ann=NEAR_US, bob=FAR_US)
    hear(machine, ANN, {ME: 0, BOB: 2})
    hear(machine, BOB, {ME: 5, ANN: 2})
    look(machine, 1.0)

    effects = machine.handle(PeerLost(ANN), 2.0)

    assert effects == [Tell(NeighboursChanged((BOB,), strays=STRAYS))]


def test_the_nearest_are_told_besides_the_tree() -> None:
    names = [NodeId(f"n{n}") for n in range(8)]
    machine = linked("nearest", **dict.fromkeys(names, NEAR_US))
    for name in names:
        hear(machine, name, dict.fromkeys([ME, *names], 0))
    look(machine, 1.0)
    tree = linked("mst", **dict.fromkeys(names, NEAR_US))
    for name in names:
        hear(tree, name, dict.fromkeys([ME, *names], 0))
    look(tree, 1.0)

    assert machine.chosen is not None
    assert tree.chosen is not None
    assert set(tree.chosen) <= set(machine.chosen)
    assert NEAREST <= len(machine.chosen) <= NEAREST + len(tree.chosen)


@pytest.mark.parametrize("rtt_us", [2_700.0, 5_000.0])
def test_a_distance_stands_until_it_is_clearly_wrong(rtt_us: float) -> None:
    rtts = {ANN: 3_000.0}
    machine = GossipOverlay(ME, rtts, "mst")
    machine.handle(PeerConnected(ANN, None), 0.0)
    [told, *_] = look(machine, 1.0)
    assert told == Send(ANN, Neighbourhood(links=((mark_of(ANN), 1),)))

    rtts[ANN] = rtt_us

    assert look(machine, 1.0 + REWIRE_S) == []
