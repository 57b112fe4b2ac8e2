"""Following a job over the API of a real node."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.integration.cli_home import CliHome, homes
from tests.integration.live_shoal import eventually

from shoal.api import shoal_pb2 as pb
from shoal.api.client.client import Client

pytestmark = pytest.mark.integration

JOBS = 60
PATIENCE_S = 60.0


@pytest.fixture
def home(tmp_path: Path) -> Iterator[CliHome]:
    with homes(tmp_path) as make:
        home = make("home")
        home.up("--no-sandbox")
        yield home


def test_the_last_thing_told_of_a_job_is_its_end(home: CliHome) -> None:
    """Many short jobs: one of them ends while its view is on the way."""
    with Client(f"unix:{home.info['socket']}", name="home") as client:
        for number in range(JOBS):
            request = pb.SubmitRequest(job_id=f"j{number}", yaml="command: [/bin/true]")
            client.submit(request)
            *_, last = client.watch(request.job_id, 30.0)
            assert last.state == pb.STATE_DONE


def test_where_a_task_runs_is_told_though_its_worker_is_slow_to_say_so(
    tmp_path: Path,
) -> None:
    """That a task has begun is not journalled: after that, nothing happens here."""
    with homes(tmp_path) as make:
        boss, worker = make("boss"), make("worker")
        boss.up("--no-worker")
        worker.ok("join", boss.json("invite", "--mine")["invitation"], "--no-up")
        worker.env["SHOAL_FAILPOINT"] = "send.started:stop"
        worker.up("--no-sandbox")
        pid = worker.info["pid"]
        with Client(f"unix:{boss.info['socket']}", name="boss") as client:
            spec = "command: [sleep, '600']"
            client.submit(pb.SubmitRequest(job_id="slow", yaml=spec))
            watched = client.watch("slow", PATIENCE_S)
            assigned = next(view for view in watched if view.state == pb.STATE_RUNNING)
            eventually(lambda: is_stopped(pid), PATIENCE_S)
            for _ in range(20):  # More than the watch looks again after a change.
                assert boss.json("show", "slow")["job"]["nodes"] == []
            os.kill(pid, signal.SIGCONT)
            begun = next(view for view in watched if view.nodes)

            assert not assigned.nodes
            assert [node.id for node in begun.nodes] == [worker.info["node"]]
            client.cancel("slow")


def is_stopped(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"
