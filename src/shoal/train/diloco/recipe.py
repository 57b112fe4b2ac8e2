"""The recipe `diloco`: one task aggregates, the others train.

A worker runs the program that the job names, which joins in by itself (`join`).
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from shoal.errors import ShoalError
from shoal.train.curves import RunCurves
from shoal.train.diloco.aggregator import Aggregator
from shoal.train.programs import explain_and_exit, run_program
from shoal.train.settings import params_of, settings_of
from shoal.train.task_context import TaskContext


def main() -> None:
    """Run this task's role: aggregator or worker."""
    signal.signal(signal.SIGTERM, _end)
    around = TaskContext.of(os.environ)
    params = params_of(os.environ)
    settings = settings_of(params)
    if around.is_aggregator:
        exchange = around.exchange()
        curves = RunCurves(settings)
        workers = around.workers(settings.workers)
        Aggregator(
            exchange,
            settings,
            around.life,
            Path(),
            curves,
            workers,
            scheduler=around.scheduler,
        ).run()
        return
    run_program(str(params.get("program", "gpt")))


def _end(number: int, *_: object) -> None:
    """Exit on a signal with its code, so that clean-up runs."""
    sys.exit(128 + number)


if __name__ == "__main__":
    try:
        main()
    except ShoalError as error:
        explain_and_exit(error)
