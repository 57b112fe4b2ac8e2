"""Training jobs on two nodes that nobody hurts: a user's own model, all recipes."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.integration.train_shoal import TrainShoal, train_shoal

pytestmark = pytest.mark.integration

EXAMPLE = Path(__file__).parents[2] / "examples" / "own-model"

OTHERS = {
    "ddp": "params: {program: digits, rounds: 4, inner_steps: 20}\nnodes: 2\n",
    "pipeline": (
        "params: {rounds: 2, inner_steps: 4, batch: 8, context: 16, width: 32, "
        "layers: 2, corpus_bytes: 300000}\nnodes: 2\n"
    ),
    "sweep": (
        "params: {program: digits, rounds: 3, inner_steps: 20}\n"
        "sweep: {lr: [0.0001, 0.003]}\n"
    ),
}
LEFT = {
    "ddp": "model.safetensors",
    "pipeline": "model.safetensors",
    "sweep": "best.json",
}


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TrainShoal]:
    """Two nodes, for one job after another."""
    with train_shoal(tmp_path_factory.mktemp("pair"), "a", "b") as shoal:
        yield shoal


def test_what_two_nodes_trained_is_pulled_and_measured(
    pair: TrainShoal, tmp_path: Path
) -> None:
    folder = tmp_path / "own-model"
    shutil.copytree(EXAMPLE, folder)

    def spec(name: str) -> str:
        text = (folder / name).read_text().replace("workdir: .", f"workdir: {folder}")
        return text.replace("rounds: 10", "rounds: 3").replace("2..4", "2")

    job = pair.submit(tmp_path, spec("diloco.yaml"))
    assert pair.wait(job) == 0, pair.first("logs", job).out
    last = pair.lines(job, "validation")[-1]
    pair.first.ok("pull", job, "--to", str(folder))

    job = pair.submit(tmp_path, spec("eval.yaml"))
    assert pair.wait(job) == 0, pair.first("logs", job).out
    pair.first.ok("pull", job, "--to", str(tmp_path / "measured"))

    [path] = (tmp_path / "measured").glob("**/eval.json")
    assert last["round"] == 3
    measured = json.loads(path.read_text())["validation_loss"]
    assert measured == pytest.approx(last["validation_loss"], rel=1e-4)


ALSO = [pytest.param(kind, "gpt", marks=pytest.mark.soak) for kind in ("ddp", "fsdp")]


@pytest.mark.parametrize(("kind", "program"), [("pipeline", "pipeline_gpt"), *ALSO])
def test_a_worker_may_be_a_group_over_two_nodes(
    kind: str, program: str, pair: TrainShoal, tmp_path: Path
) -> None:
    job = pair.submit(
        tmp_path,
        f"recipe: diloco\nnodes: 1\nparams: {{program: {program}, rounds: 2, "
        "inner_steps: 3, batch: 8, context: 16, width: 32, layers: 2, "
        f"corpus_bytes: 300000, inner: {{{kind}: 2, over: machines}}}}\n"
        "resources: {cpu: 1.5}\n",
    )

    assert pair.wait(job) == 0, pair.first("logs", job)

    last = pair.lines(job, "round")[-1]
    assert last["round"] == 2
    assert set(last["by_worker"]) == {"train-0.0"}
    places = [pair.task(job, f"train-0.{rank}").nodes[0].id for rank in (0, 1)]
    assert places[0] != places[1]
    pair.first.ok("pull", job, "--to", str(tmp_path / "pulled"))
    assert list(tmp_path.glob("pulled/**/model.safetensors"))


@pytest.mark.soak  # One process each, and with failures: see the files around.
def test_all_other_recipes_run_to_their_end(pair: TrainShoal, tmp_path: Path) -> None:
    jobs = {
        recipe: pair.submit(
            tmp_path, f"recipe: {recipe}\nresources: {{cpu: 0.5}}\n{rest}"
        )
        for recipe, rest in OTHERS.items()
    }

    ends = {recipe: pair.wait(job) for recipe, job in jobs.items()}

    assert not any(ends.values()), [pair.first("logs", jobs[r]) for r in ends]
    for recipe, job in jobs.items():
        pair.first.ok("pull", job, "--to", str(tmp_path / recipe))
        assert list(tmp_path.glob(f"{recipe}/**/{LEFT[recipe]}")), recipe


def test_a_job_ends_soon_when_all_of_its_workers_have_failed(
    pair: TrainShoal, tmp_path: Path
) -> None:
    job = pair.submit(
        tmp_path,
        "recipe: diloco\nnodes: 2\nparams: {program: nothing.py}\n"
        "resources: {cpu: 0.5}\n",
    )

    assert pair.wait(job) != 0

    assert pair.first.json("show", job)["job"]["state"] == "failed"
    logs = pair.first("logs", job)
    assert "there is no program 'nothing.py'" in logs.out + logs.err
