"""A user's own model, from its script next to the job to the measured weights."""

import json
import shutil
from pathlib import Path

import pytest
from tests.integration.train_shoal import train_shoal

pytestmark = pytest.mark.integration

EXAMPLE = Path(__file__).parents[2] / "examples" / "own-model"


def test_what_two_nodes_trained_is_pulled_and_measured(tmp_path: Path) -> None:
    folder = tmp_path / "own-model"
    shutil.copytree(EXAMPLE, folder)

    def spec(name: str) -> str:
        return (folder / name).read_text().replace("workdir: .", f"workdir: {folder}")

    with train_shoal(tmp_path, "a", "b") as shoal:
        job = shoal.submit(tmp_path, spec("diloco.yaml"))
        assert shoal.wait(job) == 0, shoal.first("logs", job).out
        last = shoal.lines(job, "validation")[-1]
        shoal.first.ok("pull", job, "--to", str(folder))

        job = shoal.submit(tmp_path, spec("eval.yaml"))
        assert shoal.wait(job) == 0, shoal.first("logs", job).out
        shoal.first.ok("pull", job, "--to", str(tmp_path / "measured"))

    [path] = (tmp_path / "measured").glob("**/eval.json")
    assert last["round"] == 10
    measured = json.loads(path.read_text())["validation_loss"]
    assert measured == pytest.approx(last["validation_loss"], rel=1e-4)


def test_a_job_ends_soon_when_all_of_its_workers_have_failed(tmp_path: Path) -> None:
    with train_shoal(tmp_path, "a") as shoal:
        job = shoal.submit(
            tmp_path,
            "recipe: diloco\nnodes: 2\nparams: {program: nothing.py}\n"
            "resources: {cpu: 0.5}\n",
        )

        assert shoal.wait(job) != 0

        assert shoal.first.json("show", job)["job"]["state"] == "failed"
        logs = shoal.first("logs", job)
        assert "there is no program 'nothing.py'" in logs.out + logs.err
