"""Packing, clustering, foraging, and choosing among a few."""

from random import Random

import pytest
from tests.unit.policy.pools import gpus, needs, table_of, worker

from shoal.model.ids import NodeId
from shoal.policy.placement import place
from shoal.policy.ranking.forage import Forage, LearnedForage
from shoal.policy.ranking.fragmentation import Fgd
from shoal.policy.ranking.packing import GpuClustering, GpuPacking
from shoal.policy.ranking.rankings import Balanced
from shoal.policy.ranking.sampling import Sampled


def test_packing_fills_a_gpu_in_use_then_a_worker_in_use_then_an_idle_one() -> None:
    table = table_of(
        worker("a", devices=gpus(2)), worker("b", devices=gpus(2)), worker("c")
    )
    table.take(NodeId("b"), needs(count=1, milli=500))

    half = needs(count=1, milli=500)
    placed = place(half, 5, table, GpuPacking(), Random(1))

    assert placed.nodes == ["b", "b", "b", "a", "a"]


def test_clustering_keeps_tasks_of_one_size_together() -> None:
    table = table_of(*(worker(name, devices=gpus(4)) for name in "abc"))
    policy, rng = GpuClustering(), Random(1)

    one = place(needs(count=1), 1, table, policy, rng)
    two = place(needs(count=2), 1, table, policy, rng)
    share = place(needs(count=1, milli=500), 1, table, policy, rng)
    again = place(needs(count=2), 1, table, policy, rng)

    assert [p.nodes for p in (one, two, share, again)] == [["a"], ["b"], ["c"], ["b"]]


def test_clustering_shares_a_worker_only_when_no_idle_one_is_left() -> None:
    table = table_of(*(worker(name, devices=gpus(4)) for name in "ab"))
    policy, rng = GpuClustering(), Random(1)
    place(needs(count=1), 1, table, policy, rng)
    place(needs(count=2), 1, table, policy, rng)

    placed = place(needs(count=3), 1, table, policy, rng)

    assert placed.nodes == ["a"]  # Three are free there, and two on the other.


def test_foraging_keeps_cpu_for_the_gpus_that_it_could_feed() -> None:
    """Eight free GPUs are of no use if the CPU is gone; FGD sees no difference."""
    typical = ((needs(cpus=4, count=1), 1),)
    many = worker("a", cpus=32, devices=gpus(8))
    few = worker("b", cpus=32, devices=gpus(2))
    task = needs(cpus=4)

    by_fgd = place(task, 1, table_of(many, few), Fgd(typical), Random(1))
    foraging = place(task, 1, table_of(many, few), Forage(typical), Random(1))

    assert by_fgd.nodes == ["a"]
    assert foraging.nodes == ["b"]


def test_foraging_learns_what_is_typical_from_what_it_places() -> None:
    policy = LearnedForage()

    before = policy.ranking_for(needs(count=1), 1)
    after = policy.ranking_for(needs(count=2), 100)

    assert before is not after
    assert {profile for profile, _ in after.typical} == {needs(count=2)}


def test_the_best_of_as_many_as_there_are_is_the_best_of_all() -> None:
    views = [worker(f"w{n}", cpus=n, devices=gpus(1)) for n in range(1, 9)]
    rng = Random(3)

    everyone = place(needs(count=1), 5, table_of(*views), Balanced(), rng)
    sampled = Sampled(Balanced(), 8)
    drawn = place(needs(count=1), 5, table_of(*views), sampled, rng)

    assert drawn.nodes == everyone.nodes


def test_one_candidate_may_be_anybody_who_fits() -> None:
    views = [worker(f"w{n}", devices=gpus(n % 2)) for n in range(8)]
    policy, rng = Sampled(Balanced(), 1), Random(3)

    chosen = {
        place(needs(count=1), 1, table_of(*views), policy, rng).nodes[0]
        for _ in range(100)
    }

    assert chosen == {"w1", "w3", "w5", "w7"}


@pytest.mark.parametrize("candidates", [1, 2, 64])
def test_nobody_is_drawn_who_does_not_fit_or_is_excluded(candidates: int) -> None:
    table = table_of(worker("a", devices=gpus(1)), worker("b"))
    policy = Sampled(Balanced(), candidates)

    placed = place(needs(count=1), 1, table, policy, Random(1), exclude=[NodeId("a")])

    assert placed.nodes == []
