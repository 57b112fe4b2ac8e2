"""One sandbox for many tasks: nothing of one is there for the next (I11)."""

import asyncio
import ctypes
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from tests.unit.drivers.orders import Watched, order, run, shell, with_driver

from shoal.drivers import RunOrder
from shoal.drivers.process import ProcessDriver, ProcessSettings
from shoal.drivers.sandbox import bubblewrap
from shoal.drivers.supervisor import supervisors
from shoal.drivers.supervisor.leftovers import marked, worker_mark
from shoal.drivers.supervisor.supervisor_frames import frame
from shoal.model.ids import JobId
from shoal.model.resources import Allocation
from shoal.protocol.messages import Outcome

pytestmark = pytest.mark.integration

PYTHON = "/usr/bin/python3"
BOXED = ProcessSettings(processes_max=64)
PRELUDE = """
import ctypes, os, socket, time
libc = ctypes.CDLL(None, use_errno=True)
def connects(kind, address):
    try:
        socket.socket(kind, socket.SOCK_STREAM).connect(address); return True
    except OSError:
        return False
"""


@pytest.fixture
def root() -> Iterator[Path]:
    # Not below pytest's own folder, so that the path of a socket is short.
    folder = Path(tempfile.mkdtemp(prefix="shoal-rooms-"))
    found = bubblewrap.find(folder)
    if isinstance(found, str) or not found.stays or not Path(PYTHON).exists():
        pytest.skip(f"no sandbox stays here: {found}")
    yield folder
    shutil.rmtree(folder)


def one_after_another(root: Path, *scripts: str) -> list[str]:
    """Run tasks of one supervisor, hence in one sandbox; return what each said."""

    async def act(driver: ProcessDriver) -> list[str]:
        said: list[str] = []
        for script in scripts:
            watched = Watched()
            one = order(PYTHON, "-c", PRELUDE + script)
            outcome = await driver.run(one, watched)
            assert outcome.exit_code == 0, (outcome, watched.text("stderr"))
            said.append(watched.text())
        return said

    return with_driver(root, act, BOXED)


def test_nothing_of_a_task_is_there_for_the_next(root: Path) -> None:
    leaves = """
for path in ("/tmp/x", "/dev/shm/x", "/job/x"):
    open(path, "w").write("left")
shared = libc.shmget(0x5f1d5f1d, 4096, 0o1666)
assert shared >= 0
done, tell = os.pipe()
if os.fork() == 0:
    os.setsid()
    s = socket.socket(socket.AF_UNIX); s.bind("\\0left"); s.listen()
    print("made", flush=True)
    os.write(tell, b"!")
    time.sleep(1000)
os.read(done, 1)
"""
    looks = """
print(os.listdir("/tmp"), os.listdir("/dev/shm"), os.listdir("/job"))
print(libc.shmget(0x5f1d5f1d, 4096, 0) >= 0, connects(socket.AF_UNIX, "\\0left"))
print(len([n for n in os.listdir("/proc") if n.isdigit()]))
"""

    said = one_after_another(root, leaves, looks)

    assert said == ["made\n", "[] [] []\nFalse False\n1\n"]


def test_a_sandbox_is_built_once_for_many_tasks(root: Path) -> None:
    look = "print(os.stat('/proc/self/ns/mnt').st_ino, os.readlink('/proc/self'))"

    said = [line.split() for line in one_after_another(root, look, look)]

    assert said[0][0] == said[1][0]
    assert int(said[1][1]) > int(said[0][1])


MOUNTS = """
print(os.stat("/tmp").st_dev, os.stat("/job").st_ino, end=" ")
print(os.stat("/proc/self/ns/ipc").st_ino, os.listdir("/tmp"), os.listdir("/job"))
"""


