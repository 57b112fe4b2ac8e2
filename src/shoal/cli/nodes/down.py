"""`shoal down`: stop the node on this machine."""

from __future__ import annotations

import os
import signal
import time
from typing import Final

import click

from shoal.api import node_file
from shoal.api import shoal_pb2 as pb
from shoal.api.client.client import client_of
from shoal.cli.display.printing import echo_json, span
from shoal.cli.display.progress import ProgressDisplay
from shoal.cli.options import json_option, quiet_option, suggest, talk
from shoal.errors import ShoalError, UnreachableError
from shoal.runtime.home import Home

END_S: Final = 30.0
LOOK_S: Final = 0.02


@click.command()
@click.option("--grace", default="0s", help="How long tasks may keep running: 30s, 5m.")
@json_option
@quiet_option
def down(grace: str, as_json: bool, quiet: bool) -> None:
    """Stop the node on this machine, and its tasks.

    Tasks get SIGTERM and their own grace period. Their jobs run them again elsewhere.
    This node's own jobs continue when it starts again.
    """
    from shoal.model.units import parse_duration  # noqa: PLC0415 - Slow to import.

    grace_s = parse_duration(grace)
    home = Home.default()
    found = node_file.read(home)
    if found is None or not node_file.is_node(found.pid):
        talk("no node is running", quiet=quiet)
        if as_json:
            echo_json({"ended": False})
        return
    ending = stop(home, found, grace_s, quiet=quiet or as_json)
    tasks, jobs = ending.tasks, ending.active_jobs
    if as_json:
        fields = {"ended": True, "pid": found.pid, "tasks": tasks, "active_jobs": jobs}
        echo_json(fields)
        return
    talk(f"{found.petname} has stopped", quiet=quiet)
    if jobs:
        text = "1 job has" if jobs == 1 else f"{jobs} jobs have"
        talk(f"{text} not finished: shoal up resumes", quiet=quiet)
    else:
        suggest("shoal up", quiet=quiet)


def stop(
    home: Home,
    found: node_file.NodeFile,
    grace_s: float,
    leaves_because: str = "",
    *,
    quiet: bool = False,
) -> pb.ShutdownReply:
    """Stop a node; return how many tasks it ran, and how many jobs have not ended.

    If it leaves its shoal, it hands jobs over and cancels all others for this reason.
    """
    ending = _ask_to_end(found, grace_s, leaves_because)
    label = "stopping, at the latest"
    with ProgressDisplay(label, quiet=quiet, unit=span) as progress:
        _wait_for_end(home, found, END_S + grace_s, progress)
    return ending


def _ask_to_end(
    found: node_file.NodeFile, grace_s: float, leaves_because: str
) -> pb.ShutdownReply:
    """Ask through the API, or with a signal if the node does not answer."""
    try:
        with client_of(found) as client:
            return client.shutdown(grace_s, leaves_because)
    except UnreachableError:
        if node_file.is_node(found.pid):
            os.kill(found.pid, signal.SIGTERM)
        return pb.ShutdownReply()


def _wait_for_end(
    home: Home,
    found: node_file.NodeFile,
    timeout_s: float,
    progress: ProgressDisplay,
) -> None:
    began = time.monotonic()
    until = began + timeout_s
    while node_file.is_node(found.pid):
        if time.monotonic() > until:
            raise ShoalError(
                f"{found.petname} (process {found.pid}) does not stop",
                because=f"it was asked {timeout_s:g} s ago",
                hint=f"kill -9 {found.pid} kills it; {home.log} may say why",
            )
        progress.told(int(time.monotonic() - began), int(timeout_s))
        time.sleep(LOOK_S)
