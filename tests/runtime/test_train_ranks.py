"""Several ranks in real processes compute what one process computes."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file
from tests.runtime.torch_forks import Program, run_all

from shoal.train.gangs.rendezvous import free_port

STEPS = 12
BATCH = 32
LR = 2e-3
TIMEOUT_S = 300
LIVES = 3


def run_together(
    folder: Path, module: str, recipe: str, world: int, params: dict[str, Any]
) -> list[list[dict[str, Any]]]:
    """Run a module once for each rank; return the lines that each printed.

    A port that was free may be taken before the first rank listens there. Then the
    gang ends and starts over, as shoal would do it.
    """
    given = {"workers": world, "quorum": world, **params}
    place, codes, told = folder, list[int | None](), ""
    for life in range(LIVES):
        place = folder / f"life{life}"
        port = str(free_port("127.0.0.1"))
        ranks = [
            program(place, module, recipe, (rank, world, port), given)
            for rank in range(world)
        ]
        codes = run_all(ranks, TIMEOUT_S)
        told = (place / "stderr").read_text()
        if not any(codes) or "in use" not in told:
            break
    assert codes == [0] * world, told
    return [
        [json.loads(line) for line in text.splitlines() if line[:1] == "{"]
        for text in ((place / f"stdout{rank}").read_text() for rank in range(world))
    ]


def program(
    folder: Path,
    module: str,
    recipe: str,
    seat: tuple[int, int, str],
    given: dict[str, Any],
) -> Program:
    """Return the program of one rank, which writes into files of this folder."""
    rank, world, port = seat
    work = folder.parent / f"rank{rank}"
    for path in (work, folder):
        path.mkdir(parents=True, exist_ok=True)
    env = {
        "SHOAL_RECIPE": recipe,
        "SHOAL_EXCHANGE": str(folder / "exchange"),
        "SHOAL_JOB_ID": "j",
        "SHOAL_TASK_ID": f"j.main.{rank}",
        "SHOAL_TASK_INDEX": str(rank),
        "SHOAL_PARAMS": json.dumps(given),
        "OMP_NUM_THREADS": "1",
        "RANK": str(rank),
        "WORLD_SIZE": str(world),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": port,
    }
    return Program(module, work, env, folder / f"stdout{rank}", folder / "stderr")


def test_two_ranks_of_ddp_are_one_process_that_accumulates_gradients_and_resume(
    tmp_path: Path,
) -> None:
    module = "shoal.train.programs.digits"
    params = {
        "inner_steps": STEPS,
        "batch": BATCH,
        "lr": LR,
        "checkpoint_every": 1,
    }

    run_together(tmp_path, module, "ddp", 2, {**params, "rounds": 1})

    found = load_file(tmp_path / "rank0" / "out" / "model.safetensors")
    alone = {"SHOAL_PARAMS": json.dumps({"workers": 2, **params})}
    log = tmp_path / "alone.log"
    reference = Program("tests.runtime.accumulated_digits", tmp_path, alone, log, log)
    assert run_all([reference], TIMEOUT_S) == [0], log.read_text()
    expected = load_file(tmp_path / "expected.safetensors")
    assert sorted(found) == sorted(expected)
    for name, array in expected.items():
        np.testing.assert_allclose(found[name], array, rtol=1e-5, atol=1e-6)

    (tmp_path / "rank0" / "checkpoint" / "state.pt").unlink()  # A newcomer's.
    said = run_together(tmp_path, module, "ddp", 2, {**params, "rounds": 2})

    resumed = [line for line in said[0] if line["event"] == "resumed"]
    assert resumed == [{"event": "resumed", "step": STEPS, "ranks": 2}]


def test_two_peers_of_a_pipeline_have_the_loss_curve_of_the_unsplit_model_and_resume(
    tmp_path: Path,
) -> None:
    params = {
        "rounds": 1,
        "inner_steps": 6,
        "batch": 8,
        "context": 16,
        "width": 32,
        "layers": 2,
        "corpus_bytes": 300_000,
        "checkpoint_every": 1,
    }
    module = "shoal.train.gangs.pipeline"

    curves: list[list[float]] = []
    for world in (1, 2):
        folder = tmp_path / str(world)
        said = run_together(folder, module, "pipeline", world, params)
        lines = [each for lines in said for each in lines if each["event"] == "loss"]
        curves.append([each["loss"] for each in lines])

    assert len(curves[0]) == 6
    assert curves[0][-1] < curves[0][0]
    assert curves[1] == pytest.approx(curves[0], rel=1e-5)
    whole = load_file(tmp_path / "1" / "rank0" / "out" / "model.safetensors")
    split = load_file(tmp_path / "2" / "rank0" / "out" / "model.safetensors")
    assert sorted(whole) == sorted(split)
    for name, array in whole.items():
        np.testing.assert_allclose(split[name], array, rtol=1e-4, atol=1e-6)

    said = run_together(tmp_path / "2", module, "pipeline", 2, {**params, "rounds": 2})

    lines = [each for lines in said for each in lines]
    assert {line["step"] for line in lines if line["event"] == "resumed"} == {6}
    steps = [line["step"] for line in lines if line["event"] == "loss"]
    assert sorted(steps) == list(range(1, 13)), "no step is lost or repeated"