def in_jobs(root: Path, *tasks: tuple[str, str]) -> list[str]:
    """Run tasks, each of a job, one after another; return what each said."""

    async def act(driver: ProcessDriver) -> list[str]:
        said: list[str] = []
        for job, script in tasks:
            watched = Watched()
            one = order(PYTHON, "-c", PRELUDE + script)
            task = msgspec.structs.replace(one.task, job=JobId(job))
            one = msgspec.structs.replace(one, task=task)
            outcome = await driver.run(one, watched)
            assert outcome.exit_code == 0, (outcome, watched.text("stderr"))
            said.append(watched.text())
        return said

    return with_driver(root, act, BOXED)


def test_folders_that_are_as_new_stay_for_the_next_task_of_the_job(root: Path) -> None:
    said = in_jobs(root, ("a", MOUNTS), ("a", MOUNTS), ("b", MOUNTS))

    assert said[0] == said[1]
    assert said[2].split()[:2] != said[1].split()[:2]


@pytest.mark.parametrize(
    "leaves",
    [
        "open('/tmp/x', 'w').close()",
        "open('/dev/shm/x', 'w').write('left')",
        "open('/job/x', 'w').close()",
        "os.mkdir('/tmp/x'); os.chmod('/job', 0o755)",
    ],
)
def test_the_next_task_of_a_job_sees_no_files_of_the_one_before(
    root: Path, leaves: str
) -> None:
    looks = "print(os.listdir('/tmp'), os.listdir('/dev/shm'), os.listdir('/job'))"
    looks += "; print(oct(os.stat('/job').st_mode))"

    said = in_jobs(root, ("a", leaves), ("a", looks))

    assert said == ["", "[] [] []\n0o40700\n"]


@pytest.mark.parametrize(
    "leaves",
    [
        "assert libc.semget(0x5f1d5f1d, 1, 0o1666) >= 0",
        "assert libc.msgget(0x5f1d5f1d, 0o1666) >= 0",
        "assert libc.mq_open(b'/left', os.O_CREAT | os.O_RDWR, 0o666, None) >= 0",
        "import resource; resource.prlimit(1, resource.RLIMIT_NOFILE, (8, 8))",
        "os.setpriority(os.PRIO_PROCESS, 1, 19)",
    ],
    ids=["semaphores", "messages", "queues", "limits", "priority"],
)
def test_a_sandbox_that_is_not_as_it_was_is_not_entered_again(
    root: Path, leaves: str
) -> None:
    first = "print(os.getpid())\n"  # In a new sandbox, they begin anew.
    looks = """
import resource
print(resource.getrlimit(resource.RLIMIT_NOFILE)[1] > 8, os.getpriority(0, 0) < 19)
"""
    said = in_jobs(root, ("a", first + leaves), ("a", first + looks))

    assert said[1] == f"{said[0]}True True\n"


def test_who_kills_the_keeper_of_a_sandbox_ends_its_task_and_no_other(
    root: Path,
) -> None:
    async def act(driver: ProcessDriver) -> list[tuple[str, int | None]]:
        watched, one = Watched(), shell("echo go; sleep 1000")
        running = asyncio.create_task(driver.run(one, watched))
        await watched.spoke.wait()
        for pid in await asyncio.to_thread(keepers, driver.mark):
            os.kill(pid, signal.SIGKILL)
        first = await running
        second = await driver.run(shell("exit 3"), Watched())
        return [(each.kind, each.exit_code) for each in (first, second)]

    assert with_driver(root, act, BOXED) == [("exited", 137), ("exited", 3)]
    assert marked(worker_mark(root)) == []


def keepers(mark: str) -> list[int]:
    """Return who is the first process of a namespace, below supervisors."""
    found: list[int] = []
    for process in marked(mark):
        status = Path(f"/proc/{process.pid}/status").read_text(encoding="utf-8")
        numbers = status.partition("NSpid:")[2].split("\n")[0].split()
        line = Path(f"/proc/{process.pid}/cmdline").read_bytes()
        if len(numbers) > 1 and numbers[-1] == "1" and b"bwrap" not in line:
            found.append(process.pid)
    return found


