"""Recognise a trace format by content, and read any of them as jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from shoal.errors import TraceError
from shoal.lab.traces import batsim, llm_requests, openb, philly, training
from shoal.lab.traces.csv_columns import ColumnMap, mapped_jobs
from shoal.lab.traces.swf import FIELDS, SwfFile
from shoal.lab.traces.trace_files import heading
from shoal.lab.traces.values import Trace, TraceJob

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

Format: TypeAlias = Literal[
    "swf",
    "openb-hosts",
    "openb-pods",
    "training",
    "cluster",
    "philly",
    "philly-json",
    "batsim",
    "requests",
]

HEADINGS: Final[tuple[tuple[Format, tuple[str, ...]], ...]] = (
    ("openb-pods", openb.POD_COLUMNS),
    ("openb-hosts", openb.HOST_COLUMNS),
    ("training", training.COLUMNS),
    ("cluster", training.CLUSTER_COLUMNS),
    ("philly", philly.COLUMNS),
    ("requests", llm_requests.COLUMNS),
)


def format_of(path: Path) -> Format:
    """Tell the format of a file from how it begins."""
    first = heading(path)
    if first.startswith("["):
        return "philly-json"
    if first.startswith("{"):
        return "requests" if llm_requests.is_mooncake(first) else "batsim"
    if first.startswith(";") or _are_numbers(first.split()):
        return "swf"
    names = [name.strip() for name in first.split(",")]
    for format_, columns in HEADINGS:
        if all(column in names for column in columns):
            return format_
    raise TraceError(
        "this is no format that shoal knows",
        file=str(path),
        line=1,
        because=f"it begins with '{first[:60]}'",
        hint="any CSV can be read with a column map: "
        "--columns submitted=a,run=b,slots=c",
    )


def _are_numbers(words: list[str]) -> bool:
    try:
        return len([float(word) for word in words]) == FIELDS
    except ValueError:
        return False


def read_jobs(path: Path, columns: ColumnMap | None = None) -> Trace:
    """Read a file of any format as jobs, sorted by when they came.

    Jobs that never ran or had no processors are left out. Pods and requests become
    jobs, too: pods live from their creation to their deletion.
    """
    if columns is not None:
        return _trace(path, mapped_jobs(path, columns))
    match format_of(path):
        case "swf":
            file = SwfFile(path)
            jobs = list(file.jobs())
            return _trace(path, jobs, file.slots())
        case "training":
            return _trace(path, training.training_jobs(path))
        case "philly":
            return _trace(path, philly.flat_jobs(path))
        case "philly-json":
            return _trace(path, philly.original_jobs(path))
        case "batsim":
            trace = batsim.read(path)
            return _trace(path, trace.jobs, trace.slots)
        case "requests":
            found = enumerate(llm_requests.requests(path))
            return _trace(path, (llm_requests.as_job(n, r) for n, r in found))
        case "openb-pods":
            return _trace(path, _pods_as_jobs(path))
        case "openb-hosts" | "cluster" as other:
            raise TraceError(
                "there are no jobs in this file",
                file=str(path),
                because=f"its format is {other}",
                hint="give it as --cluster, and a file of jobs to replay on it",
            )


def _trace(path: Path, jobs: Iterable[TraceJob], slots: int = 0) -> Trace:
    kept = [job for job in jobs if job.run_s > 0 and job.slots > 0]
    kept.sort(key=lambda job: job.submitted_s)
    return Trace(name=path.name, jobs=tuple(kept), slots=slots)


def _pods_as_jobs(path: Path) -> Iterable[TraceJob]:
    for pod in openb.pods(path):
        run_s = pod.deleted_s - pod.created_s
        yield TraceJob(
            id=pod.name,
            submitted_s=pod.created_s,
            run_s=run_s,
            requested_s=run_s,
            slots=pod.gpus,
        )
