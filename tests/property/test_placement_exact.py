"""Three thousand decisions in a row are those of a full scan."""

from copy import deepcopy
from random import Random

import pytest

from shoal.model.ids import NodeId
from shoal.model.resources import GIB, Capacity, Device, GpuNeed, Profile
from shoal.policy.placement import place
from shoal.policy.ranking.forage import Forage
from shoal.policy.ranking.fragmentation import Fgd, LearnedFgd
from shoal.policy.ranking.gradient import Typical
from shoal.policy.ranking.packing import GpuPacking
from shoal.policy.ranking.ranking import Ranking
from shoal.policy.ranking.rankings import Balanced, BestFit, DotProduct, Nearest, Simple
from shoal.policy.table.rows import NO_KIND
from shoal.policy.table.task_shapes import Need, TaskShape
from shoal.policy.table.worker_table import TakenRoom, WorkerTable, WorkerView

DECISIONS = 3_000
WORKERS = 100
SHAPES = (
    Profile(500, GIB),
    Profile(2_000, 2 * GIB),
    Profile(500, gpu=GpuNeed(milli=250)),
    Profile(1_000, 3 * GIB, gpu=GpuNeed()),
    Profile(1_000, gpu=GpuNeed(1, 4)),
    Profile(2_000, gpu=GpuNeed(2, 2, memory_min_bytes=24 * GIB)),
    Profile(500, gpu=GpuNeed(milli=500, models=("A100",))),
)
RARE = Profile(1_500, 9 * GIB, GIB, gpu=GpuNeed(4, 4))
TYPICAL = tuple((shape, 1 + number) for number, shape in enumerate(SHAPES))


def drawn(number: int, rng: Random) -> WorkerView:
    """Draw a worker; one in four has devices of several kinds."""
    kinds = rng.choices([("A100", 80), ("T4", 16), ("RTX3090", 24)], k=4)
    mixed = rng.random() < 0.25
    devices = [
        Device(str(n), "nvidia", *_sized(kinds[n % 4 if mixed else 0]))
        for n in range(rng.choice([0, 1, 4, 8]))
    ]
    memory_bytes = (8 + number % 25) * GIB - number  # Hardly two have the same.
    disk_bytes = GIB - number % 2
    size = Capacity(
        rng.choice([2, 8, 16]) * 1000, memory_bytes, disk_bytes, tuple(devices)
    )
    cost = rng.choice([0, 50, 300, 9_000])
    return WorkerView.idle(NodeId(f"n{number}"), size, path_cost_us=cost)


def _sized(kind: tuple[str, int]) -> tuple[str, int]:
    return kind[0], kind[1] * GIB


def scan(need: Need, table: WorkerTable, ranking: Ranking) -> list[NodeId]:
    rows = [row for row in table.grid.rows if row is not None and row.fits(need)]
    ranked = [(ranking.key(need, row), row.node) for row in rows]
    return [min(ranked)[1]] if ranked else []


def disturb(table: WorkerTable, held: list[TakenRoom], rng: Random) -> None:
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
    [
        Simple(),
        Balanced(),
        Nearest(),
        BestFit(),
        DotProduct(),
        Fgd(TYPICAL),
        Forage(TYPICAL),
        GpuPacking(),
    ],
    ids=lambda ranking: ranking.name,
)
def test_three_thousand_decisions_are_those_of_a_full_scan(ranking: Ranking) -> None:
    rng = Random(11)
    table, held = WorkerTable(), list[TakenRoom]()
    for number in range(WORKERS):
        table.put(drawn(number, rng))

    placed_at_all = 0
    for turn in range(DECISIONS):
        disturb(table, held, rng)
        shape = RARE if turn % 100 == 99 else rng.choice(SHAPES)
        expected = scan(table.need(TaskShape(shape)), table, ranking)
        placed = place(shape, 1, table, ranking, rng)
        assert placed.nodes == expected, turn
        held += placed.takens
        placed_at_all += len(placed.takens)

    assert DECISIONS // 3 < placed_at_all < DECISIONS


def test_what_fgd_learned_and_remembers_never_changes_a_decision() -> None:
    rng = Random(12)
    table, held = WorkerTable(), list[TakenRoom]()
    for number in range(WORKERS):
        table.put(drawn(number, rng))
    learned = LearnedFgd()
    learnings: list[Typical] = []

    for turn in range(600):
        for _ in range(5):
            disturb(table, held, rng)
        shape = rng.choice(
            SHAPES[: 1 + turn // 80]
        )  # So there is more and more to learn.
        typical = deepcopy(learned).ranking_for(shape, 1).typical
        expected = scan_anew(shape, table, typical)
        placed = place(shape, 1, table, learned, rng)
        assert placed.nodes == expected, turn
        held += placed.takens
        if typical not in learnings:
            learnings.append(typical)

    assert len(learnings) > 3


def scan_anew(profile: Profile, table: WorkerTable, typical: Typical) -> list[NodeId]:
    """Choose by a ranking and a table that remember nothing."""
    fresh = WorkerTable()
    for node in table.nodes():
        view = table.view(node)
        assert view is not None
        fresh.put(view)
    return scan(fresh.need(TaskShape(profile)), fresh, Fgd(typical))


def test_whoever_looks_at_the_columns_sees_the_rows_as_they_are() -> None:
    rng = Random(13)
    table, held = WorkerTable(), list[TakenRoom]()
    for number in range(WORKERS):
        table.put(drawn(number, rng))

    for turn in range(300):
        disturb(table, held, rng)
        held += place(rng.choice(SHAPES), 1, table, BestFit(), rng).takens
        columns = table.grid.columns if turn % 7 == 0 else None
        for index, row in enumerate(table.grid.rows if columns else ()):
            assert columns is not None
            assert columns.live[index] == (row is not None)
            if row is not None:
                devices = len(row.kinds)
                assert columns.cpu_milli[index] == row.cpu_milli
                assert columns.memory_bytes[index] == row.memory_bytes
                assert columns.gpu_milli[index] == row.gpu_milli
                assert columns.gpus_whole[index] == row.gpus_whole
                assert columns.active[index] == row.active
                assert columns.path_cost_us[index] == row.path_cost_us
                assert columns.kinds[index, :devices].tolist() == row.kinds
                assert columns.gpu_free[index, :devices].tolist() == row.gpu_free
                memory = columns.gpu_memory_free[index, :devices].tolist()
                assert memory == row.gpu_memory_free
                assert (columns.kinds[index, devices:] == NO_KIND).all()
