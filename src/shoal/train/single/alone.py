"""The recipe `train`: one task, no peers.

Such a task names a model and a data set that are not here, so it trains the program
that needs no download, with the settings that both know: batch_size, learning_rate and
epochs. What is left over is said, and changes nothing.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any, Final

from shoal.errors import ShoalError
from shoal.train.programs import explain_and_exit, run_program
from shoal.train.settings import TrainSettings, params_of

OURS: Final = {
    "batch_size": "batch",
    "learning_rate": "lr",
    "epochs": "rounds",
}
FOREIGN: Final = ("model", "dataset", "optimizer", "momentum", "weight_decay")
STEPS_PER_EPOCH: Final = 45
"""Batches of 32 in the digits that are trained on."""


def main() -> None:
    """Translate the params of older task formats, and run the program."""
    params = params_of(os.environ)
    if "program" not in params:
        params = translated(params)
        os.environ["SHOAL_PARAMS"] = json.dumps(params)
    run_program(str(params["program"]))


def translated(params: dict[str, Any]) -> dict[str, Any]:
    """Return params in the words of the built-in program."""
    known = {
        "seed",
        "batch",
        "width",
        "lr",
        "threads",
        *TrainSettings.__struct_fields__,
    }
    kept: dict[str, Any] = {"program": "digits", "inner_steps": STEPS_PER_EPOCH}
    left_out: list[str] = []
    for name, value in params.items():
        own = OURS.get(name, name)
        if own in known and name not in FOREIGN:
            kept[own] = value
        else:
            left_out.append(f"{name}={value}")
    if left_out:
        print(f"not used by this program: {', '.join(left_out)}", file=sys.stderr)
    return kept


if __name__ == "__main__":
    try:
        main()
    except ShoalError as error:
        explain_and_exit(error)
