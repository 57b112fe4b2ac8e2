"""Compare all placement policies on a grid of scenarios and on the examples.

Every policy runs on every scenario (`examples/sim/grid.yaml`, and the examples that
place jobs), in virtual time. Where hosts crash, luck decides for the most part: there
all run with more seeds, and are compared pair by pair. Then plans for
gangs are compared with those of an exhaustive search, and gangs of 8 are placed among
10,000 workers as fast as possible. Figures go to `docs/guides/placement.md`, pictures
to `docs/img/placement`.

Run: python benchmarks/placement_quality.py RESULTS.jsonl >> benchmarks/results.jsonl
It takes about twenty minutes of CPU time; run it again to go on after a stop. Two more
words choose policies and the number of seeds: `compact,fgd,balanced 1`.
"""

from __future__ import annotations

import json
import math
import statistics
import sys
import time
from itertools import product
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, cast

import msgspec

from shoal.lab.datacentre.jobs import draw_jobs
from shoal.lab.datacentre.scenario import convert, read_scenario
from shoal.lab.datacentre.settings import resolve
from shoal.lab.datacentre.sweep import (
    VARY,
    append_result,
    cells_of,
    read_results,
    run_cells,
)
from shoal.lab.report.sweep_figures import METRICS, figures_of, paired_ratios
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

EXAMPLE_NAMES = ("first", "leaf-failure", "wan")
SEEDS = 5
BEHIND = 1.02
STUDENT_95 = 2.776  # of five seeds
CRASHES, NARROW = "crashes", ("leaves 4:1", "tree 4:1", "sites")

NARROW_WORDS = (
    "On narrow uplinks, `compact` against `balanced`. *At most* is how much sooner "
    "jobs would end than with `balanced` if none waited and the network took no "
    "time: no placement can do better. *Slowdown* is the time that a job takes "
    "by its own run time alone:"
)
CELL_WORDS = (
    "scenarios with crashes, the mean over their seeds against the best of all others, "
    "which is chosen afterwards and so is lucky, too. Those where `compact` is more "
    "than 2 % behind, with the 95 % interval of the ratio, seed by seed:"
)
CRASH_WORDS = (
    "runs with crashes, pair by pair: the ratio of `compact` to each other policy "
    "(below 1 is better), its 95 % interval, and the standard deviation of the "
    "logarithm of a single ratio:"
)

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


def table(head: list[str], rows: list[list[str]]) -> str:
    """Return a table as Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def crash_table(results: list[CellResult]) -> str:
    """Return how the default compares where hosts crash, over several seeds."""
    rows: list[list[str]] = []
    for metric, words in METRICS.items():
        for one in paired_ratios(results, "compact", metric):
            interval = f"{one.low:.2f} to {one.high:.2f}"
            ratio, spread = f"{one.ratio:.2f}", f"{one.spread:.2f}"
            rows.append(
                [words, f"`{one.other}`", ratio, interval, spread, f"{one.pairs}"]
            )
    return table(["", "against", "ratio", "95 %", "spread", "pairs"], rows)


def behind_table(results: list[CellResult]) -> str:
    """Return the scenarios with crashes in which the default is behind another."""
    values: dict[tuple[str, str], dict[str, dict[str, CellResult]]] = {}
    for one in results:
        scenario = (one.point["fabric"], one.point["mix"])
        by_policy = values.setdefault(scenario, {})
        by_policy.setdefault(one.policy, {})[one.point["seed"]] = one
    rows: list[list[str]] = []
    for metric, words in METRICS.items():
        for (fabric, mix), by_policy in sorted(values.items()):
            means = {
                policy: statistics.fmean(getattr(one, metric) for one in some.values())
                for policy, some in by_policy.items()
            }
            ours = means.pop("compact")
            best = min(means, key=lambda name: (means[name], name))
            if ours <= BEHIND * means[best]:
                continue
            low, high = interval(by_policy["compact"], by_policy[best], metric)
            ratio, seeds = f"{ours / means[best]:.2f}", f"{len(by_policy['compact'])}"
            span = f"{low:.2f} to {high:.2f}"
            rows.append([words, fabric, mix, f"`{best}`", ratio, span, seeds])
    head = ["", "fabric", "mix", "best other", "ratio", "95 %", "seeds"]
    return table(head, rows)


def interval(
    ours: dict[str, CellResult], others: dict[str, CellResult], metric: str
) -> tuple[float, float]:
    """Return the 95 % interval of the ratio of two policies, seed by seed."""
    logs = [
        math.log(getattr(ours[seed], metric) / getattr(others[seed], metric))
        for seed in sorted(ours)
    ]
    error = STUDENT_95 * statistics.stdev(logs) / math.sqrt(len(logs))
    mean = statistics.fmean(logs)
    return math.exp(mean - error), math.exp(mean + error)


def run_alone_s(cell: Cell) -> float:
    """Return the mean run time of a cell's jobs, on a network that takes no time."""
    settings, fabric = resolve(convert(cell.document), cell.folder)
    hosts = [NodeId(fabric.nodes[host].name) for host in fabric.hosts]
    drawn = draw_jobs(settings, hosts, Random(f"{settings.seed}/jobs"))
    return statistics.fmean(job.run_s for job in drawn.jobs)


