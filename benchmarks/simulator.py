"""Say how many events the simulator of data centres handles in a second.

An event is one call of a machine's `handle`: the history, the fabric, the flows and
the counting of messages are included. Each case is a leaf-spine fabric on which every
host is a scheduler and a worker; jobs come for half a minute of virtual time. CPU
seconds are given next to seconds, because other work on the machine disturbs. Each
case runs in a process of its own, so that its memory is its own.

Run: uv run python benchmarks/simulator.py >> benchmarks/results.jsonl
One case: uv run python benchmarks/simulator.py 10000
Compare ratios of lines from one run: machines differ, and other work disturbs.
"""

import json
import resource
import subprocess
import sys
import time
from pathlib import Path

from shoal.lab.datacentre.comparison import compare
from shoal.lab.datacentre.scenario import convert
from shoal.lab.datacentre.settings import resolve
from shoal.model.spec.documents import Plain

CASES = {100: (4, 10, 10), 1_000: (8, 50, 20), 10_000: (16, 250, 40)}
"""Hosts, and the spines, leaves and hosts under each leaf that make them."""

SPAN_S = 30
JOBS_PER_HOST = 0.05


def measured(hosts: int) -> dict[str, object]:
    """Run one case in this process."""
    spines, leaves, under = CASES[hosts]
    document: Plain = {
        "fabric": {"spines": spines, "leaves": leaves, "hosts": under},
        "jobs": {
            "arrivals": f"poisson:{round(hosts * JOBS_PER_HOST)}",
            "over": f"{SPAN_S}s",
            "mix": [
                {"name": "small", "weight": 4, "run": "10s..30s", "stage": "1GB"},
                {
                    "name": "gang",
                    "tasks": 8,
                    "gang": True,
                    "run": "20s..40s",
                    "allreduce": "200MB",
                },
            ],
        },
        "gossip": {"overlay": "random", "known": 256},
        "until": f"{SPAN_S + 15}s",
    }
    began = time.perf_counter()
    settings, fabric = resolve(convert(document), Path())
    (run,) = compare(settings, fabric).runs
    figures, result = run.figures, run.result
    return {
        "benchmark": "simulator",
        "case": f"{hosts} hosts",
        "events": figures.events,
        "virtual_s": round(figures.virtual_s),
        "events_per_s": round(figures.events / figures.wall_s),
        "events_per_cpu_s": round(figures.events / figures.cpu_s),
        "whole_s": round(time.perf_counter() - began, 1),
        "memory_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10,
        "jobs": result.jobs,
        "ended": result.ended,
        "wait_p95_s": round(result.wait_p95_s, 3),
        "history": result.history,
    }


if __name__ == "__main__":
    if len(sys.argv) > 1:
        print(json.dumps(measured(int(sys.argv[1]))))
    else:
        for size in CASES:
            subprocess.run([sys.executable, __file__, str(size)], check=True)
