"""Real workers are killed one after another, and training does not stop for it."""

from itertools import pairwise
from pathlib import Path

from tests.runtime.train_processes import Job, eventually, job

PROGRAM = """
import os, time
import numpy as np
from shoal.train.arguments import program_params
from shoal.train.diloco.session import DilocoSession
from shoal.train.settings import settings_of
from shoal.train.task_context import TaskContext
from shoal.train.weights import ArrayWeights

params = program_params()
around = TaskContext.of(os.environ)
weights = np.zeros(8, dtype=np.float32)
with DilocoSession(
    around.exchange(),
    settings_of(params.all),
    life=around.life,
    weights=ArrayWeights({"w": weights}),
) as run:
    while not run.finished:
        weights += np.float32(0.01) * (around.index + 1 - weights)
        time.sleep(0.02)
        run.step(samples=4, loss=float(weights.mean()))
"""
PARAMS = {
    "workers": 4,
    "quorum": 2,
    "rounds": 10_000,
    "inner_steps": 50,
    "gather": 120.0,
    "silence": 60.0,
}
STALLED_S = 9.0
"""As long as a round may take for who is dead, at the least, if nobody notices."""


def closed(run: Job) -> int:
    return len(run.lines("round"))


def test_the_others_go_on_at_once_and_who_comes_back_takes_part(tmp_path: Path) -> None:
    with job(tmp_path / "job", PROGRAM, PARAMS) as run:
        eventually(lambda: closed(run) >= 3)

        for number in (1, 3):
            name = f"train.{number}"
            run.kill(name)
            since = closed(run)
            eventually(lambda at=since: closed(run) >= at + 3)  # type: ignore[misc]
            run.start(name)
            back = closed(run)
            eventually(
                lambda at=back, who=name: any(  # type: ignore[misc]
                    who in line["by_worker"] for line in run.lines("round")[at:]
                )
            )

        rounds = run.lines("round")
    gaps = [later["seconds"] - early["seconds"] for early, later in pairwise(rounds)]
    assert max(gaps[2:]) < STALLED_S, gaps
    assert all(len(line["by_worker"]) >= 2 for line in rounds)
    assert {line["round"] for line in rounds} == set(range(1, len(rounds) + 1))
