"""Measure how our own policies fare on workloads that they were not made for.

Run: .venv/bin/python benchmarks/generalisation.py [minnow] [braid] [forage] > results
Each line is one setting as JSON: families of workloads that are made up from seeds, or
windows of a shared trace, each under our policy and under those that others published.
`seeds` says whether they are held out: the policies were never looked at on those.
`minnow` needs no trace for most; `braid` takes the steps of models, and `forage` hosts
and pods, from the shared traces.

Then: .venv/bin/python benchmarks/generalisation.py table FILE docs/guides/traces.md
It writes the settings of such a file into the page, as tables of wins and losses.
"""

import json
import sys
from collections.abc import Iterable
from math import exp, log
from pathlib import Path
from random import Random
from statistics import fmean
from typing import Any

from shoal.lab.replay.cluster_fill import fill, policy_named, typical_pods
from shoal.lab.replay.clusters import CountedSlots
from shoal.lab.replay.protocols import muri, rlscheduler, rlscheduler_jobs, waiting
from shoal.lab.replay.published_results import default_folder
from shoal.lab.replay.run_to_completion import InOrder
from shoal.lab.traces import openb, training
from shoal.lab.traces.lublin import LublinShape, lublin_jobs
from shoal.lab.traces.swf import SwfFile
from shoal.lab.traces.values import Cluster, Pod, TraceHost, TraceJob

LENGTH = 1_024
RULES = ("fcfs", "sjf", "f1", "wfp3", "unicep", "minnow")
MODES = ("picked once", "once, backfill", "EASY backfill")
PREEMPTIVE = ("srtf", "srsf", "tiresias", "muri-s", "muri-l", "braid")
PLACING = (
    "Random",
    "DotProd",
    "GpuClustering",
    "GpuPacking",
    "BestFit",
    "FGD",
    "forage",
)
SEEDS = {"seen": range(100, 106), "held out": range(1_000, 1_006)}
TRAINING_SEEDS = {"held out": (1_011,)}
FILL_SEEDS = {"seen": (0,), "held out": (1_000,)}

BATCH = {
    "as published": (256, LublinShape()),
    "half wide": (256, LublinShape(0.62, narrow=0.45, short=0.9, short_by_slot=-0.002)),
    "mostly wide": (128, LublinShape(0.7, narrow=0.2, serial=0.05)),
    "mostly narrow": (256, LublinShape(0.95, narrow=0.95, serial=0.6)),
    "mostly short": (64, LublinShape(0.8, short=0.97, short_by_slot=-0.001)),
    "mostly long": (64, LublinShape(0.8, short=0.3, short_by_slot=-0.001)),
    "light": (256, LublinShape(0.45)),
    "overloaded": (256, LublinShape(1.2)),
    "close requests": (256, LublinShape(0.8, "close")),
    "loose requests": (256, LublinShape(0.8, "loose")),
    "usual requests": (256, LublinShape(0.8, "usual")),
    "too short requests": (256, LublinShape(0.75, "short")),
    "128 slots, 18 h requests": (128, LublinShape(0.8, "longest", serial=0.35)),
    "240 slots, narrow, loose": (
        240,
        LublinShape(0.7, "loose", serial=0.5, narrow=0.95, short=0.6),
    ),
}
GPUS = {
    "philly": ((1, 0.7), (2, 0.08), (4, 0.1), (8, 0.09), (16, 0.02), (32, 0.01)),
    "muri": ((1, 0.36), (4, 0.28), (8, 0.31), (16, 0.03), (32, 0.02)),
    "eights": ((8, 0.8), (32, 0.1), (1, 0.1)),
    "ones": ((1, 1.0),),
    "wide": ((8, 0.4), (16, 0.3), (32, 0.3)),
}
LENGTHS = {"minutes": (900.0, 1.2), "hours": (7_200.0, 1.5), "days": (200_000.0, 1.5)}
LOADS = {
    "0.8": (0.8, 1.0),
    "1.5": (1.5, 1.0),
    "1.0 in bursts": (1.0, 8.0),
    "all at once": (1_000.0, 1.0),
}
TRAINING = 150


def tell(
    policy: str, setting: str, seeds: str, figures: dict[str, float], *, most: bool
) -> None:
    """Print one setting; with `most`, more is better."""
    others = [value for name, value in figures.items() if name != policy]
    best = max(others) if most else min(others)
    ours = figures[policy]
    line = {
        "benchmark": "generalisation",
        "policy": policy,
        "setting": setting,
        "seeds": seeds,
        "figures": {name: round(value, 2) for name, value in figures.items()},
        "to_best": round(ours - best if most else 100 * (ours / best - 1), 2),
        "unit": "points" if most else "%",
        "won": ours >= best if most else ours <= best,
    }
    print(json.dumps(line), flush=True)


