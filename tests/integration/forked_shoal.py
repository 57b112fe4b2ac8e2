"""The command `shoal`, and other modules, in forks of a process that has loaded them.

To start Python and load shoal takes a command five times as long as its work, and a
node half a second; to load torch takes three seconds. A fork has everything else for
itself: its process, exit code, signals, environment, directory and files. What is asked
of the start itself is asked of `shoal` as a shell starts it.
"""

import atexit
import contextlib
import ctypes
import fcntl
import functools
import gc
import hashlib
import importlib
import json
import os
import runpy
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

from shoal import cli, failpoints

SHOAL = "shoal"
OURS = Path(sys.executable).parent / SHOAL
ORDER_BYTES_MAX = 100_000
LINE_BYTES = 16
BARE = ("HOME", "PATH", "PYTHONPATH")
"""What the process has of the environment that forks it."""

ONE_THREAD = {"OMP_NUM_THREADS": "1"}
"""For torch, which reads it when it is loaded; whoever is forked has its own."""

FIXED = ("LANG", "LC_", "MALLOC_", "PYTHON")
"""Beginnings of variables that are read at the start, so that a fork cannot."""

SLOW = {"config.policy", "lab.sim", "members.join", "monitor.command"} | {
    f"nodes.{name}" for name in ("doctor", "server", "up", "worker")
}
COMMANDS = tuple(
    module
    for module in sorted({path.partition(":")[0] for path in cli.COMMANDS.values()})
    if module.removeprefix("shoal.cli.") not in SLOW
)
"""All commands but those that load much, which takes longer to fork."""

IN_SPACE = ("ip", "netns", "exec")
"""What runs a command in the network namespace that is named next."""

SPACES = Path("/run/netns")
CLONE_NEWNET = 0x40000000

NODES = (
    *("shoal.cli.nodes.up", "shoal.api.server.daemon", "shoal.net.event_loop"),
    *("shoal.web.page", "shoal.net.libp2p.thread.host_adapter", "uvloop"),
)

_connections: list[socket.socket] = []


