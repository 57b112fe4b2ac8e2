"""Without a centre the outcome is the same, and nobody's death loses a round."""

from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
from _pytest.mark.structures import ParameterSet
from tests.sim.test_train import all_agree, names, rules, spoiled, started
from tests.sim.train_world import World

from shoal.train.diloco.compression import Array
from shoal.train.diloco.rules import RoundRules


def shared(**changes: object) -> RoundRules:
    return rules(**{"reduce": "shared", "quorum": 4, **changes})


def elastic(**changes: object) -> RoundRules:
    return shared(**{"quorum": 2, **changes})


def weights(world: World) -> Array:
    assert world.aggregator is not None
    assert world.aggregator.state is not None
    return world.aggregator.state.weights


def owners(world: World) -> tuple[str, ...]:
    assert world.aggregator is not None
    return world.aggregator.coordinator.owners


def step_until(world: World, is_true: Callable[[], bool]) -> None:
    """Run in small steps until something is so."""
    until_s = world.now + 100.0
    while not is_true():
        assert world.now < until_s
        world.run(until_s=world.now + 0.01)


@pytest.mark.parametrize("fragments", [1, 4])
def test_every_round_is_closed_with_everybody_if_nothing_fails(fragments: int) -> None:
    world = started(World(1, shared(fragments=fragments)))

    world.run(until_s=400.0)

    assert world.stopped_at is not None
    assert [c.sync for c in world.closings] == list(range(20 * fragments))
    assert all(len(closing.parts) == 4 for closing in world.closings)
    assert all(worker.left for worker in world.workers.values())
    assert all_agree(world)
    assert world.fetched["weights"] == world.fetched["checkpoints"] == 0


def test_the_weights_are_those_that_a_centre_comes_to() -> None:
    with_centre = started(World(1, rules()))
    without = started(World(1, shared()))
    for world in (with_centre, without):
        world.run(until_s=400.0)
        assert world.stopped_at is not None

    np.testing.assert_array_equal(weights(without), weights(with_centre))


def test_all_workers_send_alike() -> None:
    world = started(World(1, shared()))

    world.run(until_s=400.0)

    assert len(world.sent) == 4
    assert max(world.sent.values()) == min(world.sent.values())


def in_soak(*values: object) -> ParameterSet:
    """Return what is asked only where there is time for repetition."""
    return pytest.param(*values, marks=pytest.mark.soak)


@pytest.mark.parametrize(
    ("seed", "fragments"),
    [
        *((seed, 1) for seed in range(4)),
        (0, 3),
        *(in_soak(seed, 3) for seed in range(1, 12)),
        *(in_soak(seed, 1) for seed in range(4, 12)),
    ],
)
def test_no_round_is_lost_though_owners_and_coordinator_die(
    seed: int, fragments: int
) -> None:
    world = started(World(seed, elastic(fragments=fragments), loss=0.1))
    rng = world.rng
    for at_s in (11.0, 23.0, 37.0):
        name = rng.choice(["w0", "w1", "w2", "w3"])
        world.after(at_s + rng.random() * 5, partial(world.kill_worker, name))
        world.after(at_s + 6 + rng.random(), partial(world.start_worker, name))
    for at_s in (17.0, 45.0):
        world.after(at_s + rng.random() * 5, world.kill_aggregator)
        world.after(at_s + 7.0, world.start_aggregator)

    world.run(until_s=2_000.0)

    assert world.stopped_at is not None
    assert world.aggregator is not None
    assert world.aggregator.machine.closed == 20 * fragments
    last = {closing.sync: closing for closing in world.closings}
    assert sorted(last) == list(range(20 * fragments))
    assert all(len(names(closing)) >= 2 for closing in last.values())
    assert world.astray == 0  # Nobody gave up what it had merged before.
    assert all_agree(world)


def test_the_momentum_of_a_lost_owner_is_known_to_the_others() -> None:
    chosen = elastic(workers=4, reduce="shared")
    world, with_centre = started(World(5, chosen)), started(World(5, rules()))
    for each in (world, with_centre):
        each.run(until_s=43.0)
        each.kill_worker("w1")
        each.run(until_s=400.0)
        assert each.stopped_at is not None

    assert [c.sync for c in world.closings] == list(range(20))
    assert "w1" not in names(world.closings[-1])
    assert len(set(owners(world))) == 3
    np.testing.assert_allclose(weights(world), weights(with_centre), rtol=2e-3)


def is_ordered(world: World, sync: int) -> bool:
    """Whether owners were told what counts in a sync."""
    assert world.aggregator is not None
    told = [each for duties in world.aggregator.duties for each in duties.reductions]
    return any(each.sync == sync and each.order for each in told)


@pytest.mark.parametrize("moment", ["measured", "ordered"])
def test_an_owner_that_dies_while_a_sync_is_averaged_is_replaced(moment: str) -> None:
    world = started(World(5, elastic()))
    world.run(until_s=30.0)
    far, sharing = world.far, world.workers["w1"].sharing
    if moment == "measured":
        step_until(world, lambda: bool(sharing.machine.report().reduced))
    else:
        step_until(world, lambda: is_ordered(world, far))
    assert world.far == far

    world.kill_worker("w1")
    step_until(world, lambda: world.far > far)

    assert world.closings[-1].sync == far
    assert "w1" not in names(world.closings[-1])
    assert "w1" not in owners(world)
    world.run(until_s=400.0)
    assert world.stopped_at is not None
    assert world.astray == 0
    assert all_agree(world)


