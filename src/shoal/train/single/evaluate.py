"""The recipe `eval`: measure existing weights; train nothing.

Its param `model` names a safetensors file of the workdir. The program is that by which
the model was trained; only its validation is run.
"""

from __future__ import annotations

import os

from shoal.errors import ShoalError
from shoal.train.programs import explain_and_exit, run_program
from shoal.train.settings import params_of


def main() -> None:
    """Run the program; its `join` finds that it only validates."""
    os.environ["SHOAL_RECIPE"] = "eval"
    run_program(str(params_of(os.environ).get("program", "gpt")))


if __name__ == "__main__":
    try:
        main()
    except ShoalError as error:
        explain_and_exit(error)
