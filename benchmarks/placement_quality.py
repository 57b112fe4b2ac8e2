"""Compare all placement policies on a grid of scenarios and on the examples.

Every policy runs on every scenario (`examples/sim/grid.yaml`, and the examples that
place jobs), in virtual time. Then plans for gangs are compared with those of an
exhaustive search, and gangs of 8 are placed among 10,000 workers as fast as possible.
Figures go to `docs/guides/placement.md`, pictures to `docs/img/placement`.

Run: python benchmarks/placement_quality.py RESULTS.jsonl >> benchmarks/results.jsonl
It takes half an hour on two cores; run it again to go on after a stop. Two more words
choose policies and the number of seeds: `compact,fgd,balanced 1`.
"""

from __future__ import annotations

import json
import sys
import time
from itertools import product
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, cast

import msgspec

from shoal.lab.datacentre.scenario import read_scenario
from shoal.lab.datacentre.sweep import (
    VARY,
    append_result,
    cells_of,
    read_results,
    run_cells,
)
from shoal.lab.report.sweep_figures import figures_of
from shoal.lab.report.sweep_page import (
    markdown_lines,
    markdown_summary,
    sweep_pictures,
)
from shoal.model.ids import NodeId
from shoal.model.resources import Capacity, Device, GpuNeed, Profile
from shoal.policy.interface import GangNeed
from shoal.policy.placement import place
from shoal.policy.ranking.compact import CompactGangs
from shoal.policy.table.task_shapes import TaskShape
from shoal.policy.table.worker_table import WorkerTable, WorkerView

if TYPE_CHECKING:
    from shoal.lab.datacentre.sweep import Cell, CellResult
    from shoal.lab.report.sweep_figures import SweepFigures

ROOT = Path(__file__).parents[1]
EXAMPLES = ROOT / "examples" / "sim"
GUIDE = ROOT / "docs" / "guides" / "placement.md"
BEGIN, END = "<!-- figures -->", "<!-- end of figures -->"
PICTURES = ROOT / "docs" / "img" / "placement"

EXAMPLE_NAMES = ("first", "leaf-failure", "oversubscribed", "wan")
SEEDS = 2

SMALL_CASES = 200
SMALL_WORKERS = 6
SPEED_WORKERS = 10_000
SPEED_GANGS = 2_000
ONE_CPU = TaskShape(Profile(cpu_milli=1_000))


def cells_in(name: str, policies: list[str], seeds: int) -> list[Cell]:
    """Return the cells of one example."""
    document = read_scenario((EXAMPLES / f"{name}.yaml").read_bytes())
    assert isinstance(document, dict)
    changed = {**cast("dict[str, Any]", document), "policies": policies}
    # Seeds are the first axis: results of the first one are there first.
    axes = {"seed": list(range(1, seeds + 1))}
    changed[VARY] = {**axes, **changed.get(VARY, {}), **axes}
    return cells_of(changed, EXAMPLES)


def run(cells: list[Cell], path: Path) -> list[CellResult]:
    """Run what the file of results lacks; return the results of these cells."""
    known = read_results(path)
    left = [cell for cell in cells if cell.id not in known]
    for number, result in enumerate(run_cells(left), start=1):
        known[result.cell] = result
        append_result(path, result)
        if number % 50 == 0:
            sys.stderr.write(f"{number} of {len(left)} cells\n")
    return [known[cell.id] for cell in cells if cell.id in known]


# Gangs against an oracle.


def small_table(rng: Random) -> tuple[WorkerTable, dict[str, int], dict[str, str]]:
    """Draw a few workers in a few domains: the table, free slots, and paths."""
    made = WorkerTable()
    free: dict[str, int] = {}
    paths: dict[str, str] = {}
    for number in range(SMALL_WORKERS):
        name = f"w{number}"
        where = [str(rng.randrange(2)) for _ in range(3)]
        free[name], paths[name] = rng.randint(0, 4), "/".join(where)
        labels = tuple(zip(("site", "pod", "leaf"), where, strict=True))
        capacity = Capacity(cpu_milli=1_000 * free[name], labels=labels)
        made.put(WorkerView.idle(NodeId(name), capacity, path_cost_us=9))
    return made, free, paths


def parts(paths: dict[str, str], names: list[str]) -> tuple[int, ...]:
    """Return how many sites, pods, leaves and workers some workers are in."""
    steps = [(*paths[name].split("/"), name) for name in names]
    return tuple(len({path[: depth + 1] for path in steps}) for depth in range(4))


def against_oracle(seed: int) -> tuple[int, int, bool] | None:
    """Return the switches and workers of our plan and of the best, and if equal."""
    rng = Random(seed)
    made, free, paths = small_table(rng)
    room = sum(free.values())
    if room == 0:
        return None
    count = rng.randint(1, room)
    plan = made.gang_room(ONE_CPU).plan(count)
    ours = parts(paths, [made.row(row).node for row, _ in plan])
    best = min(
        parts(paths, [name for name, used in zip(free, tasks, strict=True) if used])
        for tasks in product(*(range(most + 1) for most in free.values()))
        if sum(tasks) == count
    )
    return sum(ours), sum(best), ours == best


