"""Steps hand on files: within a node, between nodes, and after a worker has gone."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.integration.cli_home import CliHome, homes
from tests.integration.live_shoal import LiveShoal, eventually, live_shoal

from shoal.api import shoal_pb2 as pb

pytestmark = pytest.mark.integration

PIPELINE = """
name: pipeline
workdir: {workdir}
steps:
  prep:
    command: [sh, -c, "mkdir -p data; echo 1,2 > 'data/a b.csv'; echo new > both;
              ln -s 'a b.csv' data/latest"]
    outputs: [data/, both]
  train:
    needs: [prep]
    sweep: {{lr: [0.1, 0.003]}}
    command: [sh, -c, "cat data/latest both; mkdir out; echo {{lr}} > out/model"]
    outputs: [out/]
  pick:
    needs: [train]
    command: [sh, -c, "cat train/lr=0.003/out/model both; ls -d data; exit 0"]
"""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CliHome]:
    with homes(tmp_path_factory.mktemp("steps")) as make:
        made = make("home")
        made.up("--port", "0")
        yield made


@pytest.fixture
def pipeline(tmp_path: Path) -> str:
    work = tmp_path / "work"
    work.mkdir()
    (work / "both").write_text("old\n")
    (work / ".shoalignore").write_text("!both\n")  # Else it is an earlier output.
    spec = tmp_path / "pipeline.yaml"
    spec.write_text(PIPELINE.format(workdir=work))
    return str(spec)


def lines(home: CliHome, task: str) -> list[str]:
    return home.ok("logs", "last", "--task", task).splitlines()


def test_outputs_of_needed_steps_are_in_the_work_directory_of_the_next(
    home: CliHome, pipeline: str
) -> None:
    done = home("run", "--no-pull", pipeline)

    assert done.code == 0, done
    # What a step left replaces what the workdir had, and only for those who need it.
    assert lines(home, "train.0") == ["1,2", "new"]
    assert lines(home, "pick.0")[:2] == ["0.003", "old"]
    assert "cannot access 'data'" in done.err


def test_a_plan_says_that_a_step_starts_after_others(
    home: CliHome, pipeline: str
) -> None:
    planned = home.ok("plan", pipeline)
    groups = home.json("plan", pipeline)["groups"]

    assert "train: 2 tasks, after prep, each" in planned
    starts = [line for line in planned.splitlines() if line.startswith("1 ")]
    assert "now" in starts[0]
    assert "after prep" in starts[1]
    assert "after train" in starts[2]
    assert [group["after"] for group in groups] == [[], ["prep"], ["train"]]


FAILS = """
steps:
  prep: {command: [sh, -c, "cat /proc/sys/kernel/random/uuid > data"], outputs: [data]}
  train: {command: [sh, -c, "cat data; exit 3"], needs: [prep]}
"""


def test_a_step_that_is_tried_again_gets_what_the_first_job_made(
    home: CliHome, tmp_path: Path
) -> None:
    spec = tmp_path / "job.yaml"
    spec.write_text(FAILS)
    first = home("run", "-q", str(spec))
    job = home.json("show", "last")["job"]["id"]

    again = home.ok("retry", "-q", "--failed", job).strip()
    second = home("wait", "-q", again)

    assert (first.code, second.code) == (3, 3)
    assert home.ok("logs", again) == first.out.removeprefix("train.0 | ")
    assert sum(home.json("show", again)["job"]["tasks"].values()) == 1


@pytest.fixture(scope="module")
def shoal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveShoal]:
    with live_shoal(LiveShoal(tmp_path_factory.mktemp("shoal"), workers=2)) as made:
        yield made


def test_outputs_outlive_the_worker_that_made_them(
    shoal: LiveShoal, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    spec = {
        "steps": {
            "prep": {
                "command": ["sh", "-c", "head -c 3000000 /dev/urandom > big"],
                "outputs": ["big"],
            },
            "wait": {
                "command": ["sh", "-c", f"until test -e {gate}; do sleep 0.05; done"],
                "needs": ["prep"],
                "inputs": False,
            },
            "use": {
                "command": ["sh", "-c", "wc -c < big"],
                "needs": ["wait", "prep"],
            },
        },
    }
    with shoal.boss.client() as client:
        client.submit(pb.SubmitRequest(job_id="gone", json=json.dumps(spec)))

        def task(name: str) -> pb.Task:
            return next(t for t in client.get("gone").tasks if f".{name}." in t.id)

        eventually(lambda: task("wait").state == pb.STATE_RUNNING)
        [maker] = [n for n in shoal.workers if n.id == task("prep").nodes[0].id]
        maker.kill()
        gate.touch()
        eventually(lambda: task("use").state == pb.STATE_DONE, what=shoal.boss.story)

        [other] = [n for n in shoal.workers if n is not maker]
        assert [node.id for node in task("use").nodes] == [other.id]
        request = pb.LogsRequest(job="gone", task="use.0")
        assert b"".join(each.data for each in client.logs(request)) == b"3000000\n"
