"""A hostile task in a sandbox: it tries to get out, and gets nowhere (I11).

Each probe is a program that prints `ESCAPED` if it got what it must not get. The node
that it attacks is this process, with a key, an API socket and another task's work
directory. A probe that prints nothing at all proves nothing, so each also prints
`TRIED`.
"""

import asyncio
import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import msgspec
import pytest
from tests.integration.escape_probes import PRELUDE, PROBES, Node
from tests.unit.drivers.orders import Watched, order, run, shell, with_driver

from shoal.drivers.process import ProcessDriver, ProcessSettings
from shoal.drivers.sandbox import bubblewrap
from shoal.drivers.supervisor.leftovers import marked, worker_mark
from shoal.model.ids import TaskId
from shoal.model.resources import Allocation
from shoal.protocol.messages import Outcome

pytestmark = pytest.mark.integration

PYTHON = "/usr/bin/python3"
LONG_S = 60.0
BOXED = ProcessSettings(processes_max=64)


def working_sandbox() -> str:
    """Return why no sandbox works here; empty if one does."""
    with tempfile.TemporaryDirectory() as folder:
        found = bubblewrap.find(Path(folder))
    if isinstance(found, str):
        return found
    return "" if Path(PYTHON).exists() else f"no {PYTHON} for the probes"


if why := working_sandbox():
    pytest.skip(f"the sandbox is not tested: {why}", allow_module_level=True)


@contextmanager
def lent_node(patch: pytest.MonkeyPatch) -> Iterator[Node]:
    patch.setenv("NODE_SECRET", "s3cret")
    # Not below pytest's own folder, so that a path to it is as open as can be.
    home = Path(tempfile.mkdtemp(prefix="shoal-node-"))
    home.chmod(0o755)
    made = Node(home)
    yield made
    made.close()
    shutil.rmtree(home)


@pytest.fixture
def node(monkeypatch: pytest.MonkeyPatch) -> Iterator[Node]:
    with lent_node(monkeypatch) as made:
        yield made


class Besieged(NamedTuple):
    """A node that one attacker after another attacks, and what runs their tasks."""

    node: Node
    driver: ProcessDriver
    loop: asyncio.Runner


@pytest.fixture(scope="module")
def besieged() -> Iterator[Besieged]:
    with (
        pytest.MonkeyPatch.context() as patch,
        lent_node(patch) as node,
        asyncio.Runner() as loop,
    ):
        driver = ProcessDriver(node.root, BOXED)
        loop.run(driver.open())
        yield Besieged(node, driver, loop)
        loop.run(driver.close())


@pytest.mark.parametrize("name", PROBES)
def test_a_task_gets_nowhere_by(besieged: Besieged, name: str) -> None:
    node, driver, loop = besieged
    probe = f"{PRELUDE}\nprint('TRIED', flush=True)\n{PROBES[name]}\nprint('DONE')"
    one = order(PYTHON, "-c", probe, env=node.names())
    watched = Watched()

    outcome = loop.run(asyncio.wait_for(driver.run(one, watched), LONG_S))

    assert watched.text().startswith("TRIED"), (outcome, watched.text("stderr"))
    assert "ESCAPED" not in watched.text()
    assert node.victim.poll() is None
    if "killing everything" not in name:
        assert "DONE" in watched.text(), watched.text("stderr")


IN_PASSING = (
    "reading the key of the node",
    "seeing processes of the node",
    "getting out by open files of its own",
    "gaining rights by a setuid program",
    "reading keys that the kernel keeps for the user",
    "calls that the filter denies",
    "calls of 32-bit programs",
    "making a namespace with a new process",
    "changing settings of the kernel",
)


def test_a_sandbox_for_one_task_holds_as_well(node: Node) -> None:
    async def act(driver: ProcessDriver) -> dict[str, str]:
        box = driver._sandbox
        assert box is not None
        driver._sandbox = msgspec.structs.replace(box, stays=False)
        said: dict[str, str] = {}
        for name in IN_PASSING:
            script = f"{PRELUDE}\nprint('TRIED')\n{PROBES[name]}\nprint('DONE')"
            watched = Watched()
            await driver.run(order(PYTHON, "-c", script, env=node.names()), watched)
            said[name] = watched.text()
        return said

    assert with_driver(node.root, act, BOXED) == dict.fromkeys(
        IN_PASSING, "TRIED\nDONE\n"
    )


def test_there_are_enough_probes() -> None:
    assert len(PROBES) >= 45


# Fields that an attacker fills do not reach those after them.

SHIFTS = range(8, 24)
"""How many fields lie between an id and the command that builds the sandbox."""


def shifted(count: int, marker: Path) -> str:
    """Return a text that would move a command over that, if NULs ended fields."""
    return "t" + "\0x" * count + f"\0/bin/sh\0-c\0id > {marker} #"


