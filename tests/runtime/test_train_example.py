"""The example of a user's own model runs by itself, as its first lines say."""

import json
import subprocess
import sys
from pathlib import Path

from safetensors.numpy import load_file

EXAMPLE = Path(__file__).parents[2] / "examples" / "own-model" / "train.py"


def test_the_example_of_an_own_model_learns_alone(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(EXAMPLE), "--rounds", "3", "--inner_steps", "40"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )

    lines = [json.loads(line) for line in done.stdout.splitlines()]
    losses = [line["validation_loss"] for line in lines if "validation_loss" in line]
    assert len(losses) == 3
    assert losses[-1] < 0.7 * losses[0]
    assert load_file(tmp_path / "out" / "model.safetensors")["0.weight"].shape == (
        32,
        2,
    )
