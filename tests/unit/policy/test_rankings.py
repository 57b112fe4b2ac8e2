"""Which of the workers that fit is chosen, and why."""

from collections import Counter
from random import Random

import msgspec
import pytest
from tests.unit.policy.pools import capacity, gpus, needs, table_of, worker

from shoal.model.ids import NodeId
from shoal.model.resources import GIB, Capacity, Profile
from shoal.policy.interface import Policy
from shoal.policy.placement import place
from shoal.policy.ranking.fragmentation import RELEARN_AT, Fgd, LearnedFgd, typical_of
from shoal.policy.ranking.rankings import (
    Balanced,
    BestFit,
    DotProduct,
    Nearest,
    Simple,
    Uniform,
)
from shoal.policy.table.task_shapes import TaskShape
from shoal.policy.table.worker_table import WorkerView


def test_simple_takes_the_smallest_gpu_that_will_do() -> None:
    table = table_of(
        worker("a", devices=gpus(1, gib=80)),
        worker("b", devices=gpus(8, gib=24)),
        worker("c", devices=gpus(1, gib=8)),
    )

    placed = place(needs(count=1, gib=16), 1, table, Simple(), Random(1))

    assert placed.nodes == ["b"]


def test_simple_fills_the_fullest_worker() -> None:
    table = table_of(worker("a", devices=gpus(2)), worker("b", devices=gpus(2)))
    table.take(NodeId("b"), needs(count=1))

    placed = place(needs(count=1), 3, table, Simple(), Random(1))

    assert placed.nodes == ["b", "a", "a"]


def test_balanced_spreads_tasks_by_the_size_of_the_workers() -> None:
    table = table_of(
        worker("a", cpus=0, devices=gpus(1)), worker("b", cpus=0, devices=gpus(3))
    )

    placed = place(needs(count=1), 4, table, Balanced(), Random(1))

    assert placed.nodes == ["b", "a", "b", "b"]


def test_balanced_keeps_tasks_without_gpus_off_the_gpus() -> None:
    table = table_of(worker("a", devices=gpus(4)), worker("b"))

    placed = place(needs(cpus=1), 1, table, Balanced(), Random(1))

    assert placed.nodes == ["b"]


def test_nearest_stays_here_while_there_is_room() -> None:
    table = table_of(
        worker("a", path_cost_us=300), worker("b"), worker("c", path_cost_us=40)
    )

    placed = place(needs(cpus=8), 5, table, Nearest(), Random(1))

    assert placed.nodes == ["b", "b", "c", "c", "a"]


def test_best_fit_leaves_least_behind() -> None:
    table = table_of(worker("a", cpus=64), worker("b", cpus=32), worker("c", cpus=48))

    placed = place(needs(cpus=32), 2, table, BestFit(), Random(1))

    assert placed.nodes == ["b", "c"]


def test_best_fit_scores_as_published() -> None:
    table = table_of(worker("a", cpus=16))
    need = table.need(TaskShape(needs()))

    [left] = BestFit().key(need, table.row(0))

    assert 100 - left == int(100 * (1 - 0.5 * 16_000 / 128_000)) == 93


def test_dot_product_avoids_workers_rich_in_what_is_asked() -> None:
    table = table_of(
        worker("a", cpus=64, devices=gpus(8)), worker("b", cpus=128, devices=gpus(2))
    )

    placed = place(needs(cpus=1, count=1), 1, table, DotProduct(), Random(1))

    assert placed.nodes == ["b"]


def test_fgd_keeps_whole_gpus_for_those_who_need_them() -> None:
    table = table_of(worker("a", devices=gpus(1)), worker("b", devices=gpus(1)))
    table.take(NodeId("b"), needs(count=1, milli=500))
    fgd = Fgd(((needs(count=1), 1),))

    placed = place(needs(count=1, milli=300), 1, table, fgd, Random(1))

    assert placed.nodes == ["b"]