def test_an_id_with_nuls_runs_nothing_outside_the_sandbox(node: Node) -> None:
    marker = node.home / "outside"

    async def act(driver: ProcessDriver) -> set[str]:
        ends: set[str] = set()
        for count in SHIFTS:
            one = order("/bin/true")
            bad = TaskId(shifted(count, marker))
            task = msgspec.structs.replace(one.task, id=bad)
            outcome = await driver.run(
                msgspec.structs.replace(one, task=task), Watched()
            )
            ends.add(f"{outcome.kind}: {outcome.reason}")
        return ends

    ends = with_driver(node.root, act, BOXED)

    assert not marker.exists()
    assert ends == {
        "not-started: the id of a task cannot be used: a text contains a NUL byte"
    }


def test_a_secret_and_a_checkpoint_with_nuls_run_nothing_outside(node: Node) -> None:
    marker = node.home / "outside"

    async def act(driver: ProcessDriver) -> set[str]:
        ends: set[str] = set()
        for count in SHIFTS:
            bad = shifted(count, marker)
            secret = order("/bin/true", given={"S": bad}, secrets=("S",))
            path = msgspec.structs.replace(order("/bin/true"), checkpoint=bad)
            ends |= {(await driver.run(one, Watched())).kind for one in (secret, path)}
        return ends

    ends = with_driver(node.root, act, BOXED)

    assert not marker.exists()
    assert ends == {"not-started"}


HARMLESS = (
    "reading the key of the node",
    "listing the home of the node",
    "reading the work of another task",
    "seeing processes of the node",
    "reading the environment of the node",
    "reading the environment of whoever started it",
    "getting out by the root of another process",
    "killing a process outside",
    "tracing a process outside",
    "reaching a server of the machine",
    "talking to the API of the node",
    "talking to an abstract socket of the machine",
    "leading out by a symbolic link",
    "leading out by dots",
    "opening devices of the machine",
    "reading where its folders lie outside",
    "reading who lends the machine",
    "calls that the filter denies",
    "calls of 32-bit programs",
    "making a namespace with a new process",
    "tracing a process of its own",
    "sockets of rare families",
)


@pytest.mark.parametrize("name", HARMLESS)
def test_without_a_sandbox_a_task_gets_out_by(node: Node, name: str) -> None:
    one = order(PYTHON, "-c", PRELUDE + PROBES[name], env=node.names())

    _, watched = run(node.home / "plain", one, ProcessSettings(sandbox=False))

    assert "ESCAPED" in watched.text()


# What is bounded.


def boxed(
    root: Path, script: str, allocation: Allocation | None = None
) -> tuple[Outcome, Watched]:
    one = order(PYTHON, "-c", PRELUDE + script, allocation=allocation)
    return run(root, one, BOXED)


def test_a_fork_bomb_stops_at_the_limit_of_processes(node: Node) -> None:
    script = """
made = 0
try:
    while True:
        if os.fork() == 0:
            time.sleep(60)
        made += 1
except OSError:
    print(made)
"""
    outcome, watched = boxed(node.root, script)

    assert outcome.exit_code == 0
    assert 0 < int(watched.text()) < 64
    assert marked(worker_mark(node.root)) == []


def test_tmp_is_its_own_and_has_a_size(node: Node) -> None:
    script = """
open("/tmp/mine", "w").write("x")
print(sorted(os.listdir("/tmp")), flush=True)
try:
    with open("/tmp/large", "wb") as file:
        for _ in range(64):
            file.write(bytes(1 << 20))
    print("no limit")
except OSError as error:
    print(error.strerror)
"""
    limit = Allocation(memory_bytes=32 << 20)

    outcome, watched = boxed(node.root, script, allocation=limit)

    assert watched.text() == "['mine']\n"
    assert outcome.reason.endswith("its limit is 32 MiB")


# What works all the same.


def test_a_task_writes_to_its_work_directory_and_the_node_reads_it(node: Node) -> None:
    async def act(driver: ProcessDriver) -> tuple[str, bytes]:
        watched = Watched()
        one = shell("pwd; echo made > file; id -u")
        await driver.run(one, watched)
        made = driver.prepare(one.attempt) / "file"
        return watched.text(), await asyncio.to_thread(made.read_bytes)

    said, made = with_driver(node.root, act, BOXED)

    assert said == "/job\n1000\n"
    assert made == b"made\n"


def test_a_task_finds_the_files_that_the_host_put_there(node: Node) -> None:
    async def act(driver: ProcessDriver) -> str:
        watched, one = Watched(), order("./run.sh")
        given = driver.prepare(one.attempt)
        (given / "sub").mkdir()
        (given / "sub" / "data").write_text("data\n", encoding="ascii")
        (given / "run.sh").write_text(
            "#!/bin/sh\ncat sub/data; echo more >> sub/data\n", encoding="ascii"
        )
        (given / "run.sh").chmod(0o755)
        filled = order("./run.sh", directory=given)
        outcome = await driver.run(filled, watched)
        assert outcome.exit_code == 0, watched.text("stderr")
        return watched.text() + (given / "sub" / "data").read_text(encoding="ascii")

    assert with_driver(node.root, act, BOXED) == "data\ndata\nmore\n"


