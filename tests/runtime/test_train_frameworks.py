"""Scripts for other libraries train together, with the real libraries.

They are large, so `make setup` does not install them: `make test-integrations` does.
"""

import ast
import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

EXAMPLES = Path(__file__).parents[2] / "examples"
FRAMEWORKS = {
    "accelerate": "accelerate",
    "hugging-face": "transformers",
    "lightning": "lightning",
}
TIMEOUT_S = 300
WORKERS = 2
PARAMS = {"rounds": 3, "inner_steps": 20, "gather": 120, "silence": 120}


def absent(module: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(
        find_spec(module) is None,
        reason=f"{module} is not installed: `make test-integrations`",
    )


with_each = pytest.mark.parametrize(
    "folder",
    [pytest.param(f, marks=absent(module)) for f, module in FRAMEWORKS.items()],
)


def started(
    folder: Path, script: Path, name: str, index: int, **params: object
) -> subprocess.Popen[str]:
    """Start one task of a job whose tasks meet in a folder."""
    work = folder / name
    work.mkdir()
    given = {"program": str(script), "workers": WORKERS, "quorum": WORKERS}
    env = {
        **os.environ,
        "SHOAL_RECIPE": "diloco",
        "SHOAL_EXCHANGE": str(folder / "exchange"),
        "SHOAL_JOB_ID": "j",
        "SHOAL_TASK_ID": f"j.{name}",
        "SHOAL_TASK_INDEX": str(index),
        "SHOAL_PARAMS": json.dumps({**given, **PARAMS, **params}),
        "OMP_NUM_THREADS": "1",
        "HF_HUB_OFFLINE": "1",
    }
    return subprocess.Popen(
        [sys.executable, "-m", "shoal.train.diloco.recipe"],
        cwd=work,
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def lines_of(out: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in out.splitlines() if line.startswith('{"')]


def evaluated(out: str) -> float:
    [said] = [line for line in out.splitlines() if line.startswith("{'event'")]
    return float(ast.literal_eval(said)["loss"])


@with_each
def test_an_example_runs_alone_as_it_is(folder: str, tmp_path: Path) -> None:
    env = {n: v for n, v in os.environ.items() if not n.startswith("SHOAL_")}

    alone = subprocess.run(
        [sys.executable, str(EXAMPLES / folder / "train.py")],
        cwd=tmp_path,
        env={**env, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )

    assert alone.returncode == 0, alone.stderr
    assert evaluated(alone.stdout) < 0.5


@with_each
def test_two_workers_train_an_example_together(folder: str, tmp_path: Path) -> None:
    script = EXAMPLES / folder / "train.py"
    tasks = [
        started(tmp_path, script, "aggregate.0", 0),
        *(started(tmp_path, script, f"train.{n}", n) for n in range(WORKERS)),
    ]
    (told, *said) = [task.communicate(timeout=TIMEOUT_S) for task in tasks]

    assert [task.returncode for task in tasks] == [0, 0, 0], (told, said)
    rounds = [line for line in lines_of(told[0]) if line["event"] == "round"]
    assert [line["round"] for line in rounds] == [1, 2, 3]
    losses = [line["loss"] for line in rounds]
    assert losses[-1] < 0.8 * losses[0]
    by_worker = [part["loss"] for part in rounds[-1]["by_worker"].values()]
    assert len(by_worker) == WORKERS
    assert by_worker[0] != by_worker[1], "they draw different batches"
    shared = load_file(tmp_path / "aggregate.0/out/model.safetensors")
    assert all(np.isfinite(array).all() for array in shared.values())
    measured = [line for line in lines_of(told[0]) if line["event"] == "validation"]
    assert measured[-1]["validation_loss"] < measured[0]["validation_loss"]


@pytest.mark.parametrize("folder", FRAMEWORKS)
def test_an_example_adds_at_most_three_lines(folder: str) -> None:
    text = (EXAMPLES / folder / "train.py").read_text()
    lines = text.splitlines()
    ours = {"ShoalCallback", "ShoalTrainerCallback", "join_loop", "loop", "worker_seed"}

    used = {
        node.lineno
        for node in ast.walk(ast.parse(text))
        if (isinstance(node, ast.Name) and node.id in ours)
        or (isinstance(node, ast.ImportFrom) and "shoal" in (node.module or ""))
    }

    marks = [lines[n - 1].rpartition("  # ")[2].partition(":")[0] for n in sorted(used)]
    assert all(mark == "changed" or mark.isdecimal() for mark in marks), marks
    assert len([mark for mark in marks if mark.isdecimal()]) <= 3


@absent("transformers")
def test_a_loop_that_would_stop_too_early_is_refused(tmp_path: Path) -> None:
    script = EXAMPLES / "hugging-face" / "train.py"

    task = started(tmp_path, script, "train.0", 0, rounds=1_000)
    _, said = task.communicate(timeout=TIMEOUT_S)

    assert task.returncode == 2
    assert "this loop would stop after 200 steps" in said
    assert "1000 rounds of 20 steps, 20000 in all" in said
