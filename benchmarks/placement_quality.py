"""Compare all placement policies on a grid of scenarios and on the examples.

Every policy runs on every scenario (`examples/sim/grid.yaml`, and the examples that
place jobs), in virtual time. Where hosts crash, luck decides for the most part: there
all run with more seeds, and are compared pair by pair. Then plans for
gangs are compared with those of an exhaustive search, and gangs of 8 are placed among
10,000 workers as fast as possible. Figures go to `docs/guides/placement.md`, pictures
to `docs/img/placement`.

Run: python benchmarks/placement_quality.py RESULTS.jsonl >> benchmarks/results.jsonl
It takes about twenty minutes of CPU time; run it again to go on after a stop, or with
`--minutes 4` in pieces. `--policies compact,fgd,balanced --seeds 1` does less. Results
do not name the code that they are of: take a new file for other code.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
import time
from itertools import product
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, NamedTuple, cast

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
    from collections.abc import Iterable

    from shoal.lab.datacentre.sweep import Cell, CellResult
    from shoal.lab.report.sweep_figures import SweepFigures

ROOT = Path(__file__).parents[1]
EXAMPLES = ROOT / "examples" / "sim"
GUIDE = ROOT / "docs" / "guides" / "placement.md"
MARKS = ("figures", "claims")
PICTURES = ROOT / "docs" / "img" / "placement"

EXAMPLE_NAMES = ("first", "leaf-failure", "wan")
SEEDS = 5
BEHIND, MUCH = 1.02, 1.05
STUDENT_95 = (12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.37, 2.31, 2.26)
"""Half of a 95 % interval in standard errors, of 2 to 10 values; of more it is less."""

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


def run(cells: list[Cell], path: Path, until: float) -> list[CellResult]:
    """Run what the file of results lacks; return the results of these cells.

    When it is `until`, it ends the program: the next one goes on.
    """
    known = read_results(path)
    left = [cell for cell in cells if cell.id not in known]
    for number, result in enumerate(run_cells(left), start=1):
        known[result.cell] = result
        append_result(path, result)
        if number % 50 == 0:
            sys.stderr.write(f"{number} of {len(left)} cells\n")
        if time.monotonic() > until and number < len(left):
            sys.exit(f"{len(left) - number} of these cells are left; run it again")
    return [known[cell.id] for cell in cells]


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


def written(text: str, mark: str, body: str) -> str:
    """Return the guide with what is between two marks replaced."""
    begin, end = f"<!-- {mark} -->", f"<!-- end of {mark} -->"
    before, _, rest = text.partition(begin)
    old, _, after = rest.partition(end)
    assert old, f"{GUIDE} has no {mark}"
    return f"{before}{begin}\n\n{body}\n\n{end}{after}"


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


class Behind(NamedTuple):
    """A scenario with crashes in which another policy is better than the default."""

    metric: str
    fabric: str
    mix: str
    other: str
    ratio: float
    low: float
    high: float
    seeds: int


def behind(results: list[CellResult]) -> list[Behind]:
    """Return the scenarios with crashes in which the default is behind another."""
    values: dict[tuple[str, str], dict[str, dict[str, CellResult]]] = {}
    for one in results:
        scenario = (one.point["fabric"], one.point["mix"])
        by_policy = values.setdefault(scenario, {})
        by_policy.setdefault(one.policy, {})[one.point["seed"]] = one
    found: list[Behind] = []
    for metric in METRICS:
        for (fabric, mix), by_policy in sorted(values.items()):
            means = {
                policy: statistics.fmean(getattr(one, metric) for one in some.values())
                for policy, some in by_policy.items()
            }
            ours = means.pop("compact")
            best = min(means, key=lambda name: (means[name], name))
            ratio = ours / means[best]
            if ratio > BEHIND:
                span = interval(by_policy["compact"], by_policy[best], metric)
                seeds = len(by_policy["compact"])
                found.append(Behind(metric, fabric, mix, best, ratio, *span, seeds))
    return found


def behind_table(found: list[Behind]) -> str:
    """Return the scenarios with crashes in which the default is behind another."""
    rows = [
        [
            *(METRICS[one.metric], one.fabric, one.mix, f"`{one.other}`"),
            *(f"{one.ratio:.2f}", f"{one.low:.2f} to {one.high:.2f}", f"{one.seeds}"),
        ]
        for one in found
    ]
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
    if len(logs) < 2:
        return 0.0, math.inf
    errors = STUDENT_95[min(len(logs) - 2, len(STUDENT_95) - 1)]
    error = errors * statistics.stdev(logs) / math.sqrt(len(logs))
    mean = statistics.fmean(logs)
    return math.exp(mean - error), math.exp(mean + error)


def run_alone_s(cell: Cell) -> float:
    """Return the mean run time of a cell's jobs, on a network that takes no time."""
    settings, fabric = resolve(convert(cell.document), cell.folder)
    hosts = [NodeId(fabric.nodes[host].name) for host in fabric.hosts]
    drawn = draw_jobs(settings, hosts, Random(f"{settings.seed}/jobs"))
    return statistics.fmean(job.run_s for job in drawn.jobs)


