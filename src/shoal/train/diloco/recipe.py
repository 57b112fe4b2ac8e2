"""The recipe `diloco`: one task aggregates, the others train.

A worker runs the program that the job names, which joins in by itself (`join`); with
`inner` it is a group of processes, each of which runs the program.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from shoal.errors import ShoalError
from shoal.train.diloco.aggregator import Aggregator
from shoal.train.diloco.curves import RunCurves
from shoal.train.gangs import local_ranks
from shoal.train.programs import TRY_AGAIN, explain_and_exit, run_program
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
    is_rank = around.spans or local_ranks.is_rank(os.environ)
    if settings.inner_ranks > 1 and not is_rank:
        sys.exit(local_ranks.run_ranks(settings.inner_ranks))
    _run_worker(str(params.get("program", "gpt")), is_rank=is_rank)


def _run_worker(program: str, *, is_rank: bool) -> None:
    """Run the program; a rank that lost a peer ends so that its worker starts again."""
    try:
        run_program(program)
    except RuntimeError as error:
        if not is_rank:
            raise
        # torch is there already; the aggregator, which needs none, never comes here.
        from shoal.train.gangs import lost_peers  # noqa: PLC0415

        if not lost_peers.is_lost_peer(error):
            raise
        why = f"a rank of this worker is lost: {error}"
        if not local_ranks.is_rank(os.environ):
            lost_peers.end_to_try_again(why)
        print(f"error: {why}", file=sys.stderr)
        sys.exit(TRY_AGAIN)


def _end(number: int, *_: object) -> None:
    """Exit on a signal with its code, so that clean-up runs."""
    sys.exit(128 + number)


if __name__ == "__main__":
    try:
        main()
    except ShoalError as error:
        explain_and_exit(error)
