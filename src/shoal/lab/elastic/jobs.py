"""Elastic training jobs: read from a file as published with Sia, or drawn."""

from __future__ import annotations

import csv
from typing import TYPE_CHECKING, Final, NamedTuple

from shoal.errors import UsageError
from shoal.lab.elastic.goodput import PROGRAMS

if TYPE_CHECKING:
    from pathlib import Path
    from random import Random

COLUMNS: Final = ("name", "time", "application", "num_replicas", "batch_size")
FILE_BYTES_MAX: Final = 16 << 20
JOBS_MAX: Final = 100_000

SHARES: Final = {
    "cifar10": 1_314,
    "deepspeech2": 100,
    "bert": 70,
    "yolov3": 70,
    "imagenet": 46,
}
"""How many of 1,600 jobs drawn from Helios (Saturn) trained each, as published."""

RIGID: Final = {
    "cifar10": ((6, 2_048), (8, 2_048), (12, 4_096), (16, 4_096)),
    "deepspeech2": ((6, 320), (8, 320), (12, 640)),
    "bert": ((6, 384), (8, 384), (12, 384), (16, 384)),
    "yolov3": ((4, 64),),
    "imagenet": ((10, 1_600), (14, 3_200)),
}
"""GPUs and batch that the published jobs ask for where they are not elastic."""


class ElasticJob(NamedTuple):
    """One job: when it comes, what it trains, and what it asks for if it must."""

    name: str
    at_s: float
    program: str
    gpus: int
    batch: int


def read_jobs(path: Path) -> list[ElasticJob]:
    """Read a workload of Sia's; raise `UsageError` if it is none."""
    if not path.is_file():
        raise _wrong(path, "there is no such file")
    if path.stat().st_size > FILE_BYTES_MAX:
        raise _wrong(path, "it has more than 16 MB")
    try:
        with path.open(encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file))
    except (UnicodeDecodeError, csv.Error) as error:
        raise _wrong(path, str(error)) from None
    if not rows or not set(COLUMNS) <= set(rows[0]):
        raise _wrong(path, f"it lacks the columns {', '.join(COLUMNS)}")
    jobs = [_job(path, line, row) for line, row in enumerate(rows, 2)]
    if len(jobs) > JOBS_MAX or len({job.name for job in jobs}) < len(jobs):
        raise _wrong(path, f"names are not unique, or there are over {JOBS_MAX} jobs")
    return sorted(jobs, key=lambda job: job.at_s)


def _job(path: Path, line: int, row: dict[str, str]) -> ElasticJob:
    try:
        at_s = float(row["time"])
        gpus, batch = int(row["num_replicas"]), int(row["batch_size"])
    except (TypeError, ValueError) as error:
        raise _wrong(path, f"line {line}: {error}") from None
    if row["application"] not in PROGRAMS:
        known = ", ".join(PROGRAMS)
        raise _wrong(path, f"line {line}: application is one of {known}")
    if not 0 <= at_s < 1e9 or gpus < 1 or batch < gpus:
        raise _wrong(path, f"line {line}: a time, GPUs, or a batch that cannot be")
    return ElasticJob(row["name"], at_s, row["application"], gpus, batch)


def draw_jobs(count: int, over_s: float, rng: Random) -> list[ElasticJob]:
    """Draw jobs by the published shares, coming at random times."""
    times = sorted(rng.uniform(0.0, over_s) for _ in range(count))
    programs = rng.choices(list(SHARES), weights=list(SHARES.values()), k=count)
    return [
        ElasticJob(f"{program}-{number}", at_s, program, *rng.choice(RIGID[program]))
        for number, (at_s, program) in enumerate(zip(times, programs, strict=True))
    ]


def _wrong(path: Path, because: str) -> UsageError:
    return UsageError(
        f"{path.name} cannot be replayed",
        because=because,
        hint="it is a CSV file such as examples/sim/sia-philly.csv",
    )
