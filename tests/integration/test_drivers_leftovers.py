"""What an earlier life of a worker left running is found and killed (I5, I11)."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.unit.drivers.orders import order, run

from shoal.drivers.supervisor import leftovers
from shoal.drivers.supervisor.leftovers import LeftoverProcess
from shoal.drivers.supervisor.process_tree import descendants

pytestmark = pytest.mark.integration

NODE = """
import asyncio, sys
from pathlib import Path
from tests.unit.drivers.orders import Watched, shell
from shoal.drivers.process import ProcessDriver, ProcessSettings

async def main():
    driver = ProcessDriver(Path(sys.argv[1]), ProcessSettings(sandbox=False))
    await driver.open()
    script = "trap '' TERM HUP; setsid sleep 1000 & sleep 1000 & echo $$; wait"
    async with asyncio.TaskGroup() as group:
        for _ in range(2):
            group.create_task(driver.run(shell(script), Printing()))

class Printing(Watched):
    async def wrote(self, stream, offset, data):
        print(data.decode(), end="", flush=True)

asyncio.run(main())
"""


def eventually(holds: Callable[[], bool], within_s: float = 10.0) -> bool:
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline:
        if holds():
            return True
        time.sleep(0.01)
    return False


def left(root: Path) -> list[LeftoverProcess]:
    return leftovers.marked(leftovers.worker_mark(root))


@pytest.fixture
def node(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """Start a process like a node, with two tasks of three processes each."""
    started = subprocess.Popen(
        [sys.executable, "-c", NODE, str(tmp_path)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert started.stdout is not None
    assert all(started.stdout.readline().strip().isdigit() for _ in range(2))
    # Two supervisors, and three processes of each task.
    assert eventually(lambda: len(left(tmp_path)) == 8)
    yield started
    started.kill()
    started.wait()
    started.stdout.close()
    leftovers.clear(tmp_path)


def test_tasks_die_with_a_node_that_was_killed(
    tmp_path: Path, node: subprocess.Popen[str]
) -> None:
    node.kill()

    assert eventually(lambda: left(tmp_path) == [], within_s=5)


def test_tasks_whose_supervisors_were_killed_too_are_found_and_killed(
    tmp_path: Path, node: subprocess.Popen[str]
) -> None:
    pids = [
        int(p.read_text().split()[0]) for p in sorted(tmp_path.glob("supervisor-*"))
    ]
    # Or it would notice the loss of a supervisor, and kill what is left of its task.
    os.kill(node.pid, signal.SIGSTOP)
    for pid in (*pids, node.pid):
        os.kill(pid, signal.SIGKILL)
    node.wait()
    assert eventually(lambda: len(left(tmp_path)) == 6)

    killed = leftovers.clear(tmp_path)

    assert killed == 6
    assert left(tmp_path) == []


def test_a_supervisor_that_hangs_is_killed_with_all_below_it(
    tmp_path: Path, node: subprocess.Popen[str]
) -> None:
    markers = sorted(tmp_path.glob("supervisor-*"))
    for marker in markers:
        os.kill(int(marker.read_text().split()[0]), signal.SIGSTOP)
    node.kill()
    node.wait()

    killed = leftovers.clear(tmp_path)

    assert killed == 8
    assert left(tmp_path) == []
    assert not any(marker.exists() for marker in markers)


def test_a_driver_clears_what_is_left_before_it_is_open(
    tmp_path: Path, node: subprocess.Popen[str]
) -> None:
    for marker in tmp_path.glob("supervisor-*"):
        os.kill(int(marker.read_text().split()[0]), signal.SIGSTOP)
    node.kill()
    node.wait()

    outcome, _ = run(tmp_path, order("/bin/true"))

    assert outcome.exit_code == 0
    assert left(tmp_path) == []


def test_what_is_below_a_supervisor_is_found_without_its_environment(
    tmp_path: Path,
) -> None:
    child = subprocess.Popen(
        ["/usr/bin/env", "-i", "/bin/sh", "-c", "sleep 1000 & wait"]
    )
    leftovers.write_marker(tmp_path / "supervisor-0", child.pid)
    assert eventually(lambda: len(descendants(child.pid)) == 1)
    [below] = descendants(child.pid)

    killed = leftovers.clear(tmp_path)
    child.wait()

    assert killed == 2
    assert leftovers.started_at(below) is None


def test_a_process_that_only_got_the_pid_of_an_old_one_lives(tmp_path: Path) -> None:
    child = subprocess.Popen(["/bin/sleep", "1000"])
    started = leftovers.started_at(child.pid)
    assert started is not None
    marker = tmp_path / "supervisor-0"
    for text in (
        f"{child.pid} {started - 1} {child.pid} {leftovers.boot_id()}",
        f"{child.pid} {started} {child.pid} another-boot",
        "nonsense",
    ):
        marker.write_text(text, encoding="ascii")
        assert leftovers.clear(tmp_path) == 0

    leftovers.kill([LeftoverProcess(child.pid, started - 1)], 0.1)

    assert child.poll() is None
    child.kill()
    child.wait()


def test_another_worker_of_the_same_machine_is_left_alone(tmp_path: Path) -> None:
    mine, other = tmp_path / "mine", tmp_path / "other"
    child = subprocess.Popen(
        ["/bin/sleep", "1000"], env={"SHOAL_WORKER": leftovers.worker_mark(other)}
    )

    assert leftovers.clear(mine) == 0

    assert child.poll() is None
    child.kill()
    child.wait()
