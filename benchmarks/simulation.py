"""Say how many events the simulator handles in a second.

An event is one call of a machine's `handle`, faults, checkers and history included.
CPU seconds are given next to seconds, because other work on the machine disturbs, and
a fixed loop of plain Python is timed before each run, because the machine's own speed
may change: `events_per_kloop` compares runs at different times, where the rates do not.

Run: uv run python benchmarks/simulation.py >> benchmarks/results.jsonl
Compare ratios of lines from one run: machines differ, and other work disturbs.
"""

import gc
import json
import statistics
import time
from collections.abc import Callable
from operator import truediv

from shoal.sim.seeds import run_seed
from shoal.sim.showcase import competing_gangs

REPEATS = 5
SEEDS = 40
LOOPS = 200_000


def measured(name: str, run: Callable[[], int], repeats: int = REPEATS) -> None:
    """Print one line: the median and the 90th percentile of several runs."""
    rates: list[float] = []
    cpu_rates: list[float] = []
    loop_rates: list[float] = []
    events = 0
    for _ in range(repeats):
        loop_rates.append(loops_per_cpu_s())
        began, began_cpu = time.perf_counter(), time.process_time()
        events = run()
        rates.append(events / (time.perf_counter() - began))
        cpu_rates.append(events / (time.process_time() - began_cpu))
        gc.collect()
    line = {
        "benchmark": "simulation",
        "case": name,
        "events": events,
        "events_per_s_p50": round(statistics.median(rates)),
        "events_per_s_p90": round(sorted(rates)[int(len(rates) * 0.9)]),
        "events_per_cpu_s_p50": round(statistics.median(cpu_rates)),
        "events_per_cpu_s_best": round(max(cpu_rates)),
        "events_per_kloop": round(
            1e3 * statistics.median(map(truediv, cpu_rates, loop_rates)), 2
        ),
    }
    print(json.dumps(line))


def loops_per_cpu_s() -> float:
    """Say how fast the machine is now: turns of a loop that never changes."""
    began_cpu = time.process_time()
    kept: dict[int, tuple[int, int]] = {}
    total = 0
    for turn in range(LOOPS):
        kept[turn & 1_023] = (turn, total)
        total += len(kept)
    return LOOPS / (time.process_time() - began_cpu)


def seeds_with_faults() -> int:
    """Run random worlds, with their faults and to their ends."""
    return sum(run_seed(seed).events for seed in range(SEEDS))


def competing() -> int:
    """Run eight schedulers that compete for gangs."""
    return competing_gangs().outcome.events


if __name__ == "__main__":
    gc.disable()
    measured("seeds-with-faults", seeds_with_faults)
    measured("competing-gangs", competing)
