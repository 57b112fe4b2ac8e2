"""A DiLoCo worker may be a group of processes, and is one worker to the others."""

import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file
from tests.runtime.train_processes import LONG_S, Job, eventually, job

from shoal.train.gangs.local_ranks import exit_code
from shoal.train.programs import TRY_AGAIN

# Ranks of a task share its output, so each writes a line as one piece.
PROGRAM = """
import json, os, sys, time, torch
from shoal.train.arguments import program_params
from shoal.train.join import join

params = program_params(batch=8, step_s=0.0)
torch.set_num_threads(1)
torch.manual_seed(3)
x = torch.randn(64 * 16, 5)
y = torch.randn(64 * 16, 2)
model = torch.nn.Sequential(
    torch.nn.Linear(5, 8), torch.nn.BatchNorm1d(8, momentum=0.0), torch.nn.Linear(8, 2)
)
model[1].eval()  # Statistics of parts are not those of the whole.
step = lambda weights: torch.optim.AdamW(weights, lr=0.02)
distance = lambda found, wanted: ((found - wanted) ** 2).mean()
if int(params.all.get("inner.pipeline", 1)) > 1:
    from shoal.train.gangs.pipeline import PipelineRun

    with PipelineRun(
        list(model), params.all, example=x[:4], loss=distance, optimizer=step,
        micro_batches=4,
    ) as run:
        rank = int(os.environ.get("RANK", os.environ["SHOAL_TASK_INDEX"]))
        line = {"rank": rank, "world": run.world}
        sys.stdout.write(json.dumps({"event": "rank", **line}) + "\\n")
        sys.stdout.flush()
        while not run.finished:
            first = run.steps * 16 % len(x)
            run.step(x[first : first + 16], y[first : first + 16])
    raise SystemExit
optimizer = step(model.parameters())
with join(model, params.all, keep=[optimizer]) as run:
    local = int(os.environ.get("LOCAL_RANK", run.rank))
    done = [int(each["step"]) for each in optimizer.state.values()]
    shares = [each.detach() for each in model.parameters()]
    total = sum(getattr(each, "full_tensor", lambda: each)().sum() for each in shares)
    line = {"rank": run.rank, "world": run.world, "done": done, "total": float(total)}
    sys.stdout.write(json.dumps({"event": "rank", **line}) + "\\n")
    sys.stdout.flush()
    while not run.finished:
        # Each step has its rows; a rank takes its part of them.
        first = run.global_step * 16 % len(x) + local * params.batch
        rows = slice(first, first + params.batch)
        loss = distance(run.model(x[rows]), y[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(params.step_s)
        run.step(samples=params.batch, loss=loss.item())
"""
PLAIN = {
    "rounds": 3,
    "inner_steps": 4,
    "compress": "float32",
    "gather": 60.0,
    "balance": False,
}


def trained(folder: Path, **changes: object) -> tuple[Job, dict[str, Any]]:
    """Run a job to its end; return it, and its weights."""
    with job(folder, PROGRAM, {**PLAIN, **changes}, is_forked=True) as run:
        for name, task in run.tasks.items():
            told = folder / f"{name}.log"
            assert task.wait(LONG_S) == 0, told.read_text()
    out = folder / "work" / "aggregate.0" / "out"
    return run, load_file(out / "model.safetensors")


def samples(run: Job) -> list[int]:
    """Return the samples of the only worker in each round."""
    parts = [[*line["by_worker"].values()] for line in run.lines("round")]
    return [only["samples"] for [only] in parts]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Job, dict[str, Any]]:
    """One worker that is one process, and has twice the batch."""
    return trained(tmp_path_factory.mktemp("whole") / "one", batch=16)


# The ranks of one task are processes that load torch. Of other kinds they are below.
@pytest.mark.parametrize(
    "kind",
    ["ddp", *(pytest.param(k, marks=pytest.mark.soak) for k in ("fsdp", "pipeline"))],
)
def test_a_group_of_two_equals_one_worker_with_twice_the_batch(
    kind: str, whole: tuple[Job, dict[str, Any]], tmp_path: Path
) -> None:
    one, wanted = whole

    two, group = trained(tmp_path / "group", batch=8, **{f"inner.{kind}": 2})

    assert wanted.keys() == group.keys()
    for name, values in wanted.items():
        np.testing.assert_allclose(group[name], values, rtol=1e-4, atol=1e-6)
    assert samples(one) == samples(two) == [64, 64, 64]
    ranks = {line["rank"]: line["world"] for line in two.lines("rank", "train.0")}
    assert ranks == {0: 2, 1: 2}


@pytest.mark.parametrize("kind", ["ddp", "fsdp", "pipeline"])
def test_a_group_over_two_tasks_equals_one_worker_too(
    kind: str, whole: tuple[Job, dict[str, Any]], tmp_path: Path
) -> None:
    one, wanted = whole
    params = {f"inner.{kind}": 2, "inner.over": "machines"}

    two, group = trained(tmp_path / "group", batch=8, **params)

    for name, values in wanted.items():
        np.testing.assert_allclose(group[name], values, rtol=1e-4, atol=1e-6)
    assert samples(one) == samples(two) == [64, 64, 64]
    ranks = [two.lines("rank", f"train-0.{n}")[0]["rank"] for n in (0, 1)]
    assert ranks == [0, 1]


@pytest.mark.soak
@pytest.mark.parametrize("kind", ["ddp", "fsdp"])
def test_all_ranks_of_a_late_group_go_on_from_the_others_and_end_together(
    kind: str, tmp_path: Path
) -> None:
    params = {**PLAIN, f"inner.{kind}": 2, "rounds": 10_000, "step_s": 0.01}
    with job(tmp_path / "late", PROGRAM, params) as run:
        eventually(lambda: bool(run.lines("round")))

        run.start("train.1")

        eventually(lambda: len(run.lines("rank", "train.1")) == 2)
        one, other = run.lines("rank", "train.1")
        assert one["done"] == other["done"]
        assert min(one["done"]) > 0
        assert one["total"] == other["total"]
        assert one["total"] != run.lines("rank", "train.0")[0]["total"]

        os.kill(rank_of(run.tasks["train.0"].pid, 1), signal.SIGKILL)

        assert run.tasks["train.0"].wait(LONG_S) == 128 + signal.SIGKILL


def rank_of(launcher: int, rank: int) -> int:
    """Return the process of a rank."""
    children = Path(f"/proc/{launcher}/task/{launcher}/children").read_text().split()
    [found] = [
        int(child)
        for child in children
        if f"\0RANK={rank}\0" in Path(f"/proc/{child}/environ").read_text()
    ]
    return found


def test_a_rank_that_lost_a_peer_is_not_the_reason() -> None:
    assert exit_code([TRY_AGAIN, 1]) == 1
    assert exit_code([-9, TRY_AGAIN]) == 137
    assert exit_code([None, TRY_AGAIN]) == TRY_AGAIN
    assert exit_code([0, 3]) == 3
