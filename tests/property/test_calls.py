from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.property.call_world import World
from tests.unit.core.builders import Batch

from shoal.core.calls.reliable_stream import ReliableStream

FRACTIONS = st.sampled_from([0.0, 0.02, 0.2])


@given(
    seed=st.integers(0, 10_000),
    loss=FRACTIONS,
    deaths=st.sampled_from([0.0, 0.01, 0.05]),
    lanes=st.integers(1, 4),
    retries=st.lists(st.integers(0, 3), min_size=1, max_size=60),
    poison=st.sets(st.integers(1, 60), max_size=2),
    slow=st.sets(st.integers(1, 60), max_size=3),
)
@settings(max_examples=60)
def test_every_call_is_answered_once_whatever_gets_lost(
    seed: int,
    loss: float,
    deaths: float,
    lanes: int,
    retries: list[int],
    poison: set[int],
    slow: set[int],
) -> None:
    world = World(seed, loss=loss, deaths=deaths, lanes_max=lanes)
    world.poison, world.slow = poison, slow
    for id_, most in enumerate(retries, start=1):
        world.call(id_, retries=most, function=id_ % 2)

    world.run(until_s=10.0)
    world.heal()
    world.run(until_s=100.0)

    ids = range(1, len(retries) + 1)
    assert world.answers == dict.fromkeys(ids, 1)
    assert not world.board.unanswered
    for id_, most in enumerate(retries, start=1):
        assert world.begun[id_] <= most + 1, "it runs again only if it may"
        if id_ in poison:
            assert world.kinds[id_] == "lost"


@given(seed=st.integers(0, 10_000), loss=FRACTIONS, lanes=st.integers(1, 4))
@settings(max_examples=30)
def test_a_call_runs_once_if_no_interpreter_is_lost(
    seed: int, loss: float, lanes: int
) -> None:
    world = World(seed, loss=loss, deaths=0.0, lanes_max=lanes)
    world.slow = {3, 20}
    for id_ in range(1, 61):
        world.call(id_, retries=3, function=1)

    world.run(until_s=100.0)

    assert world.runs == dict.fromkeys(range(1, 61), 1)
    assert set(world.kinds.values()) == {"value"}


@given(seed=st.integers(0, 10_000), poison=st.integers(1, 40))
@settings(max_examples=30)
def test_a_call_that_kills_its_interpreter_takes_nobody_else_along(
    seed: int, poison: int
) -> None:
    world = World(seed, loss=0.0, deaths=0.0, lanes_max=2)
    world.poison = {poison}
    for id_ in range(1, 41):
        world.call(id_, retries=1, function=1)

    world.run(until_s=100.0)

    others = [kind for id_, kind in world.kinds.items() if id_ != poison]
    assert world.kinds[poison] == "lost"
    assert others == ["value"] * 39


@given(
    seed=st.integers(0, 10_000),
    loss=st.sampled_from([0.0, 0.1, 0.4]),
    sizes=st.lists(st.integers(0, 300_000), max_size=40),
    closed=st.sets(st.integers(0, 40)),
)
@settings(max_examples=60)
def test_a_courier_brings_every_item_once_and_in_order(
    seed: int, loss: float, sizes: list[int], closed: set[int]
) -> None:
    rng = Random(seed)
    ours, theirs = ReliableStream(Batch), ReliableStream(Batch)
    items = [bytes([n % 251]) * size for n, size in enumerate(sizes)]
    came: list[bytes] = []
    now = 0.0
    for turn in range(3_000):
        if len(came) == len(items) and not ours.waiting:
            break
        now += 0.05
        if turn < len(items):
            ours.put([items[turn]])
        theirs.open = turn not in closed
        batches = [batch for batch in ours.due(now) if rng.random() >= loss]
        if loss and rng.random() < loss:
            batches += batches[::-1]
        for batch in batches:
            came += theirs.receive(batch, now)
        for answer in theirs.due(now):
            if rng.random() >= loss:
                assert ours.receive(answer, now) == []

    assert came == items
    assert ours.waiting == ours.waiting_bytes == 0
