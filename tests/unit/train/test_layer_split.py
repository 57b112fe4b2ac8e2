"""Layers are split so that the slowest stage is as fast as can be."""

import itertools
from random import Random

import pytest

from shoal.errors import UsageError
from shoal.train.gangs.layer_split import Layer, StagePeer, split

MUCH = 1 << 40


def layers(*flops: float, memory: int = 1, output: int = 0) -> list[Layer]:
    return [Layer(each, memory, output) for each in flops]


def links(count: int, rate: float = 1e12) -> list[list[float]]:
    return [[rate] * count for _ in range(count)]


def test_equal_peers_get_equal_work() -> None:
    found = split(
        layers(1, 1, 1, 1), [StagePeer(1, MUCH), StagePeer(1, MUCH)], links(2)
    )

    assert found.starts == (0, 2)
    assert found.slowest_s == 2.0


def test_a_fast_peer_gets_more_layers() -> None:
    found = split(
        layers(1, 1, 1, 1), [StagePeer(1, MUCH), StagePeer(3, MUCH)], links(2)
    )

    shares = dict(zip(found.peers, _sizes(found.starts, 4), strict=True))
    assert shares == {0: 1, 1: 3}


def test_a_peer_gets_no_more_than_its_memory_holds() -> None:
    found = split(
        layers(1, 1, 1, 1, memory=10),
        [StagePeer(100, 10), StagePeer(1, MUCH)],
        links(2),
    )

    shares = dict(zip(found.peers, _sizes(found.starts, 4), strict=True))
    assert shares == {0: 1, 1: 3}


def test_cuts_are_made_where_little_is_sent() -> None:
    wide = [Layer(1, 1, 1_000), Layer(1, 1, 10), Layer(1, 1, 1_000), Layer(1, 1, 0)]

    found = split(wide, [StagePeer(1, MUCH), StagePeer(1, MUCH)], links(2, rate=100.0))

    assert found.starts == (0, 2)


def test_peers_are_ordered_so_that_neighbours_have_good_links() -> None:
    # 0 and 2 are close to 1, but far from each other.
    rates = [[1, 1_000, 1], [1_000, 1, 1_000], [1, 1_000, 1]]
    peers = [StagePeer(1, MUCH)] * 3

    found = split(layers(1, 1, 1, output=1_000), peers, rates)

    assert found.peers[1] == 1


def test_what_does_not_fit_is_refused_with_numbers() -> None:
    with pytest.raises(UsageError, match="does not fit"):
        split(layers(1, 1, memory=100), [StagePeer(1, 50), StagePeer(1, 50)], links(2))
    with pytest.raises(UsageError, match="2 layers cannot be split over 3"):
        split(layers(1, 1), [StagePeer(1, MUCH)] * 3, links(3))


@pytest.mark.parametrize("seed", range(20))
def test_no_other_split_is_faster(seed: int) -> None:
    rng = Random(seed)
    some = [
        Layer(rng.uniform(1, 9), rng.randint(1, 9), rng.randint(0, 99))
        for _ in range(6)
    ]
    peers = [StagePeer(rng.uniform(1, 4), rng.randint(12, 40)) for _ in range(3)]
    rates = [[rng.uniform(5, 50) for _ in range(3)] for _ in range(3)]
    best = min(
        (
            pace
            for order in itertools.permutations(range(3))
            for cut in itertools.combinations(range(1, 6), 2)
            if (pace := _pace(some, peers, rates, order, (0, *cut))) is not None
        ),
        default=None,
    )

    if best is None:
        with pytest.raises(UsageError):
            split(some, peers, rates)
        return
    found = split(some, peers, rates)

    assert found.slowest_s == pytest.approx(best)
    again = _pace(some, peers, rates, found.peers, found.starts)
    assert again == pytest.approx(best)


def _sizes(starts: tuple[int, ...], count: int) -> list[int]:
    return [end - start for start, end in itertools.pairwise((*starts, count))]


def _pace(
    some: list[Layer],
    peers: list[StagePeer],
    rates: list[list[float]],
    order: tuple[int, ...],
    starts: tuple[int, ...],
) -> float | None:
    """Return the pace of one split, worked out anew; None if it does not fit."""
    worst = 0.0
    for stage, (start, end) in enumerate(itertools.pairwise((*starts, len(some)))):
        own, peer = some[start:end], peers[order[stage]]
        if sum(each.memory_bytes for each in own) > peer.memory_bytes:
            return None
        spent = sum(each.flops for each in own) / peer.flops_per_s
        if stage < len(order) - 1:
            spent += own[-1].output_bytes / rates[order[stage]][order[stage + 1]]
        worst = max(worst, spent)
    return worst
