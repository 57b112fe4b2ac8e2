"""Say how many events the simulator handles in a second.

An event is one call of a machine's `handle`, faults, checkers and history included.
Other work on the machine only ever slows a run down, and its own speed may change:
- `events_per_s_p50` and `_p90` are what whole rounds got, disturbed as they were;
- `events_per_s_idle` counts each part at the fastest of its rounds: what an idle core
  does, as far as the rounds saw one;
- `events_per_kloop` compares runs at different times, where the rates do not: a fixed
  loop of plain Python is timed before each round.

Run: uv run python benchmarks/simulation.py >> benchmarks/results.jsonl
Compare ratios of lines from one run: machines differ, and other work disturbs.
"""

import gc
import json
import statistics
import time
from collections.abc import Callable, Sequence
from functools import partial
from operator import truediv

from shoal.sim.seeds import run_seed
from shoal.sim.showcase import competing_gangs

ROUNDS = 7
SEEDS = 40
LOOPS = 200_000

Part = Callable[[], int]
"""Runs one world to its end; returns how many events that took."""


def measured(name: str, parts: Sequence[Part], rounds: int = ROUNDS) -> None:
    """Print one line: what several rounds of all parts got."""
    rates: list[float] = []
    cpu_rates: list[float] = []
    loop_rates: list[float] = []
    fastest = [float("inf")] * len(parts)
    events = 0
    for _ in range(rounds):
        loop_rates.append(loops_per_cpu_s())
        began_cpu = time.process_time()
        took = [timed(part) for part in parts]
        cpu_s = time.process_time() - began_cpu
        events = sum(count for count, _ in took)
        rates.append(events / sum(seconds for _, seconds in took))
        cpu_rates.append(events / cpu_s)
        fastest = [min(s, t) for s, (_, t) in zip(fastest, took, strict=True)]
        gc.collect()
    line = {
        "benchmark": "simulation",
        "case": name,
        "events": events,
        "rounds": rounds,
        "events_per_s_p50": round(statistics.median(rates)),
        "events_per_s_p90": round(sorted(rates)[int(len(rates) * 0.9)]),
        "events_per_s_idle": round(events / sum(fastest)),
        "events_per_cpu_s_p50": round(statistics.median(cpu_rates)),
        "events_per_kloop": round(
            1e3 * statistics.median(map(truediv, cpu_rates, loop_rates)), 2
        ),
    }
    print(json.dumps(line))


def timed(part: Part) -> tuple[int, float]:
    """Return how many events a part took, and how many seconds."""
    began = time.perf_counter()
    return part(), time.perf_counter() - began


def loops_per_cpu_s() -> float:
    """Say how fast the machine is now: turns of a loop that never changes."""
    began_cpu = time.process_time()
    kept: dict[int, tuple[int, int]] = {}
    total = 0
    for turn in range(LOOPS):
        kept[turn & 1_023] = (turn, total)
        total += len(kept)
    return LOOPS / (time.process_time() - began_cpu)


def one_seed(seed: int) -> int:
    """Run a random world, with its faults and to its end."""
    return run_seed(seed).events


def competing() -> int:
    """Run eight schedulers that compete for gangs."""
    return competing_gangs().outcome.events


if __name__ == "__main__":
    gc.disable()
    measured("seeds-with-faults", [partial(one_seed, seed) for seed in range(SEEDS)])
    measured("competing-gangs", [competing])
