"""The recipe `train`: one task, no peers.

A task with several GPUs runs one process for each of them, and they share each batch.
"""

from __future__ import annotations

import json
import os
import sys

from shoal.errors import ShoalError
from shoal.task_words import IMAGES, translated
from shoal.train.gangs import local_ranks
from shoal.train.programs import explain_and_exit, run_program
from shoal.train.settings import params_of


def main() -> None:
    """Translate the params of older task formats, and run the program."""
    params = translated(params_of(os.environ))
    program = str(params["program"])
    os.environ["SHOAL_PARAMS"] = json.dumps(params)
    ranks = int(os.environ.get("GPUS_PER_NODE", "1"))
    if program == IMAGES and ranks > 1 and not local_ranks.is_rank(os.environ):
        sys.exit(local_ranks.run_ranks(ranks))
    run_program(program)


if __name__ == "__main__":
    try:
        main()
    except ShoalError as error:
        explain_and_exit(error)
