"""What `shoal sim --json` prints is what docs/reference/json.md says."""

import json
from pathlib import Path
from typing import Any

import pytest
from reference.answers import ANSWERS, breaches
from tests.sim.test_reproduce import BATCH, FILL, PREEMPTIVE, folder, reproduced

from shoal.cli.display.printing import VERSION
from shoal.cli.lab.sim import sim

__all__ = ["folder"]  # A fixture of another module.


def document(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    printed: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert printed.pop("version") == VERSION
    return printed


def test_a_comparison_is_told_as_documented(
    capsys: pytest.CaptureFixture[str],
) -> None:
    size = ("--spines", "1", "--leaves", "2", "--hosts", "2")
    args = ["--jobs", "poisson:5", "--policy", "simple", "--seed", "1", *size]

    sim.main(["run", *args, "--json"], standalone_mode=False)

    assert breaches(ANSWERS["sim run"], document(capsys)) == []


def test_a_replay_is_told_as_documented(capsys: pytest.CaptureFixture[str]) -> None:
    args = ("traces", "poisson:20", "--slots", "32", "--policy", "fcfs,sjf", "--json")

    sim.main(list(args), standalone_mode=False)

    assert breaches(ANSWERS["sim traces"], document(capsys)) == []


def test_published_results_are_told_as_documented(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    reproduced(folder, BATCH, FILL, PREEMPTIVE, args=("--json",))

    assert breaches(ANSWERS["sim reproduce"], document(capsys)) == []