def test_a_program_that_cannot_run_says_why(root: Path) -> None:
    async def act(driver: ProcessDriver) -> Outcome:
        one = order("./run")
        given = driver.prepare(one.attempt)
        (given / "run").write_text("#!/nope\n", encoding="ascii")
        (given / "run").chmod(0o755)
        return await driver.run(order("./run", directory=given), Watched())

    outcome = with_driver(root, act, BOXED)

    assert outcome.kind == "not-started"
    assert "./run: No such file or directory" in outcome.reason


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="there is one CPU")
def test_each_task_keeps_to_its_own_cpus(root: Path) -> None:
    first, second = sorted(os.sched_getaffinity(0))[:2]

    async def act(driver: ProcessDriver) -> list[str]:
        said: list[str] = []
        for cpus in (1, 2, 1):
            watched = Watched()
            script = "print(len(os.sched_getaffinity(0)))"
            share = Allocation(cpu_milli=1_000 * cpus)
            one = order(PYTHON, "-c", PRELUDE + script, allocation=share)
            await driver.run(one, watched)
            said.append(watched.text())
        return said

    settings = ProcessSettings(cpus=(first, second))
    assert with_driver(root, act, settings) == ["1\n", "2\n", "1\n"]


# Where sandboxes do not stay, there is one for each task.


def in_passing(root: Path, one: RunOrder) -> tuple[Outcome, Watched]:
    """Run a task in a sandbox of its own, as on kernels where none stays."""

    async def act(driver: ProcessDriver) -> tuple[Outcome, Watched]:
        box, watched = driver._sandbox, Watched()
        assert box is not None
        driver._sandbox = msgspec.structs.replace(box, stays=False)
        return await driver.run(one, watched), watched

    return with_driver(root, act, BOXED)


def test_variables_of_a_task_do_not_reach_what_builds_its_sandbox(root: Path) -> None:
    outside = root / "outside"
    env = {"LD_DEBUG": "statistics", "LD_DEBUG_OUTPUT": str(outside), "MINE": "7"}

    outcome, watched = in_passing(root, shell("echo $MINE $SHOAL_SLOT.", env=env))

    assert outcome.exit_code == 0
    assert "7 .\n" in watched.text()  # The loader of the task itself says more.
    assert list(root.glob("outside*")) == []


def test_a_sandbox_of_one_task_has_the_filter_too(root: Path) -> None:
    script = """
for number in (250, 272, 425):
    print(libc.syscall(number, 0, 0, 0), ctypes.get_errno())
print(open("/proc/keys").read(), end="")
"""
    outcome, watched = in_passing(root, order(PYTHON, "-c", PRELUDE + script))

    assert outcome.exit_code == 0, watched.text("stderr")
    assert watched.text() == "-1 1\n" * 3


# Two tasks at the same time.


def test_tasks_share_no_memory_no_names_and_no_processes(root: Path) -> None:
    has = """
open("/dev/shm/x", "w").write("mine"); open("/tmp/x", "w").write("mine")
assert libc.shmget(0x5f1d5f1d, 4096, 0o1666) >= 0
assert libc.msgget(0x5f1d5f1d, 0o1666) >= 0
s = socket.socket(socket.AF_UNIX); s.bind("\\0mine"); s.listen()
print(os.getpid(), flush=True)
time.sleep(1000)
"""
    looks = """
print(os.listdir("/tmp"), os.listdir("/dev/shm"), os.listdir("/job"))
print(libc.shmget(0x5f1d5f1d, 4096, 0) >= 0, libc.msgget(0x5f1d5f1d, 0) >= 0)
print(connects(socket.AF_UNIX, "\\0mine"))
own = os.getpid()
seen = [n for n in os.listdir("/proc") if n.isdigit() and int(n) != own]
killed = []
for n in range(2, 3000):
    try:
        if n != own: os.kill(n, 0); killed.append(n)
    except OSError:
        pass
print(seen, killed)
"""

    async def act(driver: ProcessDriver) -> tuple[str, str]:
        first, watched = Watched(), Watched()
        one = order(PYTHON, "-c", PRELUDE + has)
        running = asyncio.create_task(driver.run(one, first))
        await first.spoke.wait()
        await driver.run(order(PYTHON, "-c", PRELUDE + looks), watched)
        driver.stop(one.attempt, 0.0)
        await running
        return first.text("stderr"), watched.text()

    complaint, said = with_driver(root, act, BOXED)

    assert complaint == ""
    assert said == "[] [] []\nFalse False\nFalse\n[] []\n"


