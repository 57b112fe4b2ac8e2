"""DiLoCo's machines survive faults, and lose no round."""

from functools import partial

import numpy as np
import pytest
from tests.sim.train_world import World

from shoal.train.diloco.events import Average
from shoal.train.diloco.rules import RoundRules


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


def names(closing: Average) -> set[str]:
    return {part.worker for part in closing.parts}


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
@pytest.mark.parametrize(
    "seed",
    [*range(4), *(pytest.param(n, marks=pytest.mark.soak) for n in range(4, 12))],
)
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
    first = {closing.sync: closing for closing in reversed(world.closings)}
    assert all(len(names(closing)) >= 2 for closing in first.values())
    assert world.astray == 0  # Nobody gave up what it and another had merged.
    assert all_agree(world)


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

    assert names(without) == {"w0", "w1", "w2"}
    assert names(world.closings[-1]) == {"w0", "w1", "w2", "w9"}


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
    assert "w2" not in names(late)
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


@pytest.mark.parametrize("fragments", [1, 3])
def test_a_fail_over_far_from_a_checkpoint_replays_to_the_same_bits(
    fragments: int,
) -> None:
    chosen = rules(fragments=fragments, checkpoint_every=7)
    undisturbed = started(World(5, chosen))
    undisturbed.run(until_s=400.0)

    world = started(World(5, chosen))
    world.run(until_s=70.0)
    far = world.far
    held = [w.member.status().holds for w in world.workers.values()]
    assert max(each.syncs for each in held if each) == 7 * fragments
    assert far > 10 * fragments
    world.kill_aggregator()
    world.start_aggregator()
    world.run(until_s=400.0)

    assert world.stopped_at is not None
    assert world.astray == 0
    again = [closing.sync for closing in world.closings if closing.sync < far]
    assert sorted(again) == [
        *range(7 * fragments),
        *sorted([*range(7 * fragments, far)] * 2),
    ]
    assert world.aggregator is not None
    assert world.aggregator.state is not None
    assert undisturbed.aggregator is not None
    assert undisturbed.aggregator.state is not None
    if fragments == 1:  # Else what is in flight when it fails is merged later.
        np.testing.assert_array_equal(
            world.aggregator.state.weights, undisturbed.aggregator.state.weights
        )


def test_the_state_travels_only_when_there_is_a_checkpoint() -> None:
    seldom = started(World(5, rules(checkpoint_every=20)))
    often = started(World(5, rules(checkpoint_every=5)))
    for world in (seldom, often):
        world.run(until_s=400.0)
        assert world.stopped_at is not None

    assert seldom.fetched["checkpoints"] == 0
    assert often.fetched["checkpoints"] == 2 * 3  # Two keepers, after 5, 10 and 15.
    assert seldom.fetched["weights"] == often.fetched["weights"] == 0


def spoiled(kind: str) -> dict[str, object]:
    """Return how a worker errs."""
    spoils = {
        "nan": lambda delta: delta * np.float32(np.nan),
        "huge": lambda delta: delta * np.float32(1e4),
        "garbage": lambda _: None,
    }
    return {"samples": 1 << 50} if kind == "samples" else {"spoil": spoils[kind]}


@pytest.mark.parametrize("kind", ["nan", "huge", "garbage", "samples"])
@pytest.mark.parametrize("fragments", [1, 3])
def test_one_of_four_who_errs_always_changes_nothing_for_the_others(
    kind: str, fragments: int
) -> None:
    chosen = rules(fragments=fragments, quorum=3)
    world = started(World(8, chosen, loss=0.1), workers=3)
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
        refused = {
            report.worker for report in world.reports if report.kind == "refused"
        }
        assert refused == {"w3"}
        assert all("w3" not in names(closing) for closing in world.closings)
    assert world.aggregator is not None
    assert world.aggregator.state is not None
    assert honest.aggregator is not None
    assert honest.aggregator.state is not None
    np.testing.assert_allclose(
        world.aggregator.state.weights, honest.aggregator.state.weights, rtol=0.02
    )


def test_a_run_of_which_nothing_can_be_used_ends_with_a_reason() -> None:
    world = World(9, rules(workers=2))
    world.start_aggregator()
    for name in ("w0", "w1"):
        world.start_worker(name, **spoiled("nan"))  # type: ignore[arg-type]

    world.run(until_s=100.0)

    assert "w0: its delta is not finite" in world.failure
    assert all(worker.left for worker in world.workers.values())


def test_a_worker_behind_a_slow_link_is_waited_for_and_does_fewer_steps() -> None:
    world = World(4, rules(rounds=10, workers=3))
    world.start_aggregator()
    for number, link_s in enumerate((0.1, 0.1, 9.0)):
        world.start_worker(f"w{number}", link_s=link_s)

    world.run(until_s=600.0)

    assert world.stopped_at is not None
    assert all(names(each) == {"w0", "w1", "w2"} for each in world.closings)
    last = {p.worker: p.contribution.steps for p in world.closings[-1].parts}
    assert last["w0"] == 50
    assert last["w2"] == 12  # A quarter: the link takes most of its time.


def test_who_is_left_out_is_said_and_waited_for_from_then_on() -> None:
    world = started(World(4, rules(rounds=30)))
    world.run(until_s=20.0)
    world.workers["w2"].link_s = 25.0

    world.run(until_s=3_000.0)

    assert world.stopped_at is not None
    left_out = [report for report in world.reports if report.kind == "left-out"]
    assert left_out
    assert {report.worker for report in left_out} == {"w2"}
    assert "nothing came from it in" in left_out[0].reason
    assert len(left_out) < 5
    assert "w2" in names(world.closings[-1])


def test_a_newcomer_goes_on_from_the_steps_of_the_others() -> None:
    world = started(World(2, rules()))
    world.run(until_s=32.0)
    steps = world.workers["w0"].optimizer
    assert steps >= 250

    world.start_worker("w9")
    world.run(until_s=60.0)

    assert world.workers["w9"].optimizer > steps
    assert world.fetched["inner"] == 1


def test_at_the_end_what_a_loop_keeps_is_saved() -> None:
    world = started(World(2, rules(rounds=4)))

    world.run(until_s=100.0)

    assert world.stopped_at is not None
    assert world.aggregator is not None
    assert world.aggregator.inner == 4 * 50


def test_with_fragments_workers_compute_while_files_travel() -> None:
    busy: dict[int, float] = {}
    for fragments in (1, 4):
        world = World(4, rules(rounds=20, inner_steps=48, fragments=fragments))
        world.start_aggregator()
        for number in range(4):
            world.start_worker(f"w{number}", link_s=0.3)
        world.run(until_s=600.0)
        assert world.stopped_at is not None
        took_s = world.stopped_at - 1.0
        busy[fragments] = min(each.busy_s / took_s for each in world.workers.values())

    assert busy[4] > 0.9 > busy[1]
