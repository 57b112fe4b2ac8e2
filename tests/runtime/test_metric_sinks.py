"""Metrics arrive in the real services, offline; `make test-integrations`."""

import importlib
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

TIMEOUT_S = 180
EVENTS = "tensorboard.backend.event_processing"
PROGRAM = """
import shoal
for step in range(1, 4):
    shoal.log({"loss": 1.0 / step}, step=step)
print("trained")
"""


def absent(module: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(
        find_spec(module) is None,
        reason=f"{module} is not installed: `make test-integrations`",
    )


def run(folder: Path, sink: str, **variables: str) -> subprocess.CompletedProcess[str]:
    env = {n: v for n, v in os.environ.items() if not n.startswith("SHOAL_")}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", PROGRAM],
        cwd=folder,
        env={**env, "SHOAL_SINKS": sink, "SHOAL_TASK_ID": "j.main.0", **variables},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "trained"
    return done


@absent("tensorboard")
def test_tensorboard_has_every_step(tmp_path: Path) -> None:
    run(tmp_path, "tensorboard")

    module = importlib.import_module(f"{EVENTS}.event_accumulator")
    found = module.EventAccumulator(str(tmp_path / "out/tensorboard/j.main.0"))
    found.Reload()
    scalars = [(each.step, each.value) for each in found.Scalars("loss")]
    assert scalars == [(1, 1.0), (2, 0.5), (3, pytest.approx(1 / 3))]


@absent("mlflow")
def test_mlflow_has_every_step(tmp_path: Path) -> None:
    store = (tmp_path / "runs").as_uri()

    run(tmp_path, "mlflow", MLFLOW_TRACKING_URI=store, MLFLOW_ALLOW_FILE_STORE="true")

    [path] = (tmp_path / "runs").glob("*/*/metrics/loss")
    steps = [int(line.split()[2]) for line in path.read_text().splitlines()]
    assert steps == [1, 2, 3]


@absent("wandb")
def test_wandb_has_a_finished_offline_run(tmp_path: Path) -> None:
    done = run(tmp_path, "wandb", WANDB_MODE="offline", WANDB_SILENT="true")

    [path] = (tmp_path / "wandb").glob("offline-run-*/*.wandb")
    data = path.read_bytes()
    assert b"loss" in data
    assert b"j.main.0" in data
    assert "gets no metrics" not in done.stderr


def test_a_sink_that_is_not_installed_is_said_and_training_goes_on(
    tmp_path: Path,
) -> None:
    done = run(tmp_path, "wandb,nonsense", PYTHONPATH=str(without(tmp_path, "wandb")))

    assert "shoal: wandb gets no metrics: ImportError: not here" in done.stderr
    assert "shoal: nonsense gets no metrics" in done.stderr


def without(folder: Path, module: str) -> Path:
    """Return a folder in which a module of this name cannot be imported."""
    place = folder / "lib"
    place.mkdir()
    (place / f"{module}.py").write_text("raise ImportError('not here')\n")
    return place
