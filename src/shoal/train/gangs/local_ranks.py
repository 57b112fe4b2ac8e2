"""Run a task's command as several ranks of one group, on the task's own machine.

The ranks find each other by a file, so no port can be taken by somebody else, and talk
by loopback, which a sandbox without a network has too. When one fails, all end.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from shoal.interfaces import transport_variables
from shoal.train.programs import TRY_AGAIN

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

RANK: Final = "RANK"
WORLD: Final = "WORLD_SIZE"
MEETING: Final = "SHOAL_RANKS_MEET"
"""Where the ranks of a group find each other: a file that none of them made yet."""

LOOK_S: Final = 0.1
SETTLE_S: Final = 1.0
"""How long after a rank failed the others have noticed: who has a reason counts."""

STOP_S: Final = 5.0


def is_rank(environment: Mapping[str, str]) -> bool:
    """Whether this process is a rank that `run_ranks` started."""
    return MEETING in environment


def run_ranks(count: int) -> int:
    """Run this process's own command once per rank; return the exit code."""
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        ranks = [_start(rank, count, Path(folder) / "meeting") for rank in range(count)]
        stack.callback(_stop, ranks)
        while True:
            codes = [each.poll() for each in ranks]
            if any(codes):
                time.sleep(SETTLE_S)
                return exit_code([each.poll() for each in ranks])
            if all(code == 0 for code in codes):
                return 0
            time.sleep(LOOK_S)


def exit_code(codes: Sequence[int | None]) -> int:
    """Return the code of a rank that failed, rather than of one that lost a peer."""
    failed = [code if code > 0 else 128 - code for code in codes if code]
    return min(failed, key=lambda code: code == TRY_AGAIN)


def _start(rank: int, count: int, meeting: Path) -> subprocess.Popen[bytes]:
    own = {
        RANK: str(rank),
        WORLD: str(count),
        "LOCAL_RANK": str(rank),
        MEETING: str(meeting),
        **transport_variables("127.0.0.1"),
    }
    command = [sys.executable, *sys.orig_argv[1:]]
    return subprocess.Popen(command, env={**os.environ, **own})


def _stop(ranks: Sequence[subprocess.Popen[bytes]]) -> None:
    for each in ranks:
        each.terminate()
    for each in ranks:
        try:
            each.wait(STOP_S)
        except subprocess.TimeoutExpired:  # It waits for a peer, and hears no signal.
            each.kill()
            each.wait()