def test_a_program_that_is_not_inside_is_not_started(node: Node) -> None:
    for argv, reason in (
        (("nope",), "no such program in the sandbox: 'nope'"),
        ((str(node.key),), f"no such program in the sandbox: '{node.key}'"),
        (("/usr/lib",), "not executable: '/usr/lib'"),
    ):
        outcome, _ = run(node.root, order(*argv), BOXED)
        assert (outcome.kind, outcome.reason) == ("not-started", reason)


def test_a_job_that_asks_for_the_network_gets_it(node: Node) -> None:
    script = (
        'print(connects(socket.AF_INET, ("127.0.0.1", int(E["PORT"]))), '
        'os.path.exists("/etc/resolv.conf"), reads(E["KEY_FILE"]))'
    )
    one = order(PYTHON, "-c", PRELUDE + script, env=node.names(), network=True)

    _, watched = run(node.root, one, BOXED)

    assert watched.text() == f"True {Path('/etc/resolv.conf').exists()} \n"


def test_a_folder_that_the_owner_opened_can_be_read_and_not_written(
    node: Node,
) -> None:
    shown = node.home / "data"
    shown.mkdir()
    (shown / "set").write_text("numbers\n", encoding="ascii")
    settings = ProcessSettings(readable=(str(shown),))

    _, watched = run(
        node.root, shell(f"cat {shown}/set; touch {shown}/new || echo no"), settings
    )

    assert watched.text() == "numbers\nno\n"


def test_figures_come_out_of_a_sandbox(node: Node) -> None:
    script = """
s = socket.socket(socket.AF_UNIX); s.connect(E["SHOAL_SOCKET"])
s.sendall(b'{"metrics": {"loss": 0.5}, "step": 3, "progress": 0.25}\\n')
"""
    outcome, watched = boxed(node.root, script)

    assert outcome.exit_code == 0
    assert watched.figures == [(0.25, {"loss": 0.5, "step": 3.0})]


def test_a_stop_reaches_the_task_inside_and_gives_it_time(node: Node) -> None:
    script = "trap 'echo saved; exit 5' TERM; echo go; while :; do sleep 0.01; done"

    async def act(driver: ProcessDriver) -> tuple[int | None, str]:
        watched, one = Watched(), shell(script)
        running = asyncio.create_task(driver.run(one, watched))
        await watched.spoke.wait()
        driver.stop(one.attempt, 20.0)
        return (await running).exit_code, watched.text()

    assert with_driver(node.root, act, BOXED) == (5, "go\nsaved\n")


def test_a_daemon_inside_ends_with_its_task(node: Node) -> None:
    outcome, watched = run(node.root, shell("setsid sleep 1000 & echo go"), BOXED)

    assert outcome.exit_code == 0
    assert watched.text() == "go\n"
    assert marked(worker_mark(node.root)) == []


def test_a_sandbox_dies_with_its_supervisor(node: Node) -> None:
    async def act(driver: ProcessDriver) -> str:
        watched, one = Watched(), shell("echo go; sleep 1000")
        running = asyncio.create_task(driver.run(one, watched))
        await watched.spoke.wait()
        markers = await asyncio.to_thread(lambda: list(node.root.glob("supervisor-*")))
        for marker in markers:
            os.kill(int(marker.read_text(encoding="ascii").split()[0]), signal.SIGKILL)
        async with asyncio.timeout(60):
            return (await running).kind

    assert with_driver(node.root, act, BOXED) == "lost"
    assert marked(worker_mark(node.root)) == []


def test_an_exit_code_and_a_signal_come_through(node: Node) -> None:
    codes = [
        run(node.root, shell(script), BOXED)[0].exit_code
        for script in ("exit 7", "kill -SEGV $$")
    ]

    assert codes == [7, 128 + signal.SIGSEGV]


def command_lines(mark: str) -> bytes:
    found = marked(mark)
    return b"".join(Path(f"/proc/{p.pid}/cmdline").read_bytes() for p in found)


def test_secrets_are_not_in_any_command_line(node: Node) -> None:
    async def act(driver: ProcessDriver) -> bytes:
        watched = Watched()
        script = "echo $TOKEN; sleep 5"
        one = shell(script, given={"TOKEN": "s3cr3t"}, secrets=("TOKEN",))
        running = asyncio.create_task(driver.run(one, watched))
        await watched.spoke.wait()
        lines = command_lines(driver.mark)
        driver.stop(one.attempt, 0.0)
        await running
        assert watched.text() == "s3cr3t\n"
        return lines

    lines = with_driver(node.root, act, BOXED)

    assert b"bwrap" in lines
    assert b"echo $TOKEN" in lines
    assert b"s3cr3t" not in lines