class Narrow(NamedTuple):
    """How much sooner jobs end than with `balanced`, in a scenario with gangs."""

    fabric: str
    load: str
    mix: str
    sooner: float
    most: float
    slowdown: float
    of_balanced: float


def on_narrow_uplinks(results: list[CellResult], cells: list[Cell]) -> list[Narrow]:
    """Return how the default compares with `balanced` on narrow uplinks."""
    cell_of = {cell.id: cell for cell in cells}
    known = {
        (one.point["fabric"], one.point["load"], one.point["mix"], one.policy): one
        for one in results
    }
    found: list[Narrow] = []
    for (fabric, load, mix, policy), ours in sorted(known.items()):
        other = known.get((fabric, load, mix, "balanced"))
        if policy != "compact" or fabric not in NARROW or other is None:
            continue
        if mix not in ("gangs", "both") or load == CRASHES:
            continue
        sooner = other.jct_mean_s / ours.jct_mean_s
        most = other.jct_mean_s / run_alone_s(cell_of[ours.cell])
        slow = (ours.slowdown_mean, other.slowdown_mean)
        found.append(Narrow(fabric, load, mix, sooner, most, *slow))
    return found


def narrow_table(found: list[Narrow]) -> str:
    """Return the same as a table."""
    rows = [[*one[:3], *(f"{value:.2f}" for value in one[3:])] for one in found]
    head = ["fabric", "load", "mix", "times sooner", "at most"]
    return table([*head, "slowdown", "of `balanced`"], rows)


# What the figures come to.


def span(values: Iterable[float]) -> str:
    """Return the least and the most of some figures."""
    some = sorted(values)
    return f"{some[0]:.2f} to {some[-1]:.2f}"


def claims(
    grid: SweepFigures, narrow: list[Narrow], crashes: list[CellResult]
) -> list[str]:
    """Return what the figures come to, in sentences."""
    calm = [line for line in grid.lines if line.labels[1] != CRASHES]
    worst = {m: max(line.ratio(m, "compact") for line in calm) for m in METRICS}
    mean, late = (f"{worst[metric]:.3f}" for metric in METRICS)
    calmly = (
        f"- **Without crashes** ({len(calm)} scenarios, one seed) `compact` takes at "
        f"most {mean} times as long as the best of {len(grid.columns) - 1} others by "
        f"mean completion, and {late} times by p99."
    )
    said = [calmly]
    if narrow:
        gangs = span(one.sooner for one in narrow if one.mix == "gangs")
        both = span(one.sooner for one in narrow if one.mix == "both")
        most = span(one.most for one in narrow if one.mix == "both")
        said.append(
            f"- **On narrow uplinks** gangs end {gangs} times sooner than with "
            f"`balanced`, and mixtures {both} times. No placement can do better for "
            f"mixtures than {most} times: so much sooner they would end if no job "
            "waited and the network took no time. Most of their jobs are single "
            "tasks, which no network slows down."
        )
    return [*said, *_crash_claims(crashes), *_message_claims(grid)]


