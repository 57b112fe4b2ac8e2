"""`shoal top` and `shoal monitor`: watch nodes and jobs."""

from __future__ import annotations

import os
import sys
import time
from typing import TYPE_CHECKING

import click

from shoal.api.client import client as api
from shoal.api.documents import job_fields, node_fields
from shoal.cli.display.printing import (
    echo_json,
    echo_table,
    job_cells,
    wants_colours,
)
from shoal.cli.job_input.completion_types import NODE
from shoal.cli.monitor.tables import summary
from shoal.cli.monitor.watching import look
from shoal.cli.options import json_option, node_option, suggest
from shoal.cli.terminal import echo
from shoal.errors import NotFoundError

if TYPE_CHECKING:
    from collections.abc import Callable

    from shoal.cli.monitor.watching import NodeSource, Snapshot


@click.command()
@click.option("--worker", default="", type=NODE, help="Only this node and its jobs.")
@click.option(
    "--refresh",
    "refresh_s",
    type=click.FloatRange(min=0.1),
    default=1.0,
    show_default=True,
    help="Seconds.",
)
@click.option("-1", "--once", is_flag=True, help="Print once and exit.")
@click.option(
    "--readonly", is_flag=True, help="Read-only: disable cancelling and accepting."
)
@node_option
@json_option
def monitor(
    worker: str,
    refresh_s: float,
    once: bool,
    readonly: bool,
    node: str | None,
    as_json: bool,
) -> None:
    """Watch nodes and jobs; enter opens a job with its output and curves.

    Without a terminal, or with --json, it prints one line per refresh.
    """
    with api.connect(node) as client:
        picture = look(client, worker)
        if worker and not picture.nodes:
            raise NotFoundError(
                f"there is no node '{worker}'",
                because="it has left, or the name is wrong",
                hint="`shoal nodes` lists the known nodes",
            )
        say = _say_json if as_json else _say_line
        if once and as_json:
            say(picture)
        elif once:
            _print(picture)
            suggest("shoal top", "shoal ps", "shoal nodes")
        elif as_json or not sys.stdout.isatty():
            _print_lines(client, worker, refresh_s, say)
        else:
            if not wants_colours():
                os.environ["NO_COLOR"] = "1"  # What textual looks at.
            from shoal.cli.monitor.screens import Monitor  # noqa: PLC0415 - Slow.

            app = Monitor(client, refresh_s=refresh_s, worker=worker, readonly=readonly)
            app.run()


def _print(picture: Snapshot) -> None:
    from shoal.cli.nodes.nodes import HEADINGS, row  # noqa: PLC0415 - Not for the screen.

    echo(summary(picture))
    echo()
    echo_table(HEADINGS, [row(node) for node in picture.nodes])
    if not picture.jobs:
        return
    echo()
    echo_table(
        ("JOB", "NAME", "STATE", "TASKS", "NODE", "WHY"),
        [(*cells[1:6], cells[7]) for cells in map(job_cells, picture.jobs[:20])],
    )


def _print_lines(
    source: NodeSource, worker: str, refresh_s: float, say: Callable[[Snapshot], None]
) -> None:
    while True:
        say(look(source, worker))
        sys.stdout.flush()
        time.sleep(refresh_s)


def _say_line(picture: Snapshot) -> None:
    echo(f"{time.strftime('%H:%M:%S')}  {summary(picture)}")


def _say_json(picture: Snapshot) -> None:
    echo_json(
        {
            "at_s": time.time(),
            "nodes": [node_fields(node) for node in picture.nodes],
            "jobs": [job_fields(job) for job in picture.jobs],
        }
    )
