"""`shoal down`: end the node that runs here."""

from __future__ import annotations

import os
import signal
import time
from typing import Final

import click

from shoal.api import whereabouts
from shoal.api.client import client_of
from shoal.cli.options import json_option, quiet_option, suggest, talk
from shoal.cli.printing import echo_json
from shoal.errors import ShoalError, UnreachableError
from shoal.runtime.home import Home

END_S: Final = 30.0
LOOK_S: Final = 0.02


@click.command()
@click.option("--grace", default="0s", help="How long tasks may go on: 30s, 5m.")
@json_option
@quiet_option
def down(grace: str, as_json: bool, quiet: bool) -> None:
    """End the node that runs here, and the tasks on it.

    Tasks get SIGTERM, and their own grace to end. They run again when their jobs find
    another place; the jobs of this node go on when it starts again.
    """
    from shoal.model.units import parse_duration  # noqa: PLC0415 - Slow to import.

    grace_s = parse_duration(grace)
    home = Home.default()
    found = whereabouts.read(home)
    if found is None or not whereabouts.is_node(found.pid):
        talk("no node is running", quiet=quiet)
        if as_json:
            echo_json({"ended": False})
        return
    tasks, jobs = _ask_to_end(found, grace_s)
    _wait_for_end(home, found, END_S + grace_s)
    if as_json:
        fields = {"ended": True, "pid": found.pid, "tasks": tasks, "active_jobs": jobs}
        echo_json(fields)
        return
    talk(f"{found.petname} has ended", quiet=quiet)
    if jobs:
        text = "1 job has" if jobs == 1 else f"{jobs} jobs have"
        talk(f"{text} not finished: shoal up goes on with it", quiet=quiet)
    else:
        suggest("shoal up", quiet=quiet)


def _ask_to_end(found: whereabouts.Whereabouts, grace_s: float) -> tuple[int, int]:
    """Ask by the API, or by a signal if the node has no ear for it."""
    try:
        with client_of(found) as client:
            reply = client.shutdown(grace_s)
            return reply.tasks, reply.active_jobs
    except UnreachableError:
        if whereabouts.is_node(found.pid):
            os.kill(found.pid, signal.SIGTERM)
        return 0, 0


def _wait_for_end(home: Home, found: whereabouts.Whereabouts, timeout_s: float) -> None:
    until = time.monotonic() + timeout_s
    while whereabouts.is_node(found.pid):
        if time.monotonic() > until:
            raise ShoalError(
                f"{found.petname} (process {found.pid}) does not end",
                because=f"it was asked {timeout_s:g} s ago",
                hint=f"kill -9 {found.pid} ends it; {home.log} may say why",
            )
        time.sleep(LOOK_S)
