"""Run programs in forks of one process that has loaded torch.

To load torch and its compiler takes each program three seconds. Everything else a
program has for itself: its process, directory, environment and files.
"""

import os
import select
import time
from pathlib import Path
from typing import NamedTuple

from tests.integration import forked_shoal
from tests.integration.forked_shoal import ForkedShoal

LOADED = (
    *("torch._dynamo", "torch.distributed.pipelining", "torch.distributed.fsdp"),
    *("sklearn.datasets", "safetensors.torch", "shoal.train.join"),
)


class Program(NamedTuple):
    """A module to run as `python -m` would, and where its output goes."""

    module: str
    folder: Path
    env: dict[str, str]
    out: Path
    err: Path


def start(program: Program) -> ForkedShoal:
    """Start a program, which writes behind what its files have."""
    env = {**os.environ, **program.env}
    with (
        Path(os.devnull).open("rb") as nothing,
        program.out.open("ab") as out,
        program.err.open("ab") as err,
    ):
        files = (nothing, out, err)
        return forked_shoal.start(
            LOADED, (), env, files, cwd=program.folder, program=program.module
        )


def run_all(programs: list[Program], timeout_s: float) -> list[int | None]:
    """Run programs at the same time; return their exit codes.

    When one fails, or when the time is up, the others are killed.
    """
    until = time.monotonic() + timeout_s
    running = [start(program) for program in programs]
    while alive := [each for each in running if each.poll() is None]:
        left_s = max(0.0, until - time.monotonic())
        in_time = select.select(alive, [], [], left_s)[0]
        if not in_time or any(each.poll() for each in running):
            for each in alive:
                each.kill()
                each.wait()
    return [each.returncode for each in running]