def oracle_figures() -> dict[str, Any]:
    """Compare plans on random small shoals with an exhaustive search."""
    found = [told for seed in range(SMALL_CASES) if (told := against_oracle(seed))]
    ours, best = sum(told[0] for told in found), sum(told[1] for told in found)
    return {
        "benchmark": "gang plans against an exhaustive search",
        "cases": len(found),
        "equal": sum(told[2] for told in found),
        "switches_and_workers": round(ours / best, 4),
    }


# Speed.


def large_table(rng: Random) -> WorkerTable:
    """Return workers of 8 GPUs, 25 to a leaf and 10 leaves to a pod, 70 % in use."""
    made = WorkerTable()
    devices = tuple(Device(str(n), "nvidia", "A100", 80 << 30) for n in range(8))
    for number in range(SPEED_WORKERS):
        where = (("pod", str(number // 250)), ("leaf", str(number // 25)))
        capacity = Capacity(cpu_milli=64_000, devices=devices, labels=where)
        node = NodeId(f"w{number:05}")
        made.put(WorkerView.idle(node, capacity, path_cost_us=100))
        if used := min(8, rng.randint(3, 8)):
            made.take(node, Profile(gpu=GpuNeed(used, used)))
    return made


def speed_figures() -> dict[str, Any]:
    """Place gangs of 8, each in place of one that ends."""
    rng = Random(1)
    made, policy = large_table(rng), CompactGangs()
    profile = Profile(cpu_milli=1_000, gpu=GpuNeed())
    running: list[Any] = []
    spent_s: list[float] = []
    for _ in range(SPEED_GANGS):
        if len(running) > 100:
            for taken in running.pop(rng.randrange(len(running))):
                made.give(taken)
        began = time.process_time()
        placed = place(profile, 8, made, policy, rng, gang=GangNeed(8))
        spent_s.append(time.process_time() - began)
        assert len(placed.takens) == 8
        running.append(placed.takens)
    spent_s.sort()
    return {
        "benchmark": "gangs of 8 placed, by CPU time",
        "workers": SPEED_WORKERS,
        "gangs_per_s": round(len(spent_s) / sum(spent_s)),
        "p50_ms": round(1e3 * spent_s[len(spent_s) // 2], 3),
        "p99_ms": round(1e3 * spent_s[len(spent_s) * 99 // 100], 3),
    }


# The guide.


def written(text: str, body: str) -> str:
    """Return the guide with its figures replaced."""
    before, _, rest = text.partition(BEGIN)
    old, _, after = rest.partition(END)
    assert old, f"{GUIDE} has no figures"
    return f"{before}{BEGIN}\n\n{body}\n\n{END}{after}"


def figures_text(grid: SweepFigures, examples: SweepFigures) -> str:
    """Return tables and pictures as Markdown."""
    seeds = max(line.seeds for line in grid.lines)
    words = [
        f"{len(grid.lines)} scenarios of the grid, {seeds} seed{'s' * (seeds > 1)}:",
        markdown_summary(grid),
        _image("profile-mean", "In how many scenarios each policy is near the best"),
        "The redder, the worse than the best other:",
        _image("grid-mean", "Mean completion of every policy in every scenario"),
        "Mean completion:",
        markdown_lines(grid, "jct_mean_s"),
        "p99 of completion:",
        markdown_lines(grid, "jct_p99_s"),
    ]
    if examples.lines:
        words += [
            "The examples, mean and p99 of completion:",
            markdown_summary(examples),
            markdown_lines(examples, "jct_mean_s"),
            markdown_lines(examples, "jct_p99_s"),
        ]
    return "\n\n".join(words)


def _image(name: str, words: str) -> str:
    return f'<img src="../img/placement/{name}.svg" alt="{words}" width="100%">'


def write_guide(grid: SweepFigures, examples: SweepFigures) -> None:
    """Write tables and pictures."""
    text = GUIDE.read_text(encoding="utf-8")
    GUIDE.write_text(written(text, figures_text(grid, examples)), encoding="utf-8")
    PICTURES.mkdir(parents=True, exist_ok=True)
    for name, svg in sweep_pictures(grid).items():
        if name.removesuffix(".svg") in ("profile-mean", "grid-mean"):
            (PICTURES / name).write_text(svg, encoding="utf-8")


def main() -> None:
    """Run everything that the file of results lacks, and write the guide."""
    if len(sys.argv) not in (2, 4):
        sys.exit("usage: placement_quality.py RESULTS.jsonl [POLICIES SEEDS]")
    path = Path(sys.argv[1])
    policies, seeds = ["all"], SEEDS
    if len(sys.argv) == 4:
        policies, seeds = sys.argv[2].split(","), int(sys.argv[3])
    for line in (oracle_figures(), speed_figures()):
        sys.stdout.write(json.dumps(line) + "\n")
    grid = figures_of(run(cells_in("grid", policies, seeds), path))
    cells = [cell for name in EXAMPLE_NAMES for cell in cells_in(name, policies, seeds)]
    examples = figures_of(run(cells, path))
    for name, figures in (("grid", grid), ("examples", examples)):
        for summary in figures.summaries:
            line = {"benchmark": f"placement quality, {name}"}
            told = {**line, **msgspec.to_builtins(summary)}
            sys.stdout.write(json.dumps(told) + "\n")
    write_guide(grid, examples)


if __name__ == "__main__":
    main()
