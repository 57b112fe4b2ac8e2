"""`shoal metrics`: print or export what a job's tasks reported by `shoal.log`."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from shoal.api import shoal_pb2 as pb
from shoal.api.client import client as api
from shoal.api.client.metric_export import names_in, rows, write_csv, write_parquet
from shoal.api.results import STEP, TASKS_MAX, task_name
from shoal.cli.display.printing import echo_json, echo_table
from shoal.cli.job_input.completion_types import JOB
from shoal.cli.job_input.selection import one_task
from shoal.cli.options import any_node_option, json_option, quiet_option, suggest, talk
from shoal.errors import NotFoundError, UsageError


@click.command()
@click.argument("job", default="last", type=JOB, metavar="[JOB[/TASK]]")
@click.option("--task", default="", help="Only this task, by label, number or id.")
@click.option("--csv", "as_csv", is_flag=True, help="Print every point as CSV.")
@click.option("--parquet", metavar="FILE", help="Write every point to a Parquet file.")
@any_node_option
@json_option
@quiet_option
def metrics(
    job: str,
    task: str,
    as_csv: bool,
    parquet: str | None,
    node: str | None,
    as_json: bool,
    quiet: bool,
) -> None:
    """Print the latest metrics of each task of a JOB, by default the most recent one.

    With --csv or --parquet, every report of every attempt is exported: one row for each
    call of `shoal.log`, one column for each metric. Parquet needs pyarrow.
    """
    if as_csv + bool(parquet) + as_json > 1:
        raise UsageError(
            "the metrics cannot have two forms at once",
            because="--csv, --parquet and --json exclude each other",
            hint="choose one of them",
        )
    with api.connect(node) as client:
        job, task = one_task(client, job, task)
        found = client.get(job, TASKS_MAX)
        if not as_csv and not parquet:
            _print(found.id, _latest(found, task), as_json=as_json)
            return
        names = names_in(rows(client, found.id, task))
        if not names:
            raise _none(found.id)
        if as_csv:
            write_csv(rows(client, found.id, task), names, sys.stdout)
            return
        assert parquet
        try:
            count = write_parquet(rows(client, found.id, task), names, Path(parquet))
        except OSError as error:
            raise UsageError(
                f"cannot write {parquet}",
                because=error.strerror or str(error),
                hint="choose another file",
            ) from None
    talk(f"{count} rows of {len(names)} metrics are in {parquet}", quiet=quiet)


def _latest(job: pb.Job, wanted: str) -> dict[str, dict[str, float]]:
    """Return the latest metrics of each task that reported any, by its name."""
    found: dict[str, dict[str, float]] = {}
    for place, task in enumerate(job.tasks):
        name = task.id.partition(".")[2]
        called = (task.id, name, task.label, str(place))
        if task.metrics and (not wanted or wanted in called):
            found[task_name(task)] = dict(task.metrics)
    return found


def _print(job: str, latest: dict[str, dict[str, float]], *, as_json: bool) -> None:
    if as_json:
        echo_json({"job": job, "metrics": latest})
        return
    if not latest:
        raise _none(job)
    told = {name for each in latest.values() for name in each}
    names = sorted(told, key=lambda name: (name == STEP, name))
    echo_table(
        ("TASK", *names),
        [
            (task, *(f"{each[name]:.6g}" if name in each else "" for name in names))
            for task, each in latest.items()
        ],
    )
    suggest(f"shoal metrics {job} --csv", f"shoal show {job}")


def _none(job: str) -> NotFoundError:
    return NotFoundError(
        f"job {job} has reported no metrics",
        because="none of its tasks told a number by shoal.log",
        hint='in the program: import shoal; shoal.log({"loss": loss}, step=step)',
    )
