"""Count placement decisions a second as the shoal grows.

One decision ends a task, which gives its booking back, and places and books another,
of one of seven shapes, while about 70 % of the GPUs are in use: by tasks that the same
policy placed, but among 100,000 workers by tasks that `best-fit` did, which is sooner
done. CPU seconds are given, too, drawing the tasks included, because other work on the
machine disturbs.

Run: python benchmarks/placement.py >> benchmarks/results.jsonl
Compare ratios of lines from one run: machines differ, and other work disturbs.
"""

from __future__ import annotations

import gc
import json
import multiprocessing
import statistics
import sys
import time
from functools import cache
from random import Random

from shoal.model.ids import NodeId
from shoal.model.resources import GIB, Capacity, Device, GpuNeed, Profile
from shoal.policy.interface import Policy
from shoal.policy.placement import place
from shoal.policy.registry import BUILT_IN
from shoal.policy.table.worker_table import TakenRoom, WorkerTable, WorkerView

WORKERS = (1_000, 10_000, 100_000)
DECISIONS = 4_000
REPEATS = 3
SEED = 1
FULL = 0.7
OWN_FILL_MAX = 10_000  # more workers than these are filled by the fastest policy
FASTEST = "best-fit"
GPUS = (("A100", 80, 8), ("RTX3090", 24, 4), ("H100", 80, 8), ("T4", 16, 2), ("", 0, 0))
SHAPES = (
    Profile(1_000, GIB),
    Profile(4_000, 8 * GIB),
    Profile(2_000, 4 * GIB, gpu=GpuNeed(milli=250)),
    Profile(2_000, 4 * GIB, gpu=GpuNeed()),
    Profile(4_000, 8 * GIB, gpu=GpuNeed(2, 2)),
    Profile(8_000, 16 * GIB, gpu=GpuNeed(4, 4)),
    Profile(2_000, 4 * GIB, gpu=GpuNeed(milli=500, models=("A100",))),
)


def pool(workers: int) -> WorkerTable:
    """Return a table of so many idle workers of five kinds.

    No two have the same memory and disk, as in a real pool.
    """
    table = WorkerTable()
    for number in range(workers):
        model, gib, count = GPUS[number % len(GPUS)]
        devices = [Device(str(d), "nvidia", model, gib * GIB) for d in range(count)]
        cpus = (32, 64, 128)[number % 3]
        memory, disk = 256 * GIB - number * 4_096, 1_000 * GIB - number * 4_096
        size = Capacity(cpus * 1_000, memory, disk, tuple(devices))
        path_cost_us = 50 * (number % 40)
        node = NodeId(f"n{number:06d}")
        table.put(WorkerView.idle(node, size, path_cost_us=path_cost_us))
    return table


def filled(table: WorkerTable, policy: Policy, rng: Random) -> list[TakenRoom]:
    """Place tasks until enough of the GPUs are in use."""
    held: list[TakenRoom] = []
    free = (1 - FULL) * table.grid.columns.gpu_milli_all.sum()
    while table.grid.columns.gpu_milli.sum() > free:
        for shape in rng.choices(SHAPES, k=len(table) // 10):
            held += place(shape, 1, table, policy, rng).takens
    return held


@cache
def shared_pool(workers: int) -> tuple[WorkerTable, list[TakenRoom]]:
    """Return a filled table, which takes seconds to make: each policy gets a copy."""
    table = pool(workers)
    return table, filled(table, BUILT_IN[FASTEST](), Random(SEED))


def decide(
    table: WorkerTable, held: list[TakenRoom], policy: Policy, rng: Random
) -> list[float]:
    """Make decisions; return how long each took, in microseconds."""
    spent_us: list[float] = []
    for shape in rng.choices(SHAPES, k=DECISIONS):
        which = rng.randrange(len(held))
        held[which], held[-1] = held[-1], held[which]
        ended = held.pop()
        start = time.perf_counter_ns()
        table.give(ended)
        placed = place(shape, 1, table, policy, rng)
        spent_us.append((time.perf_counter_ns() - start) / 1e3)
        held += placed.takens
    return spent_us


def measure(name: str, workers: int) -> float:
    """Print one line about one policy; return the median time of a decision."""
    policy, rng = BUILT_IN[name](), Random(SEED)
    if workers > OWN_FILL_MAX:
        table, held = shared_pool(workers)
    else:
        table = pool(workers)
        held = filled(table, policy, rng)
    gc.collect()
    gc.freeze()  # As a node does when it has started: its table stays.
    decide(table, held, policy, rng)
    began_cpu = time.process_time()
    runs = [decide(table, held, policy, rng) for _ in range(REPEATS)]
    spent_cpu_s = time.process_time() - began_cpu
    gc.unfreeze()
    spent_us = [each for run in runs for each in run]
    median_us = statistics.median(spent_us)
    line = {
        "benchmark": "placement",
        "policy": name,
        "workers": workers,
        "decisions_per_s": round(1e6 * len(spent_us) / sum(spent_us)),
        "decisions_per_cpu_s": round(len(spent_us) / spent_cpu_s),
        "best_run_per_s": round(max(1e6 * len(run) / sum(run) for run in runs)),
        "median_us": round(median_us, 2),
        "p90_us": round(statistics.quantiles(spent_us, n=10)[-1], 2),
    }
    print(json.dumps(line), flush=True)
    return median_us


def main() -> None:
    """Measure the policies named on the command line, or all of them."""
    shared_pool(WORKERS[-1])
    # A fork has the shared table as it was, whatever policies before did with theirs.
    forks = multiprocessing.get_context("fork")
    for name in sys.argv[1:] or sorted(BUILT_IN):
        with forks.Pool(1) as fork:
            medians = [fork.apply(measure, (name, workers)) for workers in WORKERS]
        growth = {
            "benchmark": "placement",
            "policy": name,
            "growth_1k_to_10k": round(medians[1] / medians[0], 2),
            "growth_10k_to_100k": round(medians[2] / medians[1], 2),
        }
        print(json.dumps(growth), flush=True)


if __name__ == "__main__":
    main()
