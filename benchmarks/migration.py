"""Measure what gangs gain that may move to a better place.

`examples/sim/migration.yaml` runs in virtual time with several seeds: once as it is,
and once with gangs that stay where they started. Each line is one seed.

Run: python -m benchmarks.migration 8 >> benchmarks/results.jsonl
"""

from __future__ import annotations

import json
import statistics
import sys
from pathlib import Path
from typing import Any, cast

from shoal.core.scheduling import migrations
from shoal.lab.datacentre.comparison import compare
from shoal.lab.datacentre.scenario import convert, read_scenario
from shoal.lab.datacentre.settings import resolve

EXAMPLE = Path(__file__).parents[1] / "examples" / "sim" / "migration.yaml"
GANG = "train"


def measure(seed: int, moves_max: int) -> dict[str, float]:
    """Run one seed; return the mean completion of all jobs and of gangs."""
    migrations.MOVES_MAX = moves_max  # type: ignore[misc] # For comparison only.
    document = cast("dict[str, Any]", read_scenario(EXAMPLE.read_bytes()))
    settings, fabric = resolve(convert({**document, "seed": seed}), EXAMPLE.parent)
    comparison = compare(settings, fabric)
    run = comparison.runs[0]
    assert run.result.ended == run.result.jobs
    gangs = {one.job: one for one in comparison.drawn.jobs if one.kind.name == GANG}
    ends = dict.fromkeys(gangs, 0.0)
    cut = 0
    for bar in run.bars:
        if bar.job in gangs:
            ends[bar.job] = max(ends[bar.job], bar.ended)
            cut += bar.cut
    spans_s = [ends[job] - gangs[job].at_s for job in gangs]
    return {
        "moves": cut / gangs[next(iter(gangs))].kind.tasks,
        "gangs": len(gangs),
        "gangs_mean_s": round(statistics.fmean(spans_s), 1),
        "all_mean_s": round(run.result.jct_mean_s, 1),
        "messages": run.result.messages,
    }


def main() -> None:
    """Compare moving with staying, seed by seed."""
    seeds = int(sys.argv[1]) if len(sys.argv) > 1 else 8
    most = migrations.MOVES_MAX
    ratios: list[float] = []
    for seed in range(1, seeds + 1):
        staying, moving = measure(seed, 0), measure(seed, most)
        ratios.append(moving["gangs_mean_s"] / staying["gangs_mean_s"])
        line = {"benchmark": "migration", "seed": seed}
        print(json.dumps({**line, "stay": staying, "move": moving}), flush=True)
    told = {
        "benchmark": "migration, gangs that move by gangs that stay",
        "geometric_mean": round(statistics.geometric_mean(ratios), 3),
        "best": round(min(ratios), 3),
        "worst": round(max(ratios), 3),
    }
    print(json.dumps(told))


if __name__ == "__main__":
    main()
