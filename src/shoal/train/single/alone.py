"""The recipe `train`: one task, no peers.

Such a task names a model and a data set that are not here, so it trains the program
that needs no download, with the settings that both know: batch_size, learning_rate and
epochs. What is left over is said, and changes nothing.
"""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING, Any, Final

from shoal.errors import ShoalError
from shoal.train.programs import explain_and_exit, run_program
from shoal.train.settings import TrainSettings, params_of

if TYPE_CHECKING:
    from collections.abc import Mapping

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
        params, left_out = translated(params)
        os.environ["SHOAL_PARAMS"] = json.dumps(params)
        if left_out:
            said = ", ".join(f"{name}={value}" for name, value in left_out.items())
            print(f"not used by this program: {said}", file=sys.stderr)
    run_program(str(params["program"]))


def translated(params: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return params in the words of the built-in program, and what is left over."""
    known = {
        "seed",
        "batch",
        "width",
        "lr",
        "threads",
        *TrainSettings.__struct_fields__,
    }
    kept: dict[str, Any] = {"program": "digits", "inner_steps": STEPS_PER_EPOCH}
    left_out: dict[str, Any] = {}
    for name, value in params.items():
        own = OURS.get(name, name)
        if own in known and name not in FOREIGN:
            kept[own] = value
        else:
            left_out[name] = value
    return kept, left_out


if __name__ == "__main__":
    try:
        main()
    except ShoalError as error:
        explain_and_exit(error)