@pytest.mark.parametrize(
    "unlike",
    [
        {"draining": True},
        {"drivers": ()},
        {"disk_bytes": 0},
        {"memory_bytes": 0},
        {"cpu_milli": 0},
        {"gpu_milli": (0,)},
        {"gpu_memory": (0,)},
        {"path_cost_us": 9},
        {"capacity": capacity(devices=gpus(1))},
        {"capacity": capacity(devices=gpus(1, "T4"), labels=(("zone", "1"),))},
    ],
)
def test_fgd_takes_no_worker_for_one_that_is_nearly_like_it(
    unlike: dict[str, object],
) -> None:
    size = capacity(devices=gpus(1), labels=(("zone", "1"),))
    good = msgspec.structs.replace(worker("b", devices=gpus(1)), capacity=size)
    bad = msgspec.structs.replace(good, node=NodeId("a"), **unlike)
    profile = Profile(1_000, GIB, GIB, needs(count=1, models=("A100",)).gpu)
    profile = msgspec.structs.replace(profile, labels=size.labels)
    fgd = Fgd(((profile, 1),))

    near_us = 5 if "path_cost_us" in unlike else None
    placed = place(profile, 1, table_of(good, bad), fgd, Random(1), rtt_max_us=near_us)

    assert placed.nodes == ["b"]


def test_fgd_can_turn_to_another_table() -> None:
    fgd = Fgd(((needs(count=1, models=("A100",)), 1),))
    wanted = table_of(worker("a", devices=gpus(2, model="A100")))
    unwanted = table_of(worker("a", devices=gpus(2, model="T4")))

    keys = [
        fgd.key(table.need(TaskShape(needs(count=1))), table.row(0))
        for table in (wanted, unwanted)
    ]

    assert keys[1] < keys[0]


def test_fgd_learns_what_is_typical_from_what_comes() -> None:
    learned = LearnedFgd()

    for _ in range(RELEARN_AT):
        learned.ranking_for(needs(count=1), 1)
    first = learned.ranking_for(needs(count=1), 1)
    for _ in range(4 * RELEARN_AT):
        learned.ranking_for(needs(count=4), 1)
    second = learned.ranking_for(needs(count=4), 1)

    assert [profile for profile, _ in first.typical] == [needs(count=1)]
    assert [profile for profile, _ in second.typical] == [needs(count=4)]


def test_fgd_knows_something_from_the_first_task_on() -> None:
    fgd = LearnedFgd().ranking_for(needs(count=2), 1)

    assert fgd.typical == ((needs(count=2), 1),)


def test_what_is_typical_changes_only_when_it_matters() -> None:
    learned = LearnedFgd()
    profiles = [needs(cpus=1), needs(cpus=2)]
    for turn in range(RELEARN_AT):
        learned.ranking_for(profiles[turn % 2], 1)

    first = learned.ranking_for(profiles[0], 1)
    for turn in range(2 * RELEARN_AT):
        learned.ranking_for(profiles[turn % 2], 1)
    second = learned.ranking_for(profiles[0], 1)
    for _ in range(2 * RELEARN_AT):
        learned.ranking_for(profiles[0], 1)
    third = learned.ranking_for(profiles[0], 1)

    assert second is first
    assert third is not first


def test_fgd_tells_workers_apart_by_memory_when_a_task_asks_for_much() -> None:
    little, much = Capacity(9_000, 10 * GIB), Capacity(9_000, 100 * GIB)
    sizes = {"a": little, "b": little, "c": much}
    table = table_of(*(WorkerView.idle(NodeId(n), size) for n, size in sizes.items()))
    fgd = Fgd(())
    small = place(Profile(1_000, GIB), 1, table, fgd, Random(1))

    large = place(Profile(1_000, 50 * GIB), 1, table, fgd, Random(1))

    assert small.nodes == ["a"]
    assert large.nodes == ["c"]


def test_rare_profiles_are_not_typical() -> None:
    seen = {needs(cpus=1): 96, needs(cpus=2): 3, needs(cpus=3): 1}

    assert typical_of(seen) == ((needs(cpus=1), 96),)


def test_random_gives_every_worker_that_fits_the_same_chance() -> None:
    views = [worker(f"w{n}", cpus=1 + n % 2) for n in range(8)]
    rng = Random(1)

    chosen = Counter(
        node
        for _ in range(800)
        for node in place(needs(cpus=2), 1, table_of(*views), Uniform(), rng).nodes
    )

    assert sorted(chosen) == ["w1", "w3", "w5", "w7"]
    assert all(150 < count < 250 for count in chosen.values())


@pytest.mark.parametrize(
    "policy",
    [Simple(), Balanced(), Nearest(), BestFit(), DotProduct(), Fgd(()), Uniform()],
)
def test_ties_go_to_the_smallest_node_id(policy: Policy) -> None:
    table = table_of(worker("c"), worker("a"), worker("b"))

    placed = place(needs(), 1, table, policy, Random(4))

    assert placed.nodes == ["a"] or policy.name == "random"
