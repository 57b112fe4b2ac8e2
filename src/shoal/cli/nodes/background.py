"""Start a node in the background and wait until it is ready or has failed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from shoal.api import node_file
from shoal.api.shoal_pb2 import NodeInfo
from shoal.cli.config.settings import current
from shoal.errors import ShoalError, StoreError, UsageError
from shoal.runtime.home import Home

if TYPE_CHECKING:
    from collections.abc import Sequence

UP: Final = (sys.executable, "-m", "shoal.cli", "up")
READY_BYTES_MAX: Final = 1 << 20
ANOTHER_READY_S: Final = 60.0
"""For a node that another command starts: a busy machine may take long for that."""

LOOK_S: Final = 0.05


class StartedNode(NamedTuple):
    """A node that is ready."""

    info: NodeInfo
    port_was_taken: bool


def start(home: Home, args: Sequence[str] = ()) -> StartedNode | None:
    """Run `shoal up` with these arguments in a session of its own.

    Returns None if somebody else has just started a node in this home. The node
    reports through a pipe that it is ready, or why it failed. It changes to another
    folder, so this project's settings are passed along.
    """
    home.prepare()
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb") as pipe:
        with home.log.open("ab") as log:
            home.log.chmod(0o600)
            subprocess.Popen(
                [*UP, *args, "--ready-fd", str(writing)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=(writing,),
                start_new_session=True,
                cwd=home.path,
                env={
                    **os.environ,
                    **current().environment(),
                    "SHOAL_HOME": str(home.path),
                },
            )
        os.close(writing)
        told = pipe.read(READY_BYTES_MAX)
    return _result(home, told)


def report_ready(descriptor: int, info: NodeInfo, *, port_was_taken: bool) -> None:
    """Tell the parent process that the node is ready."""
    fields = {"info": info.SerializeToString().hex(), "taken": port_was_taken}
    _tell(descriptor, fields)


def report_failure(descriptor: int, error: ShoalError) -> None:
    """Tell the parent process why the node failed."""
    in_use = isinstance(error, StoreError) and error.kind == "in-use"
    fields = {"what": error.what, "because": error.because, "hint": error.hint}
    fields["in_use"] = "yes" if in_use else ""
    fields["usage"] = "yes" if isinstance(error, UsageError) else ""
    _tell(descriptor, fields)


def _tell(descriptor: int, fields: dict[str, Any]) -> None:
    with os.fdopen(descriptor, "wb") as pipe:
        pipe.write(json.dumps(fields).encode())


def _result(home: Home, told: bytes) -> StartedNode | None:
    if told:
        fields: dict[str, Any] = json.loads(told)
        if "info" in fields:
            info = NodeInfo.FromString(bytes.fromhex(fields["info"]))
            return StartedNode(info, fields["taken"])
        if fields["in_use"] and _another_is_ready(home):
            return None
        kind = UsageError if fields["usage"] else ShoalError
        raise kind(fields["what"], because=fields["because"], hint=fields["hint"])
    what, because = last_words(home)
    raise ShoalError(
        f"the node ended before it was ready: {what}",
        because=because,
        hint=f"{home.log} has the details",
    )


def _another_is_ready(home: Home) -> bool:
    """Wait for a node that another process started at the same time."""
    until = time.monotonic() + ANOTHER_READY_S
    while node_file.running(home) is None:
        if time.monotonic() > until:
            return False
        time.sleep(LOOK_S)
    return True


def last_words(home: Home) -> tuple[str, str]:
    """Return the last error in the log and its reason."""
    lines = home.log.read_text(encoding="utf-8", errors="replace").split("\n")
    told = [line for line in lines if line.strip()] or ["the log is empty"]
    for place in range(len(told) - 1, max(-1, len(told) - 4), -1):
        if told[place].startswith("error: "):
            why = told[place + 1] if place + 1 < len(told) else ""
            because = why.removeprefix("why:").strip() if why[:4] == "why:" else ""
            return told[place].removeprefix("error: "), because
    return told[-1], ""
