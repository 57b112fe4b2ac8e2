"""Metrics are lossless, outlive the node, and can be taken elsewhere."""

import csv
import io
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.integration.cli_home import CliHome, homes
from tests.integration.live_shoal import LiveShoal, live_shoal

from shoal.api import shoal_pb2 as pb
from shoal.api.client.metric_export import rows

pytestmark = pytest.mark.integration

POINTS = 5_000
FAST = f"""
import shoal, time
began = time.monotonic()
for n in range({POINTS}):
    if n % 10 == 0:
        time.sleep(max(0.0, began + n / 1_000 - time.monotonic()))
    assert shoal.log({{"loss": n, "time": n / 2}}, step=n)
shoal.log(last=7)
"""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CliHome]:
    with homes(tmp_path_factory.mktemp("metrics")) as make:
        made = make("home")
        made.up("--port", "0")
        yield made


def exported(home: CliHome, job: str) -> list[dict[str, str]]:
    text = home.ok("metrics", job, "--csv")
    return list(csv.DictReader(io.StringIO(text)))


def test_no_point_is_lost_at_a_thousand_a_second_nor_by_a_crash_of_the_node(
    home: CliHome, tmp_path: Path
) -> None:
    home.ok("run", "-q", "--", "python", "-c", FAST)
    job = home.json("show", "last")["job"]["id"]
    before = exported(home, job)
    events = home.ok("events", "-n", "50")

    home.kill()
    home.up("--port", "0")

    assert [int(row["loss"].split(".")[0]) for row in before[:-1]] == [*range(POINTS)]
    assert before[-1]["last"] == "7.0"
    assert before[7] == {
        "task": "main.0",
        "label": "",
        "attempt": "1",
        "time": before[7]["time"],
        "step": "7",
        "loss": "7.0",
        "time_": "3.5",
        "last": "",
    }
    assert exported(home, job) == before
    [task] = home.json("show", job)["tasks"]
    assert task["metrics"]["loss"] == POINTS - 1
    assert task["metrics"]["last"] == 7
    heading = home.ok("metrics", job).splitlines()[0].split()
    assert heading == ["TASK", "last", "loss", "time", "step"]
    # Where tasks went is known, too.
    assigned = [line for line in events.splitlines() if "goes to" in line]
    assert assigned
    assert set(assigned) <= set(home.ok("events", "-n", "50").splitlines())
    page = home.json("metrics", job)
    assert page["metrics"]["main.0"]["loss"] == POINTS - 1


def test_points_are_a_parquet_file_where_pyarrow_is(
    home: CliHome, tmp_path: Path
) -> None:
    pq = pytest.importorskip("pyarrow.parquet")
    script = "import shoal\nfor n in range(3): shoal.log({'loss': n * {lr}}, step=n)"
    spec = tmp_path / "sweep.json"
    command = ["python", "-c", script]
    spec.write_text(json.dumps({"command": command, "sweep": {"lr": [1, 2]}}))
    home.ok("run", "-q", str(spec))
    file = tmp_path / "points.parquet"

    home.ok("metrics", "last", "--parquet", str(file))

    table = pq.read_table(file).to_pylist()
    assert len(table) == 6
    found = {(row["label"], row["step"], row["loss"]) for row in table}
    assert ("lr=2", 2.0, 4.0) in found


def test_a_job_without_metrics_and_two_forms_at_once_are_explained(
    home: CliHome,
) -> None:
    home.ok("run", "-q", "--", "true")

    none = home("metrics", "last", "--csv")
    both = home("metrics", "last", "--csv", "--json")

    assert none.code == 102
    assert "shoal.log" in none.err
    assert both.code == 2


def test_no_point_is_lost_between_nodes(tmp_path: Path) -> None:
    with live_shoal(LiveShoal(tmp_path / "shoal", workers=1)) as shoal:
        spec = json.dumps({"command": ["python", "-c", FAST]})
        with shoal.boss.client() as client:
            client.submit(pb.SubmitRequest(job_id="far", json=spec))
            *_, last = client.watch("far", 120.0)
            found = list(rows(client, "far"))

    assert last.state == pb.STATE_DONE
    assert [row.step for row in found[:-1]] == [*range(POINTS)]