def _crash_claims(crashes: list[CellResult]) -> list[str]:
    found = behind(crashes)
    scenarios = {(one.point["fabric"], one.point["mix"]) for one in crashes}
    seeds = len({one.point["seed"] for one in crashes})
    said = [f"- **With crashes** ({len(scenarios)} scenarios, {seeds} seeds each):"]
    for metric, words in METRICS.items():
        nearest = paired_ratios(crashes, "compact", metric)[0]
        much = [one for one in found if one.metric == metric and one.ratio > MUCH]
        sure = sum(one.low > 1.0 for one in much)
        said.append(
            f"  by {words} `compact` takes {nearest.ratio:.2f} times as long as "
            f"`{nearest.other}`, the next best (95 %: {nearest.low:.2f} to "
            f"{nearest.high:.2f}). In {len(much)} scenarios it is more than 5 % behind "
            f"the best other, and in {sure} of these chance alone is unlikely."
        )
    return ["\n".join(said)]


def _message_claims(grid: SweepFigures) -> list[str]:
    by_name = {one.column: one for one in grid.summaries}
    told = [
        f"`{name}` has {one.refusals_per_start:.2f} refusals for each task started and "
        f"{one.messages_per_job:.0f} messages for each job"
        for name in ("compact", "balanced")
        if (one := by_name.get(name)) is not None
    ]
    return [f"- **Refusals and messages**: {'; '.join(told)}."]


# All of it.


def figures_text(
    grid: SweepFigures,
    examples: SweepFigures,
    narrow: list[Narrow],
    crashes: list[CellResult],
) -> str:
    """Return tables and pictures as Markdown."""
    ours = sum(one.policy == "compact" for one in crashes)
    words = [
        f"{len(grid.lines)} scenarios of the grid, one seed:",
        markdown_summary(grid),
        NARROW_WORDS,
        narrow_table(narrow),
        f"{ours} {CRASH_WORDS}",
        crash_table(crashes),
        f"{sum(line.labels[1] == CRASHES for line in grid.lines)} {CELL_WORDS}",
        behind_table(behind(crashes)),
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


def write_guide(grid: SweepFigures, bodies: dict[str, str]) -> None:
    """Write tables and pictures."""
    text = GUIDE.read_text(encoding="utf-8")
    for mark in MARKS:
        text = written(text, mark, bodies[mark])
    GUIDE.write_text(text, encoding="utf-8")
    PICTURES.mkdir(parents=True, exist_ok=True)
    for name, svg in sweep_pictures(grid).items():
        if name.removesuffix(".svg") in ("profile-mean", "grid-mean"):
            (PICTURES / name).write_text(svg, encoding="utf-8")


def asked() -> argparse.Namespace:
    """Return what the command line says."""
    parser = argparse.ArgumentParser(description="Compare placement policies.")
    parser.add_argument("results", type=Path, help="a file that results are added to")
    parser.add_argument("--policies", default="all", help="such as compact,fgd")
    parser.add_argument("--seeds", type=int, default=SEEDS, help="where hosts crash")
    parser.add_argument("--minutes", type=float, default=math.inf, help="then stop")
    return parser.parse_args()


def main() -> None:
    """Run everything that the file of results lacks, and write the guide."""
    options = asked()
    path, policies = options.results, options.policies.split(",")
    until = time.monotonic() + 60 * options.minutes
    first_cells = cells_in("grid", policies, 1)
    first = run(first_cells, path, until)
    grid = figures_of(first)
    crashing = [
        cell
        for cell in cells_in("grid", policies, options.seeds)
        if cell.point["load"] == CRASHES
    ]
    crashes = run(crashing, path, until)
    cells = [cell for name in EXAMPLE_NAMES for cell in cells_in(name, policies, 1)]
    examples = figures_of(run(cells, path, until))
    for line in (oracle_figures(), speed_figures()):
        sys.stdout.write(json.dumps(line) + "\n")
    for name, figures in (("grid", grid), ("examples", examples)):
        for summary in figures.summaries:
            line = {"benchmark": f"placement quality, {name}"}
            told = {**line, **msgspec.to_builtins(summary)}
            sys.stdout.write(json.dumps(told) + "\n")
    narrow = on_narrow_uplinks(first, first_cells)
    body = figures_text(grid, examples, narrow, crashes)
    said = "\n".join(claims(grid, narrow, crashes))
    write_guide(grid, {"figures": body, "claims": said})


if __name__ == "__main__":
    main()
