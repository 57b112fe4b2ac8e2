"""DiLoCo's machines survive faults, and lose no round."""

from functools import partial

import numpy as np
import pytest
from tests.sim.train_world import World

from shoal.train.diloco.rounds import RoundRules


def rules(**changes: object) -> RoundRules:
    settings: dict[str, object] = {
        "rounds": 20,
        "inner_steps": 50,
        "workers": 4,
        "quorum": 2,
        "gather_s": 5.0,
        "silence_s": 6.0,
    }
    settings.update(changes)
    return RoundRules(**settings)  # type: ignore[arg-type]


def started(world: World, workers: int = 4) -> World:
    world.start_aggregator()
    for number in range(workers):
        world.start_worker(f"w{number}")
    return world


def all_agree(world: World) -> bool:
    assert world.aggregator is not None
    assert world.aggregator.state is not None
    state = world.aggregator.state
    # Who need not measure the last weights leaves without them.
    up_to_date = [w for w in world.workers.values() if w.member.merged == state.syncs]
    assert up_to_date
    return all(np.array_equal(each.shared, state.weights) for each in up_to_date)


@pytest.mark.parametrize("fragments", [1, 4])
def test_every_round_is_closed_with_everybody_if_nothing_fails(fragments: int) -> None:
    world = started(World(1, rules(fragments=fragments)))

    world.run(until_s=400.0)

    assert world.stopped_at is not None
    assert [c.sync for c in world.closings] == list(range(20 * fragments))
    assert all(len(closing.parts) == 4 for closing in world.closings)
    assert all(worker.left for worker in world.workers.values())


@pytest.mark.parametrize("fragments", [1, 3])
@pytest.mark.parametrize("seed", range(12))
def test_no_round_is_lost_though_workers_and_aggregator_die(
    seed: int, fragments: int
) -> None:
    world = started(World(seed, rules(fragments=fragments), loss=0.1))
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
    for closing in world.closings:
        # Closed again after a fail-over: by everybody who is still there.
        again = {name for name, _ in last[closing.sync].parts}
        gone = {name for name, _ in closing.parts} - again
        assert len(again) >= 2
        assert len(gone) <= 2


def test_a_fail_over_goes_on_where_the_last_aggregator_was() -> None:
    world = started(World(5, rules()))
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
    undisturbed = started(World(5, rules()))
    undisturbed.run(until_s=400.0)
    assert undisturbed.aggregator is not None
    assert undisturbed.aggregator.state is not None
    assert world.aggregator.state is not None
    np.testing.assert_array_equal(
        world.aggregator.state.weights, undisturbed.aggregator.state.weights
    )


def test_a_dead_worker_is_dropped_and_a_newcomer_joins_the_next_round() -> None:
    world = started(World(2, rules()))
    world.run(until_s=12.0)

    world.kill_worker("w3")
    world.run(until_s=30.0)
    without = world.closings[-1]
    world.start_worker("w9")
    world.run(until_s=45.0)

    assert [name for name, _ in without.parts] == ["w0", "w1", "w2"]
    assert [name for name, _ in world.closings[-1].parts] == ["w0", "w1", "w2", "w9"]


def test_a_round_waits_while_there_is_no_quorum() -> None:
    world = started(World(3, rules(quorum=3)), workers=3)
    world.run(until_s=14.0)
    world.kill_worker("w0")
    world.run(until_s=100.0)
    stalled = len(world.closings)
    world.run(until_s=200.0)
    assert len(world.closings) == stalled

    world.start_worker("w7")
    world.run(until_s=230.0)

    assert len(world.closings) > stalled


@pytest.mark.parametrize("fragments", [1, 2])
def test_machines_at_three_speeds_are_all_busy(fragments: int) -> None:
    world = World(4, rules(rounds=40, fragments=fragments, workers=3))
    world.start_aggregator()
    for number, speed in enumerate((30.0, 20.0, 10.0)):
        world.start_worker(f"w{number}", speed=speed)

    world.run(until_s=600.0)

    assert world.stopped_at is not None
    took_s = world.stopped_at - 1.0
    for worker in world.workers.values():
        assert worker.busy_s / took_s > 0.8, worker.name


def test_two_machines_at_threefold_speed_are_both_busy_most_of_the_time() -> None:
    world = World(4, rules(rounds=40, inner_steps=150, workers=2))
    world.start_aggregator()
    world.start_worker("w0", speed=30.0)
    world.start_worker("w1", speed=10.0)

    world.run(until_s=2_000.0)

    assert world.stopped_at is not None
    for worker in world.workers.values():
        assert worker.busy_s / world.stopped_at >= 0.85, worker.name


def test_without_balance_the_slow_one_keeps_all_waiting() -> None:
    world = World(4, rules(rounds=40, balance=False, workers=2))
    world.start_aggregator()
    world.start_worker("w0", speed=30.0)
    world.start_worker("w1", speed=10.0)

    world.run(until_s=600.0)

    assert world.stopped_at is not None
    assert world.workers["w0"].busy_s / world.stopped_at < 0.5


def test_a_worker_that_hangs_does_not_keep_the_others_waiting_for_ever() -> None:
    world = started(World(6, rules(timeout_least_s=10.0)))
    world.run(until_s=20.0)
    world.workers["w2"].speed = 0.001

    world.run(until_s=120.0)

    late = world.closings[-1]
    assert "w2" not in [name for name, _ in late.parts]
    assert world.aggregator is not None
    assert world.aggregator.machine.closed > 8


def test_weights_survive_when_all_keepers_died_with_the_aggregator() -> None:
    world = started(World(7, rules(keepers=1)))
    world.run(until_s=33.0)
    keepers = [n for n, w in world.workers.items() if w.member.status().holds]
    assert len(keepers) == 1

    world.kill_aggregator()
    world.kill_worker(keepers[0])
    far = world.far
    world.start_aggregator()
    world.run(until_s=60.0)

    assert world.aggregator is not None
    assert world.aggregator.machine.closed >= far
    world.run(until_s=400.0)
    assert all_agree(world)
