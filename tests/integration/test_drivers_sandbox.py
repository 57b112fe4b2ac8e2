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
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from tests.unit.drivers.orders import Watched, order, run, shell, with_driver

from shoal.drivers import sandbox
from shoal.drivers.leftovers import marked, worker_mark
from shoal.drivers.process import ProcessDriver, Settings
from shoal.model.ids import TaskId
from shoal.model.resources import Allocation
from shoal.protocol.messages import Outcome

pytestmark = pytest.mark.integration

PYTHON = "/usr/bin/python3"
BOXED = Settings(processes_max=64)
KEY = "node-key-5f1d"


def working_sandbox() -> str:
    """Return why no sandbox works here; empty if one does."""
    with tempfile.TemporaryDirectory() as folder:
        found = sandbox.find(Path(folder))
    if isinstance(found, str):
        return found
    return "" if Path(PYTHON).exists() else f"no {PYTHON} for the probes"


if why := working_sandbox():
    pytest.skip(f"the sandbox is not tested: {why}", allow_module_level=True)


class Node:
    """What a task must not reach."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.root = home / "tasks"
        self.key = home / "node.key"
        self.key.write_text(KEY, encoding="ascii")
        self.other = self.root / "other.work"
        self.other.mkdir(parents=True)
        (self.other / "data").write_text(KEY, encoding="ascii")
        self.api = socket.socket(socket.AF_UNIX)
        self.api.bind(str(home / "node.sock"))
        (home / "node.sock").chmod(0o777)
        self.api.listen()
        self.abstract = socket.socket(socket.AF_UNIX)
        self.abstract.bind(f"\0shoal-probe-{os.getpid()}")
        self.abstract.listen()
        self.web = socket.create_server(("127.0.0.1", 0))
        self.victim = subprocess.Popen(["/bin/sleep", "100"])

    def names(self) -> dict[str, str]:
        return {
            "HOME_DIR": str(self.home),
            "KEY_FILE": str(self.key),
            "OTHER": str(self.other),
            "API": str(self.home / "node.sock"),
            "ABSTRACT": f"shoal-probe-{os.getpid()}",
            "PORT": str(self.web.getsockname()[1]),
            "NODE_PID": str(os.getpid()),
            "VICTIM": str(self.victim.pid),
            "KEY": KEY,
        }

    def close(self) -> None:
        self.victim.kill()
        self.victim.wait()
        for each in (self.api, self.abstract, self.web):
            each.close()


@pytest.fixture
def node(monkeypatch: pytest.MonkeyPatch) -> Iterator[Node]:
    monkeypatch.setenv("NODE_SECRET", "s3cret")
    # Not below pytest's own folder, so that a path to it is as open as can be.
    home = Path(tempfile.mkdtemp(prefix="shoal-node-"))
    home.chmod(0o755)
    made = Node(home)
    yield made
    made.close()
    shutil.rmtree(home)


PRELUDE = """
import ctypes, errno, os, socket, stat, subprocess, sys, time
E = os.environ
libc = ctypes.CDLL(None, use_errno=True)
def escaped(what=""): print("ESCAPED", what, flush=True)
def reads(path):
    try:
        return open(path, errors="replace").read(4096)
    except OSError:
        return ""
def connects(kind, address):
    s = socket.socket(kind, socket.SOCK_STREAM); s.settimeout(1)
    try:
        s.connect(address); return True
    except OSError:
        return False
def works(call, *args):
    return call(*args) == 0
"""

PROBES = {
    "reading the key of the node": "if reads(E['KEY_FILE']): escaped()",
    "listing the home of the node": "if os.path.exists(E['HOME_DIR']): escaped()",
    "reading the work of another task": "if reads(E['OTHER'] + '/data'): escaped()",
    "finding the key anywhere it can look": """
found = subprocess.run(["grep", "-rlsF", "--exclude-dir=usr", "--exclude-dir=proc",
    "--exclude-dir=sys", E["KEY"], "/"], capture_output=True, timeout=20, env={})
if found.stdout: escaped(found.stdout)
""",
    "reading users' homes": """
for home in ("/root", "/home"):
    if os.path.exists(home): escaped(home)
""",
    "reading password hashes": "if reads('/etc/shadow'): escaped()",
    "reading host keys and settings": """
for path in ("/etc/ssh", "/etc/sudoers", "/etc/machine-id", "/var", "/boot", "/srv"):
    if os.path.exists(path): escaped(path)
""",
    "seeing processes of the node": """
if len([n for n in os.listdir("/proc") if n.isdigit()]) > 8: escaped()
for n in os.listdir("/proc"):
    if n.isdigit() and "TRIED" not in reads(f"/proc/{n}/cmdline"): escaped(n)
""",
    "reading the environment of the node": """
if reads(f"/proc/{E['NODE_PID']}/environ"): escaped()
""",
    "getting out by the root of another process": """
for n in os.listdir("/proc"):
    if n.isdigit() and os.path.exists(f"/proc/{n}/root" + E["KEY_FILE"]): escaped(n)
