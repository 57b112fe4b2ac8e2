"""Programs to copy and change. Each is flat, and runs alone or as tasks of a job."""

import gc
import runpy
import sys
from pathlib import Path
from typing import Final

from shoal.errors import ShoalError, UsageError

PROGRAMS: Final = ("digits", "gpt", "images", "pipeline_gpt")
USAGE: Final = 2
"""The exit code of a program that was given nonsense: trying again is of no use."""

TRY_AGAIN: Final = 33
"""The exit code after which shoal starts a task, or its gang, again."""


def run_program(name: str) -> None:
    """Run a program that comes with shoal, or a file of the job's workdir."""
    try:
        _run(name)
    finally:
        # The process ends now, and its reason waits for that. To look once more through
        # all that torch has loaded, for garbage, would take a second of CPU time.
        gc.freeze()


def _run(name: str) -> None:
    if name in PROGRAMS:
        runpy.run_module(f"shoal.train.programs.{name}", run_name="__main__")
        return
    if name.endswith(".py") and Path(name).is_file():
        runpy.run_path(name, run_name="__main__")
        return
    raise UsageError(
        f"there is no program '{name}'",
        because=f"those that come with shoal are {', '.join(PROGRAMS)}",
        hint="or name a file of the workdir, such as `program: train.py`",
    )


def explain_and_exit(error: ShoalError) -> None:
    """Exit with an error that says what to do next."""
    print(f"error: {error}", file=sys.stderr)
    if error.hint:
        print(f"next:  {error.hint}", file=sys.stderr)
    sys.exit(USAGE if isinstance(error, UsageError) else 1)