def minnow() -> None:
    """Mean bounded slowdown under three protocols."""
    for name, (slots, shape) in BATCH.items():
        for held, seeds in SEEDS.items():
            windows = [lublin_jobs(LENGTH, slots, Random(s), shape) for s in seeds]
            _slowdowns(name, held, windows, slots)
    file = SwfFile(default_folder(Path()) / "swf" / "lublin_256.swf.gz")
    jobs = rlscheduler_jobs(file.jobs())
    for held, seed in (("seen", 5), ("held out", 1_005)):
        starts = Random(seed).sample(range(len(jobs) - LENGTH), 10)
        windows = [jobs[start : start + LENGTH] for start in starts]
        _slowdowns("lublin_256", held, windows, file.slots())


def _slowdowns(name: str, held: str, windows: list[list[TraceJob]], slots: int) -> None:
    for mode in MODES:
        figures = {
            rule: fmean(slowdown(window, slots, rule, mode) for window in windows)
            for rule in RULES
        }
        tell("minnow", f"{name}; {mode}", held, figures, most=False)


def slowdown(jobs: list[TraceJob], slots: int, rule: str, mode: str) -> float:
    """Replay one window."""
    if mode == "EASY backfill":
        queue = waiting(jobs, slots, rule)
        outcome = InOrder(jobs, CountedSlots(slots), queue, "easy").run()
    else:
        backfill = mode == "once, backfill"
        outcome = rlscheduler(jobs, slots, rule, backfill=backfill)
    return float(outcome.slowdowns.mean())


def braid() -> None:
    """Average completion times of training jobs, under Muri's protocol."""
    kinds = kinds_of_steps()
    cluster = Cluster(hosts_per_switch=8)
    path = default_folder(Path()) / "muri" / "cluster_trace.csv.gz"
    jobs = list(training.training_jobs(path))
    _completions("cluster_trace", "seen", [jobs], cluster)
    for mix, sizes in GPUS.items():
        for lengths, (mean_s, sigma) in LENGTHS.items():
            for load in LOADS:
                for held, seeds in TRAINING_SEEDS.items():
                    sets = [
                        training_jobs(Random(s), kinds, sizes, mean_s, sigma, load)
                        for s in seeds
                    ]
                    _completions(f"{mix}; {lengths}; {load}", held, sets, cluster)


def _completions(
    name: str, held: str, sets: list[list[TraceJob]], cluster: Cluster
) -> None:
    figures = {
        rule: fmean(float(muri(jobs, cluster, rule).jcts_s.mean()) for jobs in sets)
        for rule in PREEMPTIVE
    }
    tell("braid", name, held, figures, most=False)


Kinds = dict[int, dict[str, TraceJob]]


def kinds_of_steps() -> Kinds:
    """Return one job of each model and number of GPUs."""
    kinds: Kinds = {}
    for name in ("trace1", "cluster_trace"):
        path = default_folder(Path()) / "muri" / f"{name}.csv.gz"
        for job in training.training_jobs(path):
            kinds.setdefault(job.slots, {}).setdefault(job.model, job)
    return kinds


def training_jobs(
    rng: Random,
    kinds: Kinds,
    sizes: tuple[tuple[int, float], ...],
    mean_s: float,
    sigma: float,
    load: str,
) -> list[TraceJob]:
    """Make up training jobs with lengths of this lognormal distribution."""
    share, burst = LOADS[load]
    drawn = rng.choices(
        [size for size, _ in sizes], [part for _, part in sizes], k=TRAINING
    )
    rows = [
        (
            kinds[gpus][rng.choice(sorted(kinds[gpus]))],
            max(60.0, rng.lognormvariate(log(mean_s) - sigma**2 / 2, sigma)),
        )
        for gpus in drawn
    ]
    work = sum(kind.slots * run_s for kind, run_s in rows)
    gap_s = work / (share * 64) / TRAINING
    at_s, jobs = 0.0, list[TraceJob]()
    for number, (kind, run_s) in enumerate(rows):
        jobs.append(
            TraceJob(
                id=str(number),
                submitted_s=float(round(at_s)),
                run_s=run_s,
                requested_s=run_s,
                slots=kind.slots,
                model=kind.model,
                steps=max(1, round(1_000 * run_s / kind.step_ms)),
                step_ms=kind.step_ms,
                stages_ms=kind.stages_ms,
            )
        )
        # In bursts most jobs come together, and the next wait so much the longer.
        if rng.random() < 1 / burst:
            at_s += rng.expovariate(1.0) * gap_s * burst
    return jobs


