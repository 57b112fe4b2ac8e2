"""Measure the coarse engine, and how far our own policies go beyond published ones.

Run: .venv/bin/python benchmarks/traces.py [speed] [minnow] [braid] [forage] [hosts]
Without arguments it does all of these, which takes minutes. It needs the shared
traces for all but `hosts`; without them it says so and goes on. Times are of the CPU.
"""

import json
import resource
import sys
from pathlib import Path
from random import Random
from statistics import fmean
from time import process_time

from shoal.errors import UsageError
from shoal.lab.replay.cluster_fill import fill, policy_named, typical_pods
from shoal.lab.replay.clusters import CountedSlots
from shoal.lab.replay.comparison import on_workers
from shoal.lab.replay.protocols import muri, rlscheduler, rlscheduler_jobs, waiting
from shoal.lab.replay.published_results import default_folder
from shoal.lab.replay.run_to_completion import InOrder
from shoal.lab.traces import openb, training
from shoal.lab.traces.generators import generate
from shoal.lab.traces.swf import SwfFile
from shoal.lab.traces.values import Cluster, Pod, TraceHost, TraceJob
from shoal.policy.registry import Registry

WINDOWS = (1981, 2756, 4299, 8850, 3316, 2714, 5228, 7762, 4022, 7085)
LENGTH = 1_024
SEEDS = 3


def tell(**figures: object) -> None:
    """Print one figure."""
    print(json.dumps({"benchmark": "traces", **figures}), flush=True)


def lublin(folder: Path) -> tuple[list[TraceJob], int]:
    """Return the batch jobs, and the processors that they ran on."""
    file = SwfFile(folder / "swf" / "lublin_256.swf.gz")
    return rlscheduler_jobs(file.jobs()), file.slots()


def speed(folder: Path) -> None:
    """Say how long what others published takes us."""
    jobs, slots = lublin(folder)
    began = process_time()
    for policy in ("fcfs", "sjf", "f1"):
        for backfill in (False, True):
            for start in WINDOWS:
                window = jobs[start : start + LENGTH]
                rlscheduler(window, slots, policy, backfill=backfill)
    tell(what="table B", replays=60, cpu_s=round(process_time() - began, 2))
    cluster = training.cluster(folder / "muri" / "n8g8.csv")
    trace = list(training.training_jobs(folder / "muri" / "trace1.csv.gz"))
    began = process_time()
    for policy in ("srtf", "srsf", "tiresias"):
        muri(trace, cluster, policy)
    tell(what="table C, trace1", replays=3, cpu_s=round(process_time() - began, 2))
    hosts, pods = openb_lists(folder, "default")
    for policy in ("BestFit", "FGD", "forage"):
        began = process_time()
        filled = fill(
            hosts, pods, policy_named(policy, typical_pods(pods), None), 1.3, 0
        )
        spent = process_time() - began
        pods_per_s = round(len(filled.arrived_milli) / spent)
        tell(what=f"one fill by {policy}", cpu_s=round(spent, 2), pods_per_s=pods_per_s)


def minnow(folder: Path) -> None:
    """Compare on the published windows, on others, and on workloads made up."""
    jobs, slots = lublin(folder)
    drawn = Random(5).sample(range(len(jobs) - LENGTH), 20)
    sets = {
        "published windows": [jobs[s : s + LENGTH] for s in WINDOWS],
        "20 other windows": [jobs[s : s + LENGTH] for s in drawn],
        "10 made up": [
            list(generate(f"lublin:{LENGTH}", slots, Random(seed)).jobs)
            for seed in range(10)
        ],
    }
    for name, windows in sets.items():
        for policy in ("fcfs", "sjf", "f1", "wfp3", "unicep", "minnow"):
            published = [
                rlscheduler(w, slots, policy, backfill=True).slowdowns.mean()
                for w in windows
            ]
            again = [
                InOrder(w, CountedSlots(slots), waiting(w, slots, policy), "easy")
                .run()
                .slowdowns.mean()
                for w in windows
            ]
            tell(
                what=f"slowdown, {name}",
                policy=policy,
                picking_once=round(fmean(published), 2),
                picking_again=round(fmean(again), 2),
            )


def braid(folder: Path) -> None:
    """Compare completion times of jobs that can be stopped and share."""
    cluster = training.cluster(folder / "muri" / "n8g8.csv")
    for name in ("trace1", "trace1_pr", "cluster_trace"):
        jobs = list(training.training_jobs(folder / "muri" / f"{name}.csv.gz"))
        for policy in ("srtf", "srsf", "tiresias", "braid"):
            outcome = muri(jobs, cluster, policy)
            tell(
                what=f"completion, {name}",
                policy=policy,
                average_jct_s=round(float(outcome.jcts_s.mean()), 1),
                makespan_s=round(outcome.makespan_s, 1),
            )


def forage(folder: Path) -> None:
    """Compare how far clusters are filled, also among few candidates."""
    for name in ("default", "gpushare40", "multigpu20"):
        hosts, pods = openb_lists(folder, name)
        typical = typical_pods(pods)
        for policy in ("fgd", "forage"):
            for candidates in (None, 8, 64) if name == "default" else (None,):
                filled = [
                    fill(hosts, pods, policy_named(policy, typical, candidates), 1.3, s)
                    for s in range(SEEDS)
                ]
                shares = [each.allocation_pct(130) for each in filled]
                tell(
                    what=f"GPU allocated, {name}",
                    policy=policy,
                    candidates=candidates,
                    mean_pct=round(fmean(shares), 3),
                    seeds=[round(share, 2) for share in shares],
                )


def hosts(_: Path) -> None:
    """Say how many events a second there are with very many hosts."""
    for count in (1_000, 10_000, 100_000):
        trace = generate("philly:20000", 8 * count, Random(1))
        policy = Registry().make("balanced")
        began = process_time()
        cluster = Cluster(hosts_per_switch=count)
        outcome = on_workers(trace.jobs, cluster, policy, Random(1))
        spent = process_time() - began
        tell(
            what=f"{count} hosts of 8 GPUs",
            events=outcome.events,
            events_per_s=round(outcome.events / spent),
            cpu_s=round(spent, 1),
            memory_mb=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10,
        )


def openb_lists(folder: Path, name: str) -> tuple[list[TraceHost], list[Pod]]:
    """Return the hosts, and the pods of one list."""
    place = folder / "openb"
    return (
        list(openb.hosts(place / "openb_node_list_gpu_node.csv.gz")),
        list(openb.pods(place / f"openb_pod_list_{name}.csv.gz")),
    )


QUESTIONS = {q.__name__: q for q in (speed, minnow, braid, forage, hosts)}

if __name__ == "__main__":
    shared: Path | None = None
    try:
        shared = default_folder(Path())
    except UsageError as error:
        print(f"without traces: {error}", file=sys.stderr)
    for question in sys.argv[1:] or QUESTIONS:
        if shared is not None or question == "hosts":
            QUESTIONS[question](shared or Path())