def can_scope() -> bool:
    """Whether this kernel keeps a process from abstract sockets of others."""
    version: int = ctypes.CDLL(None).syscall(444, None, 0, 1)
    return version >= 6


@pytest.mark.skipif(not can_scope(), reason="needs Landlock of Linux 6.12")
def test_the_network_of_the_machine_comes_without_its_abstract_sockets(
    root: Path,
) -> None:
    name = f"shoal-probe-{os.getpid()}"
    script = f"""
s = socket.socket(socket.AF_UNIX); s.bind("\\0{name}-own"); s.listen()
print([connects(socket.AF_UNIX, "\\0{name}" + end) for end in ("-own", "")])
"""
    one = order(PYTHON, "-c", PRELUDE + script, network=True)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"\0{name}")
        listener.listen()

        _, watched = run(root, one, BOXED)

    assert watched.text() == "[True, False]\n", watched.text("stderr")


# Nonsense on the lines between node, supervisor and keeper.


@pytest.mark.parametrize(
    "said",
    [
        b"\xff\xff\xff\xffSx",  # longer than any frame
        frame(b"?", b""),
        frame(b"S", b"not an order"),
        frame(b"T", b"soon"),
    ],
    ids=["length", "kind", "order", "notice"],
)
def test_a_supervisor_that_is_told_nonsense_ends(said: bytes) -> None:
    ours, theirs = socket.socketpair()
    near, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs, near, far:
        pid = supervisors._spawn((theirs.fileno(), far.fileno()), "nobody", 0)
        theirs.close()

        ours.sendall(said)

        assert ours.recv(1) == b""
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 1


KEEPER_TRIAL = """
import os, socket
from shoal.drivers.sandbox.room_frames import Furnishing, RoomEntry
from shoal.drivers.sandbox.rooms import RoomError, SandboxRoom
room = SandboxRoom(argv, ())
for said in (b"x", b"\\0" * 100, os.urandom(1_000)):
    socket.send_fds(room.line, [said], [0, 1, 2])
    try:
        room._hear(b"S")
    except RoomError as error:
        print("refused:", error, flush=True)
room.line.send(b"?")
entry = RoomEntry(0, ("PATH=/bin",), ("echo", "still there"))
room.start(Furnishing(directory, 0), entry, (0, 1, 2))
print(room.ended())
room.close()
"""


def test_a_keeper_that_is_told_nonsense_says_so_and_goes_on(root: Path) -> None:
    box = bubblewrap.find(root)
    assert isinstance(box, bubblewrap.Sandbox)
    work = root / "a.work"
    work.mkdir()
    if (uid := box.uid_of(0)) is not None:
        os.chown(work, uid, uid)
    argv = box.room(bubblewrap.Box(directory=str(root)))
    script = f"argv, directory = {argv!r}, {str(work)!r}\n{KEEPER_TRIAL}"

    done = subprocess.run(
        [sys.executable, "-c", script], check=False, capture_output=True, timeout=20
    )

    *refused, said, code = done.stdout.decode().splitlines()
    assert [line.partition(":")[0] for line in refused] == ["refused"] * 3, done.stderr
    assert (said, code) == ("still there", "0")
