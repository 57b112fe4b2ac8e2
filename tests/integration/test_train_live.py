"""Training jobs on live nodes: real processes, sockets, weights and kills."""

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file
from tests.integration.train_shoal import (
    eventually,
    kill,
    train_shoal,
    with_arrays,
)

pytestmark = pytest.mark.integration

JOB = """
recipe: diloco
nodes: 2..3
workdir: %s
params: {program: train.py, rounds: 60, inner_steps: 20, gather: 60, silence: 10}
resources: {cpu: 0.5, ram: 1GB}
"""
DIGITS = """
recipe: diloco
nodes: 2
params: {program: digits, rounds: 25, inner_steps: 100, gather: 60, silence: 10,
  checkpoint_every: 5}
resources: {cpu: 0.5, ram: 1GB}
"""


def test_three_nodes_learn_though_a_worker_the_aggregator_and_a_node_die(
    tmp_path: Path,
) -> None:
    with train_shoal(tmp_path, "a", "b", "c") as shoal:
        job = shoal.submit(tmp_path, JOB % with_arrays(tmp_path / "job"))
        shoal.wait_for_round(job, 5)

        kill(job, "train.1")
        eventually(lambda: shoal.task(job, "train.1").attempts == 2)
        shoal.wait_for_round(job, max(shoal.rounds(job)) + 3)

        kill(job, "aggregate.0")
        before = max(shoal.rounds(job))
        eventually(lambda: shoal.task(job, "aggregate.0").attempts == 2)
        shoal.wait_for_round(job, before + 3)

        shoal.homes["c"].kill()
        shoal.add("d")

        assert shoal.wait(job) == 0
        closed = shoal.rounds(job)
        assert sorted(set(closed)) == list(range(1, 61)), "no round is lost"
        again = [later for early, later in pairwise(closed) if later <= early]
        assert len(again) <= 2, "each fail-over goes back once, to a checkpoint"
        kinds = [line["kind"] for line in shoal.lines(job, "loaded")]
        assert kinds[:2] == ["initial", "checkpoint"]
        # Of a worker that died the rest has the outcome, if not its contributions.
        assert set(kinds[2:]) <= {"checkpoint", "weights"}
        assert shoal.lines(job, "validation")[-1]["validation_loss"] < 1e-3

        shoal.first.ok("pull", job, "--to", str(tmp_path / "pulled"))
        [path] = tmp_path.glob("pulled/**/model.safetensors")
        truth = np.linspace(-1.0, 1.0, 64)
        np.testing.assert_allclose(load_file(path)["truth"], truth, atol=0.1)


@pytest.mark.soak  # Takes minutes.
def test_training_goes_on_though_all_of_its_tasks_die_at_once(tmp_path: Path) -> None:
    with train_shoal(tmp_path, "a", "b") as shoal:
        job = shoal.submit(tmp_path, DIGITS)
        shoal.wait_for_round(job, 12)

        for name in ("aggregate.0", "train.0", "train.1"):
            kill(job, name)

        assert shoal.wait(job) == 0
        first, *later = shoal.lines(job, "loaded")
        assert first["kind"] == "initial"
        assert [line["kind"] for line in later] == ["checkpoint"]
        assert later[0]["round"] >= 5
        assert set(shoal.rounds(job)) == set(range(1, 26))