def forage() -> None:
    """GPU allocated of a cluster that is filled with pods of other mixes."""
    folder = default_folder(Path()) / "openb"
    hosts = list(openb.hosts(folder / "openb_node_list_gpu_node.csv.gz"))
    pods = list(openb.pods(folder / "openb_pod_list_default.csv.gz"))
    for held, seeds in FILL_SEEDS.items():
        for name, weight in MIXES.items():
            weights = [weight(pod) for pod in pods]
            chosen = Random(1 + seeds[0]).choices(pods, weights, k=len(pods))
            _allocations(name, held, hosts, chosen, seeds)
    for name in ("gpushare40", "multigpu20"):
        listed = list(openb.pods(folder / f"openb_pod_list_{name}.csv.gz"))
        _allocations(name, "seen", hosts, listed, FILL_SEEDS["seen"])


def _allocations(
    name: str,
    held: str,
    hosts: list[TraceHost],
    pods: list[Pod],
    seeds: Iterable[int],
) -> None:
    typical = typical_pods(pods)
    figures = {
        policy: fmean(
            fill(
                hosts, pods, policy_named(policy, typical, None), 1.3, seed
            ).allocation_pct(130)
            for seed in seeds
        )
        for policy in PLACING
    }
    tell("forage", name, held, figures, most=True)


def _many(pod: Pod) -> bool:
    return pod.gpus > 1


def _shared(pod: Pod) -> bool:
    return pod.gpus == 1 and pod.gpu_milli < 1_000


MIXES = {
    "as they are": lambda _: 1.0,
    "many GPUs, 10 times as often": lambda pod: 10.0 if _many(pod) else 1.0,
    "many GPUs only": lambda pod: float(_many(pod)),
    "shared, 5 times as often": lambda pod: 5.0 if _shared(pod) else 1.0,
    "shared only": lambda pod: float(_shared(pod)),
    "whole GPUs only": lambda pod: float(pod.gpu_milli == 1_000),
    "much CPU, 5 times as often": lambda pod: (
        5.0 if pod.cpu_milli >= 16_000 * max(1, pod.gpus) else 1.0
    ),
}

QUESTIONS = {q.__name__: q for q in (minnow, braid, forage)}
EVEN_PCT, EVEN_POINTS = 1.0, 0.1
LARGE = 9_000.0  # Figures above this are shown without decimals.
BEGIN, END = "<!-- generalisation: {} -->", "<!-- end -->"


def table(results: Path, page: Path) -> None:
    """Write the settings in a file of results into a page, between its marks."""
    lines = [json.loads(line) for line in results.read_text().splitlines()]
    text = page.read_text()
    for policy in QUESTIONS:
        rows = [line for line in lines if line["policy"] == policy]
        before, mark, rest = text.partition(BEGIN.format(policy))
        if not rows or not mark:
            continue
        after = rest.partition(END)[2]
        text = f"{before}{mark}\n{_as_table(rows)}\n{END}{after}"
    page.write_text(text)


def _as_table(rows: list[dict[str, Any]]) -> str:
    policies = list(rows[0]["figures"])
    heading = ["setting", "seeds", *policies, "to the best other"]
    shown = [heading, ["---"] * len(heading)]
    for row in rows:
        values = [row["figures"][name] for name in policies]
        mark = "**" if row["won"] else ""
        far = f"{mark}{row['to_best']:+.2f} {row['unit']}{mark}"
        cells = [f"{value:,.{0 if value > LARGE else 2}f}" for value in values]
        shown.append([row["setting"], row["seeds"], *cells, far])
    body = "\n".join("| " + " | ".join(cells) + " |" for cells in shown)
    said = [_counted(rows, seeds) for seeds in ("held out", "seen")]
    return "\n".join([*filter(None, said), "", body])


def _counted(rows: list[dict[str, Any]], seeds: str) -> str:
    """Say how often ours was better, about even and worse."""
    chosen = [row for row in rows if row["seeds"] == seeds]
    if not chosen:
        return ""
    # In percent fewer is better, and in points more.
    behind = [r["to_best"] * (-1 if r["unit"] == "points" else 1) for r in chosen]
    even = EVEN_POINTS if chosen[0]["unit"] == "points" else EVEN_PCT
    better = sum(each < -even for each in behind)
    worse = sum(each > even for each in behind)
    unit, policy = chosen[0]["unit"], chosen[0]["policy"]
    ratios = {
        name: fmean(log(r["figures"][policy] / r["figures"][name]) for r in chosen)
        for name in chosen[0]["figures"]
        if name != policy
    }
    each = ", ".join(f"{n} {100 * (exp(r) - 1):+.1f} %" for n, r in ratios.items())
    return (
        f"On {seeds} seeds, {len(chosen)} settings: better than the best other on"
        f" {better}, within {even:g} {unit} of it on {len(chosen) - better - worse},"
        f" worse on {worse}, by {max(*behind, 0):.2f} {unit} at most. To each alone,"
        f" in the geometric mean: {each}."
    )


if __name__ == "__main__":
    if sys.argv[1:2] == ["table"]:
        table(Path(sys.argv[2]), Path(sys.argv[3]))
    else:
        for question in sys.argv[1:] or QUESTIONS:
            QUESTIONS[question]()