class ForkedShoal:
    """A process that was forked, to be handled as one of `subprocess`."""

    def __init__(self, told: int, args: Sequence[str]) -> None:
        """Take a pipe that tells the number of the process, and then its exit code."""
        self._told = told
        self._close = weakref.finalize(self, os.close, told)
        self._args = args
        self.pid = int(os.read(told, LINE_BYTES))
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """Return the exit code, or None if the process runs."""
        if self.returncode is None and select.select([self._told], [], [], 0)[0]:
            self._read()
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end; return the exit code."""
        if self.returncode is None:
            if not select.select([self._told], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(list(self._args), timeout or 0.0)
            self._read()
        assert self.returncode is not None
        return self.returncode

    def send_signal(self, number: signal.Signals) -> None:
        """Send a signal, unless the process has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        """Ask the process to end, unless it has ended."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """Kill the process, unless it has ended."""
        self.send_signal(signal.SIGKILL)

    def fileno(self) -> int:
        """Return what can be read when the process has ended, for `select`."""
        return self._told

    def _read(self) -> None:
        self.returncode = int(os.read(self._told, LINE_BYTES))
        self._close()


def start(
    modules: tuple[str, ...],
    args: Sequence[str],
    env: Mapping[str, str],
    files: tuple[IO[bytes] | int, IO[bytes] | int, IO[bytes] | int],
    prefix: Sequence[str] = (),
    cwd: Path | None = None,
    program: str = SHOAL,
) -> ForkedShoal:
    """Run `shoal` in a fork with these files as input, output and error output.

    A prefix that runs commands in a network namespace is obeyed. `program` is another
    module to run, as `python -m` does.
    """
    told, tell = os.pipe()
    space = prefix[-1] if prefix else ""
    folder = str(cwd or Path.cwd())
    order = json.dumps([[program, *args], dict(env), folder, space]).encode()
    numbers = [each if isinstance(each, int) else each.fileno() for each in files]
    socket.send_fds(_server(modules), [order], [*numbers, tell])
    os.close(tell)
    return ForkedShoal(told, args)


def start_node(
    args: Sequence[str], env: Mapping[str, str], log: Path, prefix: Sequence[str] = ()
) -> ForkedShoal:
    """Run a node in a fork, which writes into a log."""
    with log.open("ab") as written, Path(os.devnull).open("rb") as nothing:
        return start(NODES, args, env, (nothing, written, written), prefix)


def run(
    args: Sequence[str],
    env: Mapping[str, str],
    typed: str,
    timeout_s: float,
    prefix: Sequence[str] = (),
) -> tuple[int, str, str]:
    """Run a command to its end; return its exit code and what it wrote."""
    with tempfile.TemporaryFile() as given:
        given.write(typed.encode())
        given.seek(0)
        pipes = [os.pipe(), os.pipe()]
        (_, out), (_, err) = pipes
        is_node = args[:1] == ("up",) and "--background" not in args
        modules = NODES if is_node else COMMANDS
        process = start(modules, args, env, (given, out, err), prefix)
        os.close(out)
        os.close(err)
    until = time.monotonic() + timeout_s
    written = {reading: b"" for reading, _ in pipes}
    reading = list(written)
    while reading:  # Also what a process in the background has inherited.
        left_s = max(0.0, until - time.monotonic())
        ready, _, _ = select.select(reading, [], [], left_s)
        if not ready:
            process.kill()
            raise subprocess.TimeoutExpired(["shoal", *args], timeout_s)
        for pipe in ready:
            if piece := os.read(pipe, 1 << 16):
                written[pipe] += piece
            else:
                reading.remove(pipe)
                os.close(pipe)
    code = process.wait(max(0.0, until - time.monotonic()))
    said, told = (text.decode(errors="replace") for text in written.values())
    return code, said, told


def can_fork(
    args: Sequence[str], env: Mapping[str, str], prefix: Sequence[str] = ()
) -> bool:
    """Whether a fork would be as good as a new process."""
    if prefix and tuple(prefix[:-1]) != IN_SPACE:
        return False
    size = sum(map(len, (*args, *env.values())))
    fixed = {name: text for name, text in env.items() if name.startswith(FIXED)}
    is_ours = shutil.which("shoal", path=env["PATH"]) == str(OURS)
    return is_ours and size < ORDER_BYTES_MAX and fixed.items() <= _bare().items()


def _bare() -> dict[str, str]:
    return {name: os.environ[name] for name in BARE if name in os.environ}


@functools.cache
def _server(modules: tuple[str, ...]) -> socket.socket:
    """Return a connection to the process that forks; workers of one run share it."""
    run = os.environ.get("PYTEST_XDIST_TESTRUNUID", str(os.getpid()))
    folder = Path(tempfile.gettempdir()) / f"shoal-forks-{run}"
    while True:
        folder.mkdir(mode=0o700, exist_ok=True)
        with contextlib.suppress(FileNotFoundError):  # It was removed just now.
            _connections.append(_connected(folder, modules))
            atexit.register(_connections[-1].close)
            return _connections[-1]


def _connected(folder: Path, modules: tuple[str, ...]) -> socket.socket:
    address = folder / hashlib.sha256(repr(modules).encode()).hexdigest()[:8]
    ours = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    lock = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)  # One of the workers starts it.
        try:
            ours.connect(str(address))
        except (ConnectionRefusedError, FileNotFoundError):
            address.unlink(missing_ok=True)
            atexit.register(_end, _started(address, modules), address)
            ours.connect(str(address))
    except FileNotFoundError:
        ours.close()
        raise
    finally:
        os.close(lock)
    return ours


def _started(address: Path, modules: tuple[str, ...]) -> subprocess.Popen[bytes]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as door:
        door.bind(str(address))
        door.listen()
        return subprocess.Popen(
            [sys.executable, "-m", __name__, str(door.fileno()), *modules],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            pass_fds=[door.fileno()],
            cwd=Path(__file__).parents[2],  # Whatever folder its first test is in.
            env={**_bare(), **ONE_THREAD},
        )


def _end(process: subprocess.Popen[bytes], address: Path) -> None:
    """Wait for the others that share the process: it ends when nobody is left.

    They may wait too, for another one: so nothing of ours keeps any of them.
    """
    address.unlink(missing_ok=True)
    for connection in _connections:
        connection.close()
    process.wait()
    with contextlib.suppress(OSError):  # The other address is still there.
        address.parent.rmdir()


def serve(door: socket.socket) -> None:
    """Fork for every order, until nobody gives any more; a fork returns at once."""
    running: dict[int, tuple[int, int]] = {}
    givers: list[socket.socket] = [door.accept()[0]]
    while givers:
        awaited: list[socket.socket | int] = [door, *givers, *running]
        for ready in select.select(awaited, [], [])[0]:
            if isinstance(ready, int):
                _tell_end(ready, *running.pop(ready))
                continue
            if ready is door:
                givers.append(door.accept()[0])
                continue
            order, files, *_ = socket.recv_fds(ready, 2 * ORDER_BYTES_MAX, 4)
            if not order:
                givers.remove(ready)
                ready.close()
                continue
            if not (pid := os.fork()):
                for each in (door, *givers):
                    each.close()
                return _become(files, *json.loads(order))
            *passed, told = files
            for number in passed:
                os.close(number)
            os.write(told, _line(pid))
            running[os.pidfd_open(pid)] = (pid, told)
    sys.exit()


def _tell_end(ended: int, pid: int, told: int) -> None:
    _, status = os.waitpid(pid, 0)
    os.close(ended)
    with contextlib.suppress(BrokenPipeError):  # Nobody wants to know.
        os.write(told, _line(os.waitstatus_to_exitcode(status)))
    os.close(told)


def _line(number: int) -> bytes:
    """Return a number in bytes of one length: two may be waiting in a pipe."""
    return str(number).ljust(LINE_BYTES).encode()


def _become(
    files: list[int], argv: list[str], env: dict[str, str], cwd: str, space: str
) -> None:
    *passed, told = files
    for number, descriptor in enumerate(passed):
        os.dup2(descriptor, number)
        os.close(descriptor)
    os.close(told)
    if space:
        with (SPACES / space).open("rb") as namespace:
            entered = ctypes.CDLL(None).setns(namespace.fileno(), CLONE_NEWNET)
        assert entered == 0, space
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(env)
    # It was read when shoal was loaded.
    armed = failpoints.parsed(env.get(failpoints.VARIABLE, ""))
    failpoints.__dict__["ARMED"] = armed
    sys.argv[:] = argv
    if argv[0] != SHOAL:
        sys.orig_argv[:] = [sys.executable, "-m", *argv]
        sys.path[:0] = [cwd, *filter(None, env.get("PYTHONPATH", "").split(os.pathsep))]


if __name__ == "__main__":
    for module in sys.argv[2:]:
        importlib.import_module(module)
    gc.freeze()
    serve(socket.socket(fileno=int(sys.argv[1])))
    if sys.argv[0] == SHOAL:
        sys.exit(importlib.import_module("shoal.entry").main())
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