""",
    "getting out by the working directory of another process": """
for n in os.listdir("/proc"):
    if n.isdigit() and reads(f"/proc/{n}/cwd/" + E["KEY_FILE"]): escaped(n)
""",
    "getting out by open files of its own": """
for fd in os.listdir("/proc/self/fd"):
    try:
        target = os.readlink(f"/proc/self/fd/{fd}")
    except OSError:
        continue
    if int(fd) > 2 and not target.startswith(("/proc", "/job")): escaped(target)
""",
    "killing a process outside": """
try:
    os.kill(int(E["VICTIM"]), 9); escaped()
except (ProcessLookupError, PermissionError):
    pass
""",
    "killing everything it can": """
child = os.fork()
if child == 0:
    try:
        os.kill(-1, 9)
    except OSError:
        pass
    os._exit(0)
os.waitpid(child, 0)
""",
    "tracing a process outside": """
if works(libc.ptrace, 16, int(E["VICTIM"]), 0, 0): escaped()
""",
    "reading the environment of whoever started it": """
for n in os.listdir("/proc"):
    if n.isdigit() and "NODE_SECRET" in reads(f"/proc/{n}/environ"): escaped(n)
""",
    "reaching a server of the machine": """
if connects(socket.AF_INET, ("127.0.0.1", int(E["PORT"]))): escaped()
""",
    "reaching the network": """
links = "/sys/class/net"
names = os.listdir(links) if os.path.isdir(links) else []
if [n for n in names if n != "lo"]: escaped(names)
if connects(socket.AF_INET, ("1.1.1.1", 53)): escaped("1.1.1.1")
routes = reads("/proc/net/route").splitlines()[1:]
if routes: escaped(routes)
""",
    "sending raw packets": """
for family, kind in ((socket.AF_INET, socket.SOCK_RAW), (17, socket.SOCK_RAW)):
    try:
        socket.socket(family, kind, 1); escaped(family)
    except OSError:
        pass
""",
    "talking to the API of the node": """
if connects(socket.AF_UNIX, E["API"]): escaped()
""",
    "talking to an abstract socket of the machine": """
if connects(socket.AF_UNIX, "\\0" + E["ABSTRACT"]): escaped()
""",
    "finding sockets of the machine": """
for path in ("/run/docker.sock", "/var/run/docker.sock", "/run/dbus", "/run/systemd",
    "/run/user", "/tmp/.X11-unix", "/run/podman"):
    if os.path.exists(path): escaped(path)
others = [n for n in os.listdir("/run") if n != "shoal.sock"]
if others: escaped(others)
""",
    "writing outside its work directory": """
for path in ("/", "/usr", "/usr/bin", "/etc", "/bin", "/lib", "/run", "/dev", "/sys",
    "/proc/sys/kernel", "/sys/fs/cgroup"):
    try:
        open(path + "/probe", "w"); escaped(path)
    except OSError:
        pass
""",
    "replacing a program of the machine": """
try:
    open("/usr/bin/env", "r+b"); escaped()
except OSError:
    pass
""",
    "leading out by a symbolic link": """
os.symlink(E["KEY_FILE"], "link"); os.symlink("/", "root")
if reads("link") or reads("root" + E["KEY_FILE"]): escaped()
""",
    "leading out by dots": """
if reads("../../../../../.." + E["KEY_FILE"]) or reads("/job/../" + E["KEY_FILE"]):
    escaped()
os.chdir("..")
if os.path.exists("stdout") or os.path.exists("sockets"): escaped("beside it")
""",
    "linking to a file outside": """
for source in ("/usr/bin/env", E["KEY_FILE"]):
    try:
        os.link(source, "hard"); escaped(source)
    except OSError:
        pass
""",
    "mounting": """
if works(libc.mount, b"none", b"/tmp", b"tmpfs", 0, None): escaped("tmpfs")
if works(libc.mount, b"/usr", b"/usr", None, 32 | 4096, None): escaped("remount")
if works(libc.umount2, b"/usr", 2): escaped("umount")
""",
    "making a device": """
for number in (os.makedev(8, 0), os.makedev(254, 0), os.makedev(1, 1)):
    try:
        os.mknod("disk", 0o600 | stat.S_IFBLK, number); escaped()
    except OSError:
        pass
    try:
        os.mknod("memory", 0o600 | stat.S_IFCHR, number); escaped()
    except OSError:
        pass
""",
    "opening devices of the machine": """
for name in os.listdir("/dev"):
    mode = os.lstat("/dev/" + name).st_mode
    if stat.S_ISBLK(mode): escaped(name)
for path in ("/dev/kmsg", "/dev/mem", "/dev/kvm", "/dev/fuse", "/dev/vda", "/dev/sda",
    "/dev/nvidia0", "/dev/loop-control"):
    if os.path.exists(path): escaped(path)
""",
    "becoming root": """
for call in (lambda: os.setuid(0), lambda: os.setresuid(0, 0, 0), lambda: os.setgid(0)):
    try:
        call(); escaped()
    except OSError:
        pass
