"""Read Batsim workloads: one JSON object of jobs and the profiles they name."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final, cast

from shoal.errors import TraceError
from shoal.lab.traces.trace_files import opened
from shoal.lab.traces.values import Trace, TraceJob

if TYPE_CHECKING:
    from pathlib import Path

BYTES_MAX: Final = 1 << 30
FLOPS: Final = 1e9
"""Work of a host per second, for profiles that say how much there is to do."""


def read(path: Path) -> Trace:
    """Read a workload. Jobs with a `delay` take that long; others by their work.

    A profile of another kind counts as long as its job's wall time.
    """
    with opened(path) as text:
        whole = text.read(BYTES_MAX)
    try:
        document = cast("dict[str, Any]", json.loads(whole))
    except (ValueError, RecursionError) as error:
        line = getattr(error, "lineno", 0)
        raise TraceError(
            "this is no JSON", file=str(path), line=line, because=str(error)
        ) from error
    try:
        profiles = cast("dict[str, dict[str, Any]]", document["profiles"])
        jobs = tuple(_job(item, profiles) for item in document["jobs"])
        slots = int(document.get("nb_res", 0))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise TraceError(
            "this is no workload of Batsim",
            file=str(path),
            because=f"{type(error).__name__}: {error}",
            hint="it has jobs with id, subtime, res and profile, and the profiles",
        ) from error
    return Trace(name=path.name, jobs=jobs, slots=slots)


def _job(item: dict[str, Any], profiles: dict[str, dict[str, Any]]) -> TraceJob:
    walltime_s = float(item.get("walltime", -1))
    profile = profiles[item["profile"]]
    run_s = walltime_s
    if profile["type"] == "delay":
        run_s = float(profile["delay"])
    elif "cpu" in profile and not isinstance(profile["cpu"], list):
        run_s = float(profile["cpu"]) / FLOPS
    return TraceJob(
        id=str(item["id"]),
        submitted_s=float(item["subtime"]),
        run_s=run_s,
        requested_s=walltime_s if walltime_s > 0 else run_s,
        slots=int(item["res"]),
    )