def narrow_table(results: list[CellResult], cells: list[Cell]) -> str:
    """Return how the default compares with `balanced` on narrow uplinks."""
    cell_of = {cell.id: cell for cell in cells}
    known = {
        (one.point["fabric"], one.point["load"], one.point["mix"], one.policy): one
        for one in results
    }
    rows: list[list[str]] = []
    for (fabric, load, mix, policy), ours in sorted(known.items()):
        other = known.get((fabric, load, mix, "balanced"))
        if policy != "compact" or fabric not in NARROW or other is None:
            continue
        if mix not in ("gangs", "both") or load == CRASHES:
            continue
        ratio = f"{other.jct_mean_s / ours.jct_mean_s:.2f}"
        most = f"{other.jct_mean_s / run_alone_s(cell_of[ours.cell]):.2f}"
        slow = [f"{one.slowdown_mean:.2f}" for one in (ours, other)]
        rows.append([fabric, load, mix, ratio, most, *slow])
    head = ["fabric", "load", "mix", "times sooner", "at most"]
    return table([*head, "slowdown", "of `balanced`"], rows)


def figures_text(
    grid: SweepFigures,
    examples: SweepFigures,
    narrow: str,
    crashes: list[CellResult],
) -> str:
    """Return tables and pictures as Markdown."""
    ours = sum(one.policy == "compact" for one in crashes)
    words = [
        f"{len(grid.lines)} scenarios of the grid, one seed:",
        markdown_summary(grid),
        NARROW_WORDS,
        narrow,
        f"{ours} {CRASH_WORDS}",
        crash_table(crashes),
        f"{sum(line.labels[1] == CRASHES for line in grid.lines)} {CELL_WORDS}",
        behind_table(crashes),
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


def write_guide(grid: SweepFigures, body: str) -> None:
    """Write tables and pictures."""
    text = GUIDE.read_text(encoding="utf-8")
    GUIDE.write_text(written(text, body), encoding="utf-8")
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
    first_cells = cells_in("grid", policies, 1)
    first = run(first_cells, path)
    grid = figures_of(first)
    crashing = [
        cell
        for cell in cells_in("grid", policies, seeds)
        if cell.point["load"] == CRASHES
    ]
    crashes = run(crashing, path)
    cells = [cell for name in EXAMPLE_NAMES for cell in cells_in(name, policies, 1)]
    examples = figures_of(run(cells, path))
    for name, figures in (("grid", grid), ("examples", examples)):
        for summary in figures.summaries:
            line = {"benchmark": f"placement quality, {name}"}
            told = {**line, **msgspec.to_builtins(summary)}
            sys.stdout.write(json.dumps(told) + "\n")
    narrow = narrow_table(first, first_cells)
    write_guide(grid, figures_text(grid, examples, narrow, crashes))


if __name__ == "__main__":
    main()
