"""Nodes and clients for tests that call functions."""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Unpack

import pytest
from tests.integration.cli_home import CliHome

import shoal
from shoal.client.options import ClientOptions
from shoal.drivers.supervisor.leftovers import VARIABLE, worker_mark

WAIT_S = 60.0


@contextmanager
def node(path: Path, *args: str) -> Iterator[CliHome]:
    """Run a node in a home of its own, which clients of this process find."""
    home = CliHome(path)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SHOAL_HOME", str(path))
        home.up("--quiet", "--without", "p2p", *args)
        try:
            yield home
        finally:
            home("down", "--quiet")


@contextmanager
def client(
    node: str | None = None, **options: Unpack[ClientOptions]
) -> Iterator[shoal.Client]:
    """Open a client that waits for nobody at the end."""
    made = shoal.Client(node, start=False, **options)
    try:
        yield made
    finally:
        made.close(wait=False)


def eventually(condition: Callable[[], bool], timeout_s: float = WAIT_S) -> None:
    """Wait until something is so."""
    until = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < until, "it never came to be so"
        time.sleep(0.02)


def active_jobs(home: CliHome) -> list[dict[str, Any]]:
    """Return the jobs that have not ended."""
    ends = ("done", "failed", "cancelled", "unknown")
    return [job for job in home.json("ps", "--all")["jobs"] if job["state"] not in ends]


def lane_pids(path: Path) -> list[int]:
    """Return the interpreters of the node in this home."""
    found: list[int] = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            command = (entry / "cmdline").read_bytes().split(b"\0")
            place = str((entry / "cwd").readlink())
            env = (entry / "environ").read_bytes()
        except OSError:
            continue
        runs_lane = any(b"lane.sock" in word for word in command)
        is_python = b"python" in Path(os.fsdecode(command[0])).name.encode()
        ours = place.startswith(str(path)) or _task_of(env, path)
        if runs_lane and is_python and ours:
            found.append(int(entry.name))
    return found


def _task_of(env: bytes, path: Path) -> bool:
    """Whether a process in a sandbox belongs to a node: it carries its mark."""
    mark = worker_mark((path / "tasks").absolute())
    return f"{VARIABLE}={mark}".encode() in env.split(b"\0")
