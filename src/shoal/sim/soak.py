"""Run many seeds on several cores, and report broken promises.

Run: python -m shoal.sim.soak --seeds 3000
"""

from __future__ import annotations

import gc
import multiprocessing
import sys
import time
from collections.abc import Iterator
from typing import Final

import click
import msgspec
from rich.progress import Progress

from shoal.sim.seeds import SeedOutcome, run_seed

CHUNK: Final = 4
FAILURES_SHOWN_MAX: Final = 20
TENTHS: Final = 10  # Without a terminal, lines take the place of a bar.


class SoakTotals(msgspec.Struct):
    """Totals of a soak."""

    seeds: int = 0
    events: int = 0
    virtual_s: float = 0.0
    failed: list[SeedOutcome] = msgspec.field(default_factory=list[SeedOutcome])

    def add(self, outcome: SeedOutcome) -> None:
        """Add one seed's outcome."""
        self.seeds += 1
        self.events += outcome.events
        self.virtual_s += outcome.virtual_s
        if outcome.violations:
            self.failed.append(outcome)


def run_seed_alone(seed: int) -> SeedOutcome:
    """Run one seed without the garbage collector, which costs a third of the time."""
    gc.disable()
    try:
        return run_seed(seed)
    finally:
        gc.enable()
        gc.collect()


def outcomes(first: int, count: int, jobs: int) -> Iterator[SeedOutcome]:
    """Run seeds from `first` on in `jobs` processes; yield each outcome."""
    seeds = range(first, first + count)
    if jobs == 1:
        yield from map(run_seed_alone, seeds)
        return
    with multiprocessing.get_context("spawn").Pool(jobs) as pool:
        yield from pool.imap_unordered(run_seed_alone, seeds, CHUNK)


@click.command()
@click.option("--seeds", default=3_000, show_default=True, help="How many to run.")
@click.option("--first", default=0, show_default=True, help="The first of them.")
@click.option("--jobs", default=2, show_default=True, help="Processes to use.")
def soak(seeds: int, first: int, jobs: int) -> None:
    """Simulate many seeds with faults; exit with 1 if one breaks a promise."""
    totals = SoakTotals()
    began = time.perf_counter()
    with Progress(disable=not sys.stderr.isatty()) as progress:
        bar = progress.add_task("seeds", total=seeds)
        for outcome in outcomes(first, seeds, jobs):
            totals.add(outcome)
            progress.update(bar, advance=1)
            if outcome.violations:
                click.echo(f"seed {outcome.seed}: {outcome.violations[0]}", err=True)
            if progress.disable and totals.seeds % max(1, seeds // TENTHS) == 0:
                spent_s = time.perf_counter() - began
                done = f"{totals.seeds} of {seeds} seeds"
                click.echo(f"{done}, {spent_s:.0f} s", err=True)
    _show(totals, time.perf_counter() - began)
    if totals.failed:
        raise SystemExit(1)


def _show(totals: SoakTotals, spent_s: float) -> None:
    print(
        f"{totals.seeds} seeds in {spent_s:.1f} s, "
        f"{totals.seeds / spent_s:.1f} seeds/s, "
        f"{totals.events / spent_s:,.0f} events/s, "
        f"{totals.virtual_s / 3600:.1f} h of virtual time"
    )
    print(f"{len(totals.failed)} seeds broke a promise")
    for outcome in sorted(totals.failed, key=lambda one: one.seed)[:FAILURES_SHOWN_MAX]:
        print(f"  seed {outcome.seed}: {outcome.violations[0]}")
        print(f"    {outcome.replay}")


if __name__ == "__main__":
    soak()