@pytest.mark.parametrize("merged", [0, 1])
def test_an_outcome_that_dies_with_its_owner_is_made_again(merged: int) -> None:
    world = started(World(5, elastic()))
    for name in ("w2", "w3"):
        world.workers[name].link_s = 0.3
    if not merged:
        for worker in world.workers.values():
            worker.link_s = 0.3
    world.run(until_s=30.0)
    far = world.far
    step_until(world, lambda: world.far > far)
    others = [worker for name, worker in world.workers.items() if name != "w1"]
    step_until(
        world,
        lambda: sum(each.member.merged > far for each in others) >= merged,
    )
    assert sum(each.member.merged > far for each in others) < 3

    world.kill_worker("w1")
    world.run(until_s=400.0)

    assert world.stopped_at is not None
    again = [closing for closing in world.closings if closing.sync == far]
    assert len(again) == (1 if merged else 2)
    assert {closing.sync for closing in world.closings} == set(range(20))
    assert world.astray == 0
    assert all_agree(world)


def test_a_newcomer_takes_part_and_owns_as_many_shares_as_the_others() -> None:
    world = started(World(2, elastic()))
    world.run(until_s=12.0)
    world.kill_worker("w3")
    world.run(until_s=30.0)
    without = owners(world)
    world.start_worker("w9")
    world.run(until_s=60.0)

    assert sorted(map(without.count, set(without))) == [4, 4, 4]
    now = owners(world)
    assert sorted(map(now.count, set(now))) == [3, 3, 3, 3]
    assert "w9" in now
    assert names(world.closings[-1]) == {"w0", "w1", "w2", "w9"}
    world.run(until_s=400.0)
    assert world.stopped_at is not None
    assert all_agree(world)


def test_an_owner_that_keeps_all_waiting_is_relieved() -> None:
    world = started(World(6, elastic(timeout_least_s=10.0)))
    world.run(until_s=20.0)
    far = world.far
    world.workers["w2"].sharing.stuck = True

    world.run(until_s=120.0)

    assert world.far > far + 8
    assert "w2" not in owners(world)
    [report] = [each for each in world.reports if each.kind == "relieved"]
    assert report.worker == "w2"


@pytest.mark.parametrize("fragments", [1, 4])
def test_an_owner_whose_outcome_nobody_can_merge_is_relieved(fragments: int) -> None:
    world = started(World(6, shared(fragments=fragments)))
    world.run(until_s=20.0)
    world.workers["w2"].sharing.spoils = True

    world.run(until_s=400.0)

    assert world.stopped_at is not None
    assert world.closings[-1].sync == 20 * fragments - 1
    assert "w2" not in owners(world)
    [report] = [each for each in world.reports if each.kind == "relieved"]
    assert report.worker == "w2"
    assert all_agree(world)


def test_one_worker_alone_relieves_nobody_by_what_it_says() -> None:
    world = started(World(6, shared()))
    world.workers["w2"].sharing.accuses = True

    world.run(until_s=400.0)

    assert world.stopped_at is not None
    assert not [each for each in world.reports if each.kind == "relieved"]


def test_a_coordinator_that_takes_over_goes_on_where_the_last_one_was() -> None:
    undisturbed = started(World(5, shared()))
    undisturbed.run(until_s=400.0)
    world = started(World(5, shared()))
    world.run(until_s=43.0)
    far = world.far

    world.kill_aggregator()
    world.start_aggregator()
    world.run(until_s=50.0)

    assert far >= 5
    assert world.aggregator is not None
    assert world.aggregator.machine.closed >= far
    world.run(until_s=400.0)
    assert all_agree(world)
    np.testing.assert_array_equal(weights(world), weights(undisturbed))


def test_if_all_workers_die_the_run_goes_on_from_the_last_checkpoint() -> None:
    world = started(World(7, shared(checkpoint_every=4)))
    world.run(until_s=43.0)
    assert world.far >= 5
    for number in range(4):
        world.kill_worker(f"w{number}")
    world.run(until_s=60.0)
    before = len(world.closings)

    for number in range(4):
        world.start_worker(f"w{number}")
    world.run(until_s=400.0)

    assert world.stopped_at is not None
    assert world.closings[before].sync % 4 == 0
    assert world.closings[before].sync > 0
    assert all_agree(world)


@pytest.mark.parametrize(
    ("kind", "fragments"),
    [
        ("nan", 3),
        *((kind, 1) for kind in ("huge", "garbage", "samples")),
        in_soak("nan", 1),
        *(in_soak(kind, 3) for kind in ("huge", "garbage", "samples")),
    ],
)
def test_one_of_four_who_errs_always_changes_nothing_for_the_others(
    kind: str, fragments: int
) -> None:
    world = started(World(8, elastic(fragments=fragments, quorum=3), 0.1), workers=3)
    world.start_worker("w3", **spoiled(kind))  # type: ignore[arg-type]
    world.after(33.0, world.kill_aggregator)
    world.after(35.0, world.start_aggregator)
    honest = started(World(8, rules(fragments=fragments, quorum=3, workers=3)), 3)

    for each in (world, honest):
        each.run(until_s=2_000.0)

    assert world.stopped_at is not None
    assert world.failure == ""
    assert {closing.sync for closing in world.closings} == set(range(20 * fragments))
    if kind != "samples":
        refused = {each.worker for each in world.reports if each.kind == "refused"}
        assert refused == {"w3"}
        assert all("w3" not in names(closing) for closing in world.closings)
    np.testing.assert_allclose(weights(world), weights(honest), rtol=0.02)
