"""Gangs that train in step lose members without notice, and go on."""

from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.integration.train_shoal import kill, train_shoal

pytestmark = [pytest.mark.integration, pytest.mark.soak]  # Each takes minutes.

# So much of a machine that no second task fits on it.
MOST = "resources: {cpu: 1.5}"
DDP = f"""
recipe: ddp
nodes: %s
params: {{program: digits, rounds: %d, inner_steps: 50, checkpoint_every: 1}}
{MOST}
"""


def test_ranks_go_on_from_a_checkpoint_with_fewer_and_with_more(
    tmp_path: Path,
) -> None:
    with train_shoal(tmp_path, "a", "b", "c") as shoal:
        job = shoal.submit(tmp_path, DDP % ("2..3", 1_000_000))
        shoal.wait_for(job, "validation", lambda line: line["round"] >= 3)

        shoal.homes["c"].kill()
        shoal.wait_for(job, "resumed", lambda line: line["ranks"] == 2)
        running = shoal.attempts(job)
        shoal.add("d")
        shoal.wait_for(job, "resumed", lambda line: line["ranks"] == 3)
        assert running.items() <= shoal.attempts(job).items(), "agents met again"
        *_, last = shoal.said(job, "resumed")
        shoal.wait_for(
            job, "validation", lambda line: line["round"] * 50 > last["step"]
        )

        shoal.first.ok("cancel", job)
        assert min(line["step"] for line in shoal.said(job, "resumed")) >= 150
        closed = {line["round"] for line in shoal.said(job, "validation")}
        assert closed == set(range(1, int(max(closed)) + 1)), "no round is lost"


def test_a_gang_goes_on_when_any_of_its_processes_is_killed(tmp_path: Path) -> None:
    with train_shoal(tmp_path, "a", "b") as shoal:
        job = shoal.submit(tmp_path, DDP % ("2", 200))
        shoal.wait_for(job, "validation", lambda line: line["round"] >= 3)

        for times, name in enumerate(("main.1", "main.0"), start=1):
            kill(job, name)
            shoal.wait_for_resumed(job, times)

        assert shoal.wait(job) == 0, shoal.first("logs", job).out
        first, second = sorted(line["step"] for line in shoal.said(job, "resumed"))
        assert 150 <= first <= second
        [last] = [
            line for line in shoal.said(job, "validation") if line["round"] == 200
        ]
        assert last["validation_accuracy"] > 0.95


SPANNED = f"""
recipe: diloco
nodes: 1
params: {{program: pipeline_gpt, rounds: 1000000, inner_steps: 5, batch: 8, context: 16,
  width: 32, layers: 2, corpus_bytes: 300000, inner: {{pipeline: 2, over: machines}}}}
{MOST}
"""


def is_after(number: int, line: dict[str, Any]) -> bool:
    """Whether a line is of a later round."""
    return bool(line["round"] > number)


def test_a_worker_over_two_nodes_goes_on_when_either_process_is_killed(
    tmp_path: Path,
) -> None:
    with train_shoal(tmp_path, "a", "b", "c") as shoal:
        job = shoal.submit(tmp_path, SPANNED)
        shoal.wait_for(job, "round", lambda line: line["round"] >= 3)

        for name in ("train-0.1", "train-0.0"):
            [*_, before] = shoal.said(job, "round")
            kill(job, name)
            shoal.wait_for(job, "round", partial(is_after, before["round"] + 20))

        shoal.first.ok("cancel", job)
        closed = [line["round"] for line in shoal.said(job, "round")]
        assert closed == list(range(1, len(closed) + 1)), "no round is lost or repeated"


# It never ends by itself: whoever looks finds it at work, however late.
PIPELINE = f"""
recipe: pipeline
nodes: 2
params: {{rounds: 1000000, inner_steps: 40, batch: 8, context: 16, width: 32,
  layers: 2, corpus_bytes: 300000, checkpoint_every: 1}}
{MOST}
"""


def test_a_pipeline_goes_on_when_a_node_is_killed(tmp_path: Path) -> None:
    with train_shoal(tmp_path, "a", "b") as shoal:
        job = shoal.submit(tmp_path, PIPELINE)
        shoal.wait_for(job, "loss", lambda line: line["step"] >= 130)

        shoal.homes["b"].kill()
        shoal.add("c")
        shoal.wait_for_resumed(job, 1)
        steps = sorted(line["step"] for line in shoal.said(job, "resumed"))
        shoal.wait_for(job, "loss", lambda line: line["step"] > steps[-1] + 100)
        shoal.first.ok("cancel", job)

        assert steps[0] >= 40
        losses = {line["step"]: line["loss"] for line in shoal.said(job, "loss")}
        assert sorted(losses) == list(range(1, len(losses) + 1)), "no step is lost"
        assert losses[len(losses)] < 0.8 * losses[1]
