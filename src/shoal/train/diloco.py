"""The recipe `diloco`: one task aggregates, the others train.

A worker runs the program that the job names, which joins in by itself (`join`).
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from shoal.errors import ShoalError
from shoal.train.aggregator import Aggregator
from shoal.train.curves import Curves
from shoal.train.programs import explain_and_exit, run_program
from shoal.train.settings import params_of, settings_of
from shoal.train.surroundings import Surroundings


def main() -> None:
    """Be what this task is to be."""
    signal.signal(signal.SIGTERM, _end)
    around = Surroundings.of(os.environ)
    params = params_of(os.environ)
    settings = settings_of(params)
    if around.is_aggregator:
        exchange = around.exchange()
        curves = Curves(settings)
        workers = around.workers(settings.workers)
        Aggregator(exchange, settings, around.life, Path(), curves, workers).run()
        return
    run_program(str(params.get("program", "gpt")))


def _end(number: int, *_: object) -> None:
    """Leave in good order when told to stop."""
    sys.exit(128 + number)


if __name__ == "__main__":
    try:
        main()
    except ShoalError as error:
        explain_and_exit(error)
