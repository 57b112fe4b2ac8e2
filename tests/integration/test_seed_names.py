"""The commands of the first training scheduler, word for word."""

import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.integration.cli_home import TIMEOUT_S, CliHome, homes

pytestmark = pytest.mark.integration

TWO_GPUS = ("--gpus=0,1", "--models=RTX3090,RTX3090", "--memories=24576,24576")


class Shop:
    """A server, and workers that were started with nothing but its address."""

    def __init__(self, make: Callable[[str], CliHome], end: ExitStack) -> None:
        self._make, self._end = make, end
        self.server = self.start("server", "server", "--port=0", "--policy=balanced")
        self.address = f"--scheduler={self.server.info['api']}"

    def start(self, name: str, *args: str) -> CliHome:
        """Run a command that serves; it ends with the test."""
        home = self._make(name)
        process = home.start(*args)
        self._end.callback(_end, process)
        self.wait_for((home.path / "node.json").exists)
        return home

    def wait_for(self, condition: Callable[[], bool]) -> None:
        """Look until something is so."""
        until = time.monotonic() + TIMEOUT_S
        while not condition():
            assert time.monotonic() < until
            time.sleep(0.1)


def _end(process: subprocess.Popen[str]) -> None:
    process.terminate()
    process.communicate(timeout=TIMEOUT_S)


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    with homes(tmp_path) as make, ExitStack() as end:
        yield Shop(make, end)


def token_of(home: CliHome) -> str:
    return (home.path / "api.token").read_text().strip()


def test_a_worker_with_only_an_address_runs_what_is_submitted(shop: Shop) -> None:
    worker = shop.start("worker", "worker", shop.address, *TWO_GPUS)

    script = "echo $CUDA_VISIBLE_DEVICES"
    job = shop.server.ok(
        "submit", shop.address, "--name=x", "--gpus=2", "--memory=8192", "-q",
        "--", "sh", "-c", script,
    ).strip()  # fmt: skip

    assert shop.server("wait", shop.address, job).code == 0
    assert shop.server.ok("logs", shop.address, job) == "0,1\n"
    nodes = shop.server.json("nodes", shop.address)["nodes"]
    assert {node["petname"] for node in nodes} == {
        shop.server.info["petname"],
        worker.info["petname"],
    }


POLICY = """
from shoal.policy.custom import Assignment

class Last:
    def assign(self, workers, task):
        for worker in workers.values():
            if worker.fits(task) and task.profile.gpu:
                return Assignment(worker.id, (worker.capacity.devices[-1].id,))
        return "there is no worker with a GPU"
"""


def test_a_task_gets_the_gpu_that_a_policy_of_ones_own_names(tmp_path: Path) -> None:
    package = tmp_path / "package"
    told = package / "last_gpu-1.dist-info"
    told.mkdir(parents=True)
    (package / "last_gpu.py").write_text(POLICY)
    (told / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: last-gpu\nVersion: 1\n"
    )
    (told / "entry_points.txt").write_text("[shoal.policies]\nlast = last_gpu:Last\n")
    with homes(tmp_path) as make:
        home = make("only")
        home.env["PYTHONPATH"] = str(package)
        bare = ("--port=0", "--without=p2p", "--no-sandbox", "--policy=last")
        home.up(*bare, "--gpus=0,1,2", "--memories=8192,8192,8192")

        shown = [
            home.ok("run", "--gpus=1", "--", "sh", "-c", "echo $CUDA_VISIBLE_DEVICES")
            for _ in range(2)
        ]

    assert shown == ["2\n", "2\n"]  # Of equal GPUs, the first would be chosen.


def test_all_commands_of_the_servers_user_may_ask_it_from_any_home(
    shop: Shop, tmp_path: Path
) -> None:
    elsewhere = CliHome(tmp_path / "elsewhere")

    job = elsewhere.ok("submit", shop.address, "-q", "--", "true").strip()

    assert job in [each["id"] for each in shop.server.json("ps")["jobs"]]


def test_workers_of_the_servers_own_user_need_no_token(shop: Shop) -> None:
    home = shop.server
    process = home.start("worker", shop.address, "--gpus=0", "--models=A100")
    try:
        own = home.path / "workers" / "1" / "node.json"
        shop.wait_for(own.exists)
        shop.wait_for(lambda: len(home.json("nodes")["nodes"]) == 2)
    finally:
        _end(process)


def test_a_stranger_is_told_how_to_get_a_token(shop: Shop, tmp_path: Path) -> None:
    stranger = CliHome(tmp_path / "stranger")

    pin = token_of(shop.server).partition(".")[2]
    done = stranger("worker", shop.address, f"--token=stale.{pin}")
    unnamed = stranger("worker", shop.address, "--token=stale")

    assert done.code == unnamed.code == 106
    assert "that is not its token" in done.err
    assert "--token" in done.err
    assert "does not say whose it is" in unnamed.err


def test_lists_of_unequal_length_are_refused(shop: Shop, tmp_path: Path) -> None:
    home = CliHome(tmp_path / "other")
    token = f"--token={token_of(shop.server)}"

    done = home("worker", shop.address, token, "--gpus=0,1", "--models=A100")

    assert done.code == 2, done
    assert not (home.path / "membership.json").exists()  # It has joined nothing.


def test_a_scheduler_that_is_not_there_is_named(tmp_path: Path) -> None:
    done = CliHome(tmp_path / "lone")("worker", "--scheduler=localhost:1")

    assert done.code == 105
    assert "localhost:1" in done.err
