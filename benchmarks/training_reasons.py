"""Ask how soon a training gang names what one of its tasks raised.

Run: PYTHONPATH=. python benchmarks/training_reasons.py [RECIPE ...] >> results.jsonl

One node runs gangs of two tasks, of which the second raises in the middle of training;
it says when in the error. What counts is the time from there to the end of the job,
whose reason has that error. Least of three for each recipe, and all of them.
"""

from __future__ import annotations

import json
import os
import re
import sys
import tempfile
from pathlib import Path
from typing import Final

from tests.integration.train_shoal import TrainShoal, train_shoal

TIMES: Final = 3
IN_STEP = """
import os, time
import torch
from shoal.train.arguments import program_params
from shoal.train.join import join

params = program_params()
model = torch.nn.Linear(4, 2)
with join(model, params.all) as run:
    while not run.finished:
        model(torch.zeros(1, 4)).sum().backward()
        if os.environ["SHOAL_TASK_INDEX"] == "1":
            raise ValueError(f"raised at {time.time():.3f}")
        time.sleep(0.02)
        run.step(samples=4, loss=1.0)
"""
BY_LAYERS = """
import os, time
import torch
from torch import nn
from torch.nn import functional
from shoal.train.arguments import program_params
from shoal.train.gangs.pipeline import PipelineRun

params = program_params()
x, y = torch.randn(64, 4), torch.randint(3, (64,))
with PipelineRun(
    [nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3)],
    params.all,
    example=x[:4],
    loss=functional.cross_entropy,
    optimizer=lambda weights: torch.optim.SGD(weights, lr=0.1),
    micro_batches=2,
) as run:
    while not run.finished:
        if run.steps == 3 and os.environ["SHOAL_TASK_INDEX"] == "1":
            raise ValueError(f"raised at {time.time():.3f}")
        run.step(x[:8], y[:8])
"""
PROGRAMS: Final = {"diloco": IN_STEP, "ddp": IN_STEP, "pipeline": BY_LAYERS}
JOB: Final = """
recipe: %s
workdir: %s
nodes: 2
params: {program: train.py, rounds: 300, inner_steps: 5}
resources: {cpu: 0.3, ram: 900MB}
"""


def told_after_s(shoal: TrainShoal, folder: Path, recipe: str) -> float:
    """Run a gang that fails; return how long its reason took."""
    work = folder / recipe
    work.mkdir(exist_ok=True)
    (work / "train.py").write_text(PROGRAMS[recipe])
    job = shoal.submit(folder, JOB % (recipe, work))
    assert shoal.wait(job) == 1
    ended = shoal.job(job)
    raised = re.search(
        r"\.1: exit code 1: ValueError: raised at ([0-9.]+)$", ended.reason
    )
    assert raised, ended.reason
    return ended.ended_s - float(raised[1])


def main() -> None:
    """Measure the recipes that are asked for, or all."""
    with tempfile.TemporaryDirectory() as name, train_shoal(Path(name), "a") as shoal:
        for recipe in sys.argv[1:] or PROGRAMS:
            took = [told_after_s(shoal, Path(name), recipe) for _ in range(TIMES)]
            line = {
                "benchmark": "training_reasons",
                "recipe": recipe,
                "told_after_s": round(min(took), 2),
                "each": [round(each, 2) for each in took],
                "load": round(os.getloadavg()[0], 1),
            }
            print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
