"""Read training jobs as the simulators of Tiresias and Muri do."""

from __future__ import annotations

from itertools import chain, islice
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from shoal.errors import TraceError
from shoal.lab.traces.trace_files import TraceFields, rows
from shoal.lab.traces.values import Cluster, TraceJob

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

COLUMNS: Final = ("job_id", "num_gpu", "submit_time", "iterations", "duration")
CLUSTER_COLUMNS: Final = ("num_switch", "num_node_p_switch", "num_gpu_p_node")
STAGES_MAX: Final = 3
SAMPLE: Final = 32
"""Rows that are looked at to see what unit the times are in."""

TimeUnit: TypeAlias = Literal["ms", "s"]


def training_jobs(path: Path, unit: TimeUnit | None = None) -> Iterator[TraceJob]:
    """Read the jobs; times are in `unit`, or in what the first rows suggest."""
    found = rows(path, COLUMNS)
    first = list(islice(found, SAMPLE))
    per_s = 1_000.0 if (unit or _unit_of(first)) == "ms" else 1.0
    for row in chain(first, found):
        duration_s = row.number("duration") / per_s
        stages = [row.text(f"resource_time_{n}") for n in range(STAGES_MAX)]
        yield TraceJob(
            id=row.text("job_id"),
            submitted_s=row.number("submit_time") / per_s,
            run_s=duration_s,
            requested_s=duration_s,
            slots=row.whole("num_gpu", least=1),
            model=row.text("model_name"),
            steps=row.whole("iterations", least=0),
            step_ms=row.number("iteration_time", 0.0),
            stages_ms=tuple(row.number(f"resource_time_{n}") for n in range(STAGES_MAX))
            if all(stages)
            else (),
        )


def _unit_of(sample: list[TraceFields]) -> TimeUnit:
    """Derive the work of jobs from their run times and step times."""
    votes = 0
    for row in sample:
        step_ms = row.number("iteration_time", 0.0)
        steps, duration = row.number("iterations"), row.number("duration")
        if step_ms > 0 and steps > 0 and duration > 0:
            # About 1 if the duration is in ms, and about 1,000 if it is in seconds.
            votes += 1 if steps * step_ms < 30 * duration else -1
    return "ms" if votes > 0 else "s"


def cluster(path: Path) -> Cluster:
    """Read the one row that describes a cluster."""
    found = list(rows(path, CLUSTER_COLUMNS))
    if len(found) != 1:
        raise TraceError(
            f"{len(found)} rows, and a cluster is described in one", file=str(path)
        )
    row = found[0]
    return Cluster(
        switches=row.whole("num_switch", least=1),
        hosts_per_switch=row.whole("num_node_p_switch", least=1),
        gpus_per_host=row.whole("num_gpu_p_node", least=1),
    )
