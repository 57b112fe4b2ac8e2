"""Run programs in forks of one process that has loaded torch.

To load torch and its compiler takes each program three seconds. Everything else a
program has for itself: its process, directory, environment and files.
"""

import multiprocessing
import os
import runpy
from multiprocessing.connection import wait
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import NamedTuple

LOADED = ["torch._dynamo", "torch.distributed", "sklearn.datasets"]


class Program(NamedTuple):
    """A module to run as `python -m` would, and where its output goes."""

    module: str
    folder: Path
    env: dict[str, str]
    out: Path
    err: Path


def run_all(programs: list[Program], timeout_s: float) -> list[int | None]:
    """Run programs at the same time; return their exit codes.

    When one fails, or when the time is up, the others are killed.
    """
    forks = multiprocessing.get_context("forkserver")
    forks.set_forkserver_preload(LOADED)
    running = [forks.Process(target=run, args=(program,)) for program in programs]
    for process in running:
        process.start()
    while alive := [each.sentinel for each in running if each.is_alive()]:
        in_time = wait(alive, timeout_s)
        if not in_time or any(each.exitcode for each in running):
            _kill(running)
    return [process.exitcode for process in running]


def _kill(running: list[ForkServerProcess]) -> None:
    for process in running:
        process.kill()
        process.join()


def run(program: Program) -> None:
    """Become this program."""
    os.chdir(program.folder)
    os.environ.update(program.env)
    for path, descriptor in ((program.out, 1), (program.err, 2)):
        with path.open("ab") as file:
            os.dup2(file.fileno(), descriptor)
    runpy.run_module(program.module, run_name="__main__", alter_sys=True)
