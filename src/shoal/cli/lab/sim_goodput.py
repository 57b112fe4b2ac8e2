"""`shoal sim goodput`: elastic training jobs on GPUs of several kinds."""

from __future__ import annotations

import re
from pathlib import Path
from random import Random
from typing import Final

import click
import msgspec

from shoal.cli.display.printing import echo_json, echo_table
from shoal.cli.display.progress import ProgressDisplay
from shoal.cli.options import json_option, quiet_option, talk
from shoal.errors import UsageError, did_you_mean
from shoal.lab.elastic.allocation import POLICIES
from shoal.lab.elastic.goodput import INSIDE_BYTES_S, SIA_CLUSTER, GpuKind
from shoal.lab.elastic.jobs import JOBS_MAX, ElasticJob, draw_jobs, read_jobs
from shoal.lab.elastic.rounds import ElasticResult, replay_elastic

CLUSTER: Final = ",".join(f"{k.name}:{k.nodes}x{k.per_node}" for k in SIA_CLUSTER)
JOBS: Final = 160
HOURS: Final = 8.0
NODES_MAX: Final = 10_000
PER_NODE_MAX: Final = 64
_KIND: Final = re.compile(r"([a-z0-9]+):(\d{1,5})x(\d{1,2})", re.ASCII)


@click.command(
    short_help="Replay elastic training jobs on GPUs of several kinds.",
    help="Replay elastic training jobs on GPUs of several kinds, and compare Sia's "
    "goodput with jobs that keep to what they asked for.\n\nWORKLOAD is a CSV file as "
    "published with Sia (name,time,application,num_replicas,batch_size); without one, "
    "jobs are drawn by published shares.\n\n\b\n"
    "shoal sim goodput examples/sim/sia-philly.csv\n"
    "shoal sim goodput --jobs 300 --hours 8 --gpus t4:12x4,a100:4x8 --policy sia,fifo",
)
@click.argument("workload", required=False, type=click.Path(path_type=Path))
@click.option("--gpus", default=CLUSTER, show_default=True, help="KIND:NODESxGPUS, ...")
@click.option("--policy", default=",".join(POLICIES), show_default=True)
@click.option("--jobs", default=JOBS, show_default=True, help="Jobs to draw.")
@click.option("--hours", default=HOURS, show_default=True, help="They come in these.")
@click.option("--seed", default=1, show_default=True, help="Of what is drawn.")
@json_option
@quiet_option
def goodput(
    workload: Path | None,
    gpus: str,
    policy: str,
    jobs: int,
    hours: float,
    seed: int,
    as_json: bool,
    quiet: bool,
) -> None:
    """Replay a workload under each policy, and print the figures."""
    cluster = _cluster(gpus)
    names = _policies(policy)
    found = _drawn(jobs, hours, seed) if workload is None else read_jobs(workload)
    results: list[ElasticResult] = []
    with ProgressDisplay("replaying jobs", quiet=quiet) as progress:
        for name in names:
            before = len(results) * len(found)

            def told(ended: int, before: int = before) -> None:
                progress.told(before + ended, len(names) * len(found))

            results.append(replay_elastic(found, cluster, name, told))
    if as_json:
        rows = [msgspec.to_builtins(result) for result in results]
        echo_json({"workload": str(workload or "drawn"), "policies": rows})
        return
    headings = ["policy", "mean", "p99", "makespan", "GPU hours", "restarts", "waiting"]
    echo_table(headings, [_row(result) for result in results])
    talk(
        f"{len(found)} jobs on {sum(kind.gpus for kind in cluster)} GPUs; mean and p99 "
        "are of completion times; GPU hours and restarts are of a job, on average; "
        "waiting: jobs without any GPU, at most",
        quiet=quiet,
    )


def _row(result: ElasticResult) -> list[str]:
    return [
        result.policy,
        f"{result.completion_mean_h:.2f} h",
        f"{result.completion_p99_h:.1f} h",
        f"{result.makespan_h:.1f} h",
        f"{result.gpu_hours:.1f}",
        f"{result.restarts:.1f}",
        f"{result.waiting_max}",
    ]


def _drawn(jobs: int, hours: float, seed: int) -> list[ElasticJob]:
    if not (1 <= jobs <= JOBS_MAX and 0 < hours <= JOBS_MAX):
        raise UsageError(
            f"{jobs} jobs in {hours:g} hours cannot be drawn",
            because=f"there are from 1 to {JOBS_MAX} jobs, in more than no time",
            hint=f"write it like --jobs {JOBS} --hours {HOURS:g}",
        )
    return draw_jobs(jobs, 3_600 * hours, Random(seed))


def _policies(text: str) -> list[str]:
    names = [name.strip() for name in text.split(",")]
    for name in names:
        if name not in POLICIES:
            raise UsageError(
                f"there is no policy '{name[:32]}' for elastic jobs",
                because=f"there are {', '.join(POLICIES)}",
                hint=did_you_mean(name, POLICIES) or "`shoal sim goodput --help`",
            )
    return list(dict.fromkeys(names))


def _cluster(text: str) -> tuple[GpuKind, ...]:
    kinds: dict[str, GpuKind] = {}
    for part in text.split(","):
        found = _KIND.fullmatch(part.strip())
        name = found[1] if found is not None else ""
        nodes, each = (int(found[2]), int(found[3])) if found is not None else (0, 0)
        is_known = name in INSIDE_BYTES_S and name not in kinds
        if not is_known or not (1 <= nodes <= NODES_MAX and 1 <= each <= PER_NODE_MAX):
            raise UsageError(
                f"--gpus has '{part[:32]}'",
                because=f"each kind of GPU is there once: {', '.join(INSIDE_BYTES_S)}, "
                "with nodes and GPUs of a node",
                hint=f"write it like --gpus {CLUSTER}",
            )
        kinds[name] = GpuKind(name, nodes, each)
    return tuple(kinds.values())
