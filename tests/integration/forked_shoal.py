"""The command `shoal` in forks of a process that has loaded it already.

To start Python and load shoal takes a command five times as long as its work, and a
node half a second. A fork has everything else for itself: its process, exit code,
signals, environment, directory and files. What is asked of the start itself is asked
of `shoal` as a shell starts it.
"""

import atexit
import contextlib
import ctypes
import functools
import gc
import importlib
import json
import os
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

OURS = Path(sys.executable).parent / "shoal"
ORDER_BYTES_MAX = 100_000
LINE_BYTES = 16
BARE = ("HOME", "PATH", "PYTHONPATH")
"""What the process has of the environment that forks it."""

FIXED = ("LANG", "LC_", "MALLOC_", "PYTHON", failpoints.VARIABLE)
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
    *("shoal.web.page", "shoal.net.libp2p.thread.host_adapter"),
)


class ForkedShoal:
    """A process of `shoal`, to be handled as one of `subprocess`."""

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

    def kill(self) -> None:
        """Kill the process, unless it has ended."""
        self.send_signal(signal.SIGKILL)

    def _read(self) -> None:
        self.returncode = int(os.read(self._told, LINE_BYTES))
        self._close()


def start(
    modules: tuple[str, ...],
    args: Sequence[str],
    env: Mapping[str, str],
    files: tuple[IO[bytes] | int, IO[bytes] | int, IO[bytes] | int],
    prefix: Sequence[str] = (),
) -> ForkedShoal:
    """Run `shoal` in a fork with these files as input, output and error output.

    A prefix that runs commands in a network namespace is obeyed.
    """
    told, tell = os.pipe()
    space = prefix[-1] if prefix else ""
    order = json.dumps([list(args), dict(env), str(Path.cwd()), space]).encode()
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
        process = start(COMMANDS, args, env, (given, out, err), prefix)
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
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    process = subprocess.Popen(
        [sys.executable, "-m", __name__, str(theirs.fileno()), *modules],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        pass_fds=[theirs.fileno()],
        env=_bare(),
    )
    theirs.close()
    atexit.register(_end, ours, process)
    return ours


def _end(orders: socket.socket, process: subprocess.Popen[bytes]) -> None:
    orders.close()
    process.wait()


def serve(orders: socket.socket) -> None:
    """Fork for every order, until there are no more; a fork returns at once."""
    running: dict[int, tuple[int, int]] = {}
    while True:
        awaited: list[socket.socket | int] = [orders, *running]
        for ready in select.select(awaited, [], [])[0]:
            if isinstance(ready, int):
                _tell_end(ready, *running.pop(ready))
                continue
            order, files, *_ = socket.recv_fds(orders, 2 * ORDER_BYTES_MAX, 4)
            if not order:
                sys.exit()
            if not (pid := os.fork()):
                orders.close()
                return _become(files, *json.loads(order))
            *passed, told = files
            for number in passed:
                os.close(number)
            os.write(told, _line(pid))
            running[os.pidfd_open(pid)] = (pid, told)


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
    files: list[int], args: list[str], env: dict[str, str], cwd: str, space: str
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
    sys.argv[:] = ["shoal", *args]


if __name__ == "__main__":
    for module in sys.argv[2:]:
        importlib.import_module(module)
    gc.freeze()
    serve(socket.socket(fileno=int(sys.argv[1])))
    entry = importlib.import_module("shoal.entry")
    sys.exit(entry.main())