""",
    "gaining rights by a setuid program": """
status = reads("/proc/self/status")
if "NoNewPrivs:\\t1" not in status: escaped("new privileges")
for line in status.splitlines():
    if line.startswith("Cap") and int(line.split()[1], 16): escaped(line)
""",
    "making a namespace in which it is root": """
for flags in (0x10000000, 0x10000000 | 0x20000, 0x20000, 0x40000000, 0x20000000):
    if works(libc.unshare, flags): escaped(hex(flags))
""",
    "entering a namespace of the machine": """
for n in [n for n in os.listdir("/proc") if n.isdigit()] + [E["NODE_PID"]]:
    for kind in ("mnt", "net", "user", "pid"):
        try:
            fd = os.open(f"/proc/{n}/ns/{kind}", os.O_RDONLY)
        except OSError:
            continue
        if works(libc.setns, fd, 0) and os.path.exists(E["KEY_FILE"]): escaped(kind)
""",
    "changing the kernel": """
for path in ("/proc/sys/kernel/core_pattern", "/proc/sys/kernel/hostname",
    "/proc/sysrq-trigger", "/proc/sys/vm/drop_caches", "/sys/power/state"):
    try:
        os.open(path, os.O_WRONLY); escaped(path)
    except OSError:
        pass
if works(libc.init_module, None, 0, b""): escaped("module")
if works(libc.sethostname, b"x", 1): escaped("hostname")
if works(libc.reboot, 0): escaped("reboot")
""",
    "leaving the root directory": """
os.makedirs("jail", exist_ok=True)
try:
    os.chroot("jail"); escaped()
except OSError:
    pass
""",
    "opening a file by its handle": """
class Handle(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_uint), ("type", ctypes.c_int),
        ("data", ctypes.c_ubyte * 128)]
handle = Handle(bytes=8, type=1); handle.data[0] = 2
fd = os.open("/usr", os.O_RDONLY)
if libc.open_by_handle_at(fd, ctypes.byref(handle), os.O_RDONLY) >= 0: escaped()
""",
    "pushing input into a terminal": """
import fcntl, termios
for fd in (0, 1, 2):
    try:
        fcntl.ioctl(fd, termios.TIOCSTI, b"x"); escaped()
    except OSError:
        pass
try:
    os.open("/dev/tty", os.O_RDWR); escaped("tty")
except OSError:
    pass
""",
    "sharing memory with the machine": """
if libc.shmget(0x5f1d5f1d, 1, 0) >= 0: escaped()
if [n for n in os.listdir("/dev/shm")]: escaped(os.listdir("/dev/shm"))
""",
    "reading keys that the kernel keeps for the user": """
KEYCTL = 250
ring = libc.syscall(KEYCTL, 0, -4, 0)
if ring >= 0 and E["KEY"] in reads("/proc/keys"): escaped()
""",
}


@pytest.mark.parametrize("name", PROBES)
def test_a_task_gets_nowhere_by(node: Node, name: str) -> None:
    probe = f"{PRELUDE}\nprint('TRIED', flush=True)\n{PROBES[name]}\nprint('DONE')"
    one = order(PYTHON, "-c", probe, env=node.names())

    outcome, watched = run(node.root, one, BOXED)

    assert watched.text().startswith("TRIED"), (outcome, watched.text("stderr"))
    assert "ESCAPED" not in watched.text()
    assert node.victim.poll() is None
    if "killing everything" not in name:
        assert "DONE" in watched.text(), watched.text("stderr")


def test_there_are_enough_probes() -> None:
    assert len(PROBES) >= 25


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
)


@pytest.mark.parametrize("name", HARMLESS)
def test_without_a_sandbox_a_task_gets_out_by(node: Node, name: str) -> None:
    one = order(PYTHON, "-c", PRELUDE + PROBES[name], env=node.names())

    _, watched = run(node.home / "plain", one, Settings(sandbox=False))

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
print(sorted(os.listdir("/tmp")))
try:
    with open("/tmp/large", "wb") as file:
        for _ in range(64):
            file.write(bytes(1 << 20))
    print("no limit")
except OSError as error:
    print(error.strerror)
"""
    limit = Allocation(memory_bytes=32 << 20)

    _, watched = boxed(node.root, script, allocation=limit)

    assert watched.text() == "['mine']\nNo space left on device\n"


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
    settings = Settings(readable=(str(shown),))

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


def test_a_sandbox_dies_with_its_warden(node: Node) -> None:
    async def act(driver: ProcessDriver) -> str:
        watched, one = Watched(), shell("echo go; sleep 1000")
        running = asyncio.create_task(driver.run(one, watched))
        await watched.spoke.wait()
        markers = await asyncio.to_thread(lambda: list(node.root.glob("warden-*")))
        for marker in markers:
            os.kill(int(marker.read_text(encoding="ascii").split()[0]), signal.SIGKILL)
        began = time.monotonic()
        outcome = await running
        assert time.monotonic() - began < 5
        return outcome.kind

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
