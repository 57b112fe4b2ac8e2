"""Three thousand decisions in a row are those of a full scan."""

from random import Random

import pytest

from shoal.model.ids import NodeId
from shoal.model.resources import GIB, Capacity, Device, GpuNeed, Profile
from shoal.policy.fragmentation import Fgd
from shoal.policy.placement import place
from shoal.policy.rankings import Balanced, BestFit, DotProduct, Nearest, Simple
from shoal.policy.shapes import Need, Shape
from shoal.policy.shortlist import Ranking
from shoal.policy.workers import Taken, WorkerTable, WorkerView

DECISIONS = 3_000
WORKERS = 100
SHAPES = (
    Profile(500, GIB),
    Profile(2_000, 2 * GIB),
    Profile(500, gpu=GpuNeed(milli=250)),
    Profile(1_000, gpu=GpuNeed()),
    Profile(1_000, gpu=GpuNeed(1, 4)),
    Profile(2_000, gpu=GpuNeed(2, 2, memory_min_bytes=24 * GIB)),
    Profile(500, gpu=GpuNeed(milli=500, models=("A100",))),
)
RARE = Profile(1_500, gpu=GpuNeed(4, 4))
TYPICAL = tuple((shape, 1 + number) for number, shape in enumerate(SHAPES))


def drawn(number: int, rng: Random) -> WorkerView:
    """Draw a worker; one in four has devices of several kinds."""
    kinds = rng.choices([("A100", 80), ("T4", 16), ("RTX3090", 24)], k=4)
    mixed = rng.random() < 0.25
    devices = [
        Device(str(n), "nvidia", *_sized(kinds[n % 4 if mixed else 0]))
        for n in range(rng.choice([0, 1, 4, 8]))
    ]
    size = Capacity(rng.choice([2, 8, 16]) * 1000, 32 * GIB, 0, tuple(devices))
    cost = rng.choice([0, 50, 300, 9_000])
    return WorkerView.idle(NodeId(f"n{number}"), size, path_cost_us=cost)


def _sized(kind: tuple[str, int]) -> tuple[str, int]:
    return kind[0], kind[1] * GIB


def scan(need: Need, table: WorkerTable, ranking: Ranking) -> list[NodeId]:
    rows = [row for row in table.grid.rows if row is not None and row.fits(need)]
    ranked = [(ranking.key(need, row), row.node) for row in rows]
    return [min(ranked)[1]] if ranked else []


def disturb(table: WorkerTable, held: list[Taken], rng: Random) -> None:
    """Let a task end, and now and then a worker come, go, report or move."""
    if held and rng.random() < 0.5 + len(held) / (20 * WORKERS):
        table.give(held.pop(rng.randrange(len(held))))
    number, chance = rng.randrange(WORKERS), rng.random()
    if chance < 0.01:
        table.put(drawn(number, rng))
    elif chance < 0.02:
        table.remove(NodeId(f"n{number}"))
    elif chance < 0.03:
        table.set_load(NodeId(f"n{number}"), cpu_milli=4_000, memory_bytes=8 * GIB)
    elif chance < 0.04:
        table.set_path_cost(NodeId(f"n{number}"), rng.randrange(500))


@pytest.mark.parametrize(
    "ranking",
    [Simple(), Balanced(), Nearest(), BestFit(), DotProduct(), Fgd(TYPICAL)],
    ids=lambda ranking: ranking.name,
)
def test_three_thousand_decisions_are_those_of_a_full_scan(ranking: Ranking) -> None:
    rng = Random(11)
    table, held = WorkerTable(), list[Taken]()
    for number in range(WORKERS):
        table.put(drawn(number, rng))

    placed_at_all = 0
    for turn in range(DECISIONS):
        disturb(table, held, rng)
        shape = RARE if turn % 100 == 99 else rng.choice(SHAPES)
        expected = scan(table.need(Shape(shape)), table, ranking)
        placed = place(shape, 1, table, ranking, rng)
        assert placed.nodes == expected, turn
        held += placed.takens
        placed_at_all += len(placed.takens)

    assert DECISIONS // 3 < placed_at_all < DECISIONS
