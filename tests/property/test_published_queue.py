"""Batch queues against RLScheduler's, written anew: every start of every job is equal.

Workloads are those of Lublin and Feitelson, on a grid of seconds, minutes or hours, so
that jobs come, end and are promised room at the same moments.
"""

from pathlib import Path
from random import Random

import pytest
from tests.property.published_queue import KEYS, PublishedQueue, read

from shoal.lab.replay.protocols import rlscheduler, rlscheduler_jobs
from shoal.lab.traces.lublin import LublinShape, Requests, lublin_jobs
from shoal.lab.traces.swf import SwfFile

SEEDS = 40
JOBS = 60
SOAK_SEEDS = range(1_000, 1_400)
SOAK_JOBS = 1_024
SLOTS = (16, 32, 64, 100, 128, 240, 256, 400)
PER_NODE = (1, 1, 1, 2, 4)
TICKS_S = (1, 60, 600, 3_600)
LOADS = (0.6, 0.75, 0.9, 1.1)
REQUESTS: tuple[Requests, ...] = (
    "exact",
    "exact",
    "close",
    "loose",
    "usual",
    "longest",
    "short",
)


def trace(rng: Random, count: int, *, tidy: bool) -> str:
    """Make up an SWF file; an untidy one has late, empty and unsorted jobs."""
    slots, per_node = rng.choice(SLOTS), rng.choice(PER_NODE)
    tick = rng.choice(TICKS_S)

    def on_grid(time_s: float) -> int:
        return max(tick, round(time_s / tick) * tick)

    rows: list[list[int]] = []
    shape = LublinShape(rng.choice(LOADS), rng.choice(REQUESTS))
    for number, job in enumerate(lublin_jobs(count, slots, rng, shape), 1):
        submit = round(job.submitted_s / tick) * tick
        run, request = on_grid(job.run_s), on_grid(job.requested_s)
        if job.requested_s == job.run_s:
            request = -1
        if not tidy:
            submit = max(0, submit - rng.choice((*[0] * 10, 1, tick, 5 * tick)))
            run = 0 if rng.random() < 0.02 else run
        wanted = [job.slots, -1, -1, -1, request]
        rows.append([number, submit, -1, run, *wanted, *[-1] * 9])
    if not tidy:
        rng.shuffle(rows)
    heading = [f"; MaxProcs: {slots}", f"; MaxNodes: {slots // per_node}"]
    return "\n".join([*heading, *(" ".join(map(str, row)) for row in rows)]) + "\n"


def assert_equal_starts(path: Path, text: str, name: str, *, backfill: bool) -> None:
    path.write_text(text)
    file = SwfFile(path)
    jobs = rlscheduler_jobs(file.jobs())
    theirs, slots, nodes = read(text)

    ours = rlscheduler(jobs, file.slots(), name, backfill=backfill, nodes=file.nodes())
    PublishedQueue(theirs, slots, nodes, backfill=backfill).serve(KEYS[name])

    assert ours.started_s.tolist() == [job.start for job in theirs]


@pytest.mark.parametrize("backfill", [False, True])
@pytest.mark.parametrize("name", KEYS)
def test_every_job_starts_when_the_published_simulator_starts_it(
    name: str, backfill: bool, tmp_path: Path
) -> None:
    for seed in range(SEEDS):
        text = trace(Random(seed), JOBS, tidy=seed % 2 == 0)

        assert_equal_starts(tmp_path / "trace.swf", text, name, backfill=backfill)


@pytest.mark.soak
@pytest.mark.parametrize("backfill", [False, True])
@pytest.mark.parametrize("name", KEYS)
def test_long_workloads_start_as_in_the_published_simulator(
    name: str, backfill: bool, tmp_path: Path
) -> None:
    for seed in SOAK_SEEDS:
        text = trace(Random(seed), SOAK_JOBS, tidy=seed % 2 == 0)

        assert_equal_starts(tmp_path / "trace.swf", text, name, backfill=backfill)


def test_of_jobs_that_end_together_the_one_with_the_earlier_request_ends_first(
    tmp_path: Path,
) -> None:
    """Its two slots let the last job pass; the other's one slot would have not."""
    late, soon, long = (10, 15, 1), (10, 10, 2), (40, 40, 1)
    picked, three, two = (5, 5, 4), (5, 5, 3), (5, 5, 2)
    rows = [
        [number, 1, -1, run, slots, -1, -1, -1, request, *[-1] * 9]
        for number, (run, request, slots) in enumerate(
            (late, soon, long, picked, three, two), 1
        )
    ]
    text = "\n".join(["; MaxProcs: 4", *(" ".join(map(str, row)) for row in rows)])
    theirs, slots, nodes = read(text)

    PublishedQueue(theirs, slots, nodes, backfill=True).serve(KEYS["fcfs"])

    assert [job.start for job in theirs] == [1, 1, 1, 41, 16, 11]
    assert_equal_starts(tmp_path / "trace.swf", text, "fcfs", backfill=True)
