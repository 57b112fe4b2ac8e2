"""Measure how our own policies fare on workloads that they were not made for.

Run: .venv/bin/python benchmarks/generalisation.py [minnow] [braid] [forage]
It prints tables for docs/guides/traces.md: families of workloads that are made up from
seeds, each under our policy and under simple rules. `minnow` needs no trace; `braid`
takes the steps of models, and `forage` hosts and pods, from the shared traces.
"""

import sys
from math import log
from pathlib import Path
from random import Random
from statistics import fmean

from shoal.lab.replay.cluster_fill import fill, policy_named, typical_pods
from shoal.lab.replay.clusters import CountedSlots
from shoal.lab.replay.protocols import muri, rlscheduler, waiting
from shoal.lab.replay.published_results import default_folder
from shoal.lab.replay.run_to_completion import InOrder
from shoal.lab.traces import openb, training
from shoal.lab.traces.lublin import LublinShape, lublin_jobs
from shoal.lab.traces.values import Cluster, Pod, TraceJob

WINDOWS = 10
LENGTH = 1_024
RULES = ("fcfs", "sjf", "f1", "minnow")

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
LOADS = {"0.8": (0.8, 1.0), "1.5": (1.5, 1.0), "1.0 in bursts": (1.0, 8.0)}
TRAINING = 250
FILLS = 3


def row(*cells: object) -> None:
    """Print one line of a table."""
    print("| " + " | ".join(str(cell) for cell in cells) + " |", flush=True)


def margin(ours: float, best: float) -> str:
    """Return how much worse ours is, in per cent; below zero it is better."""
    return f"{100 * (ours / best - 1):+.1f} %"


def minnow() -> None:
    """Mean bounded slowdown under three protocols."""
    modes = ("picked once", "once, backfill", "EASY backfill")
    row("workload", "protocol", *RULES, "Minnow to the best other")
    row(*["---"] * (len(RULES) + 3))
    for name, (slots, shape) in BATCH.items():
        windows = [
            lublin_jobs(LENGTH, slots, Random(seed), shape) for seed in range(WINDOWS)
        ]
        for mode in modes:
            means = [
                fmean(slowdown(window, slots, rule, mode) for window in windows)
                for rule in RULES
            ]
            figures = [f"{mean:.1f}" for mean in means]
            row(name, mode, *figures, margin(means[-1], min(means[:-1])))


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
    row("GPUs", "lengths", "load", "SRTF", "SRSF", "Braid", "Braid to the best other")
    row(*["---"] * 7)
    for mix, sizes in GPUS.items():
        for lengths, (mean_s, sigma) in LENGTHS.items():
            for load in LOADS:
                sets = [
                    training_jobs(Random(seed), kinds, sizes, mean_s, sigma, load)
                    for seed in (1, 2)
                ]
                means = [
                    fmean(float(muri(jobs, cluster, p).jcts_s.mean()) for jobs in sets)
                    for p in ("srtf", "srsf", "braid")
                ]
                figures = [f"{mean:,.0f}" for mean in means]
                row(mix, lengths, load, *figures, margin(means[-1], min(means[:-1])))


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
    row("pods", "BestFit", "FGD", "Forage", "Forage to the best other, points")
    row(*["---"] * 5)
    for name, weight in MIXES.items():
        chosen = Random(1).choices(pods, [weight(pod) for pod in pods], k=len(pods))
        typical = typical_pods(chosen)
        means = [
            fmean(
                fill(
                    hosts, chosen, policy_named(policy, typical, None), 1.3, seed
                ).allocation_pct(130)
                for seed in range(FILLS)
            )
            for policy in ("BestFit", "FGD", "forage")
        ]
        figures = [f"{mean:.2f}" for mean in means]
        row(name, *figures, f"{means[-1] - max(means[:-1]):+.2f}")


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

if __name__ == "__main__":
    for question in sys.argv[1:] or QUESTIONS:
        QUESTIONS[question]()
