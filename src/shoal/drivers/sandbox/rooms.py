"""Build reusable sandboxes ("rooms") that run one task after another.

Bubblewrap takes several milliseconds to build a sandbox, which is the same for all
tasks of a supervisor except for the work directory. So a supervisor builds it once,
with an idle program inside, forks a keeper (`keeper.py`) that enters its namespaces,
and sends the keeper one `RoomEntry` per task. The keeper answers STARTED or FAILED, and
ENDED when the task has ended and all its processes are dead. A room falls when its
supervisor closes it or dies.

Supervisors use this, so it may import only the standard library.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import select
import signal
import socket
import time
from typing import TYPE_CHECKING, Final, NoReturn, final

from shoal.drivers.sandbox import keeper, mounts
from shoal.drivers.sandbox.privileges import call
from shoal.drivers.sandbox.room_frames import (
    ANSWER_BYTES_MAX,
    ENDED,
    KILL,
    NOTICE,
    REASON_BYTES_MAX,
    STARTED,
    RoomEntry,
    packed,
    unpack_answer,
)
from shoal.drivers.sandbox.visit_frames import (
    FDS_MAX,
    LEFT,
    OPENED,
    PACKET_BYTES_MAX,
    REFUSED,
)
from shoal.drivers.supervisor.frame_fields import FrameError
from shoal.drivers.supervisor.process_tree import HEARD, read_text

if TYPE_CHECKING:
    from collections.abc import Sequence

INFO_FD: Final = 3
"""Descriptor where bubblewrap reports the pid of the process inside."""

ARGS_FD, FILTER_FD = 3, 4
"""Descriptors where bubblewrap reads variables and filter of a one-task sandbox."""

SLEEPER: Final = "/bin/cat"
"""The idle program inside, which ends when its supervisor is gone."""

TRIAL: Final = ("touch", f"{keeper.WORK}/probe")
OTHERS: Final = {
    keeper.NEWNET: "net",
    keeper.NEWUTS: "uts",
    keeper.NEWCGROUP: "cgroup",
}
BUILD_S: Final = 30.0
"""Time limit for building: a folder in it may lie on a disk that hangs."""

INFO_BYTES_MAX: Final = 4_096
SCRATCH: Final = len(keeper.SCRATCH)
ANSWERED_MAX: Final = SCRATCH + 1  # these, and a terminal
NS_GET_USERNS: Final = 0xB701


def in_memory(data: bytes) -> int:
    """Return the descriptor of a file in memory with `data`, at its beginning."""
    fd = os.memfd_create("shoal", os.MFD_CLOEXEC)
    with open(fd, "wb", closefd=False) as file:
        file.write(data)
    os.lseek(fd, 0, os.SEEK_SET)
    return fd


class RoomError(Exception):
    """A sandbox could not be built, or a program could not be started in it."""


@final
class SandboxRoom:
    """A sandbox and its keeper, which reports over `line` how programs end."""

    def __init__(
        self, argv: Sequence[str], env: Sequence[str], uplink: Sequence[str] = ()
    ) -> None:
        """Build a sandbox with `argv`, a command that runs `SLEEPER` inside.

        Takes several milliseconds. `uplink` is a command that connects the network
        created by `argv`.
        """
        self.pid = 0  # of the keeper
        self.scratch: list[int] = []  # in-memory folders of the task
        self._terminal = -1  # our side of the terminal of the task, until taken
        self._builder = 0
        self._uplink: Uplink | None = None
        self.line, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            building = _Building(argv, env)
            self._builder, self._life = building.pid, building.life
            with contextlib.closing(building):
                if uplink:
                    self._uplink = Uplink(uplink, building.pid)
                building.open()
                self.pid = self._enter(building, theirs)
            theirs.close()  # So that we notice when the keeper is gone.
            self._hear(STARTED)
        except RoomError:
            self.close()
            raise
        except (OSError, ValueError, KeyError) as error:
            self.close()
            raise RoomError(str(error)) from error
        finally:
            theirs.close()

    def _hear(self, kind: bytes) -> int:
        """Wait for an answer of this kind and return its number; raise on any other."""
        flags = socket.MSG_CMSG_CLOEXEC  # Not for processes that we start.
        said, fds, _, _ = socket.recv_fds(
            self.line, ANSWER_BYTES_MAX, ANSWERED_MAX, flags
        )
        self._forget_files()
        self.scratch = fds[:SCRATCH]
        self._terminal = fds[SCRATCH] if len(fds) > SCRATCH else -1
        if not said:
            raise RoomError("its keeper ended")
        try:
            answer = unpack_answer(said)
        except FrameError as error:
            raise RoomError(f"its keeper spoke nonsense: {error}") from error
        if answer.kind != kind:
            raise RoomError(answer.reason or f"its keeper said {answer.kind!r}")
        return answer.number

    def _enter(self, building: _Building, theirs: socket.socket) -> int:
        """Fork a process that enters and forks the keeper; return the keeper's pid."""
        told, tells = os.pipe2(os.O_CLOEXEC)
        entering = os.fork()
        if entering == 0:
            fails = os.dup(theirs.fileno())
            keeper.guarded(fails, lambda: _enter(building, theirs, fails, tells))
        os.close(tells)
        pid = os.read(told, INFO_BYTES_MAX)
        os.close(told)
        os.waitpid(entering, 0)
        if not pid:
            theirs.close()
            self._hear(STARTED)
        return int(pid)

    def start(self, entry: RoomEntry, files: Sequence[int]) -> int:
        """Start a program inside; return its pid there, or raise if that fails."""
        fds = list(files)
        if os.geteuid() == 0:
            fds.append(mounts.detached(entry.directory))
        try:
            socket.send_fds(self.line, [packed(entry)], fds)
        finally:
            for fd in fds[len(files) :]:
                os.close(fd)
        return self._hear(STARTED)

    def visit(self, order: bytes, files: Sequence[int]) -> None:
        """Let a visitor join the running program; the answer comes over `line`."""
        socket.send_fds(self.line, [order], files)

    def visit_answer(self) -> tuple[bytes, list[int]] | None:
        """Return the next message if it is about a visit, with its descriptors."""
        if self.line.recv(1, socket.MSG_PEEK) not in (OPENED, REFUSED, LEFT):
            return None
        flags = socket.MSG_CMSG_CLOEXEC
        said, fds, _, _ = socket.recv_fds(self.line, PACKET_BYTES_MAX, FDS_MAX, flags)
        return said, fds

    def take_terminal(self) -> int:
        """Return our side of the terminal of the program that was started."""
        taken, self._terminal = self._terminal, -1
        return taken

    def _forget_files(self) -> None:
        for fd in (*self.scratch, self.take_terminal()):
            if fd >= 0:
                os.close(fd)
        self.scratch = []

    @property
    def stands(self) -> bool:
        """Whether the keeper is alive."""
        poll = select.poll()
        poll.register(self.line, select.POLLIN)
        return not poll.poll(0)

    def ended(self) -> int | None:
        """Return the exit code of the ended program; None if the room is gone."""
        try:
            return self._hear(ENDED)
        except RoomError:
            return None

    def notify(self, *, kill: bool = False) -> None:
        """Send SIGTERM, or SIGKILL with `kill`, to all processes inside."""
        with contextlib.suppress(OSError):
            self.line.send(KILL if kill else NOTICE)

    def close(self) -> None:
        """Tear the sandbox down, killing all processes inside."""
        self._forget_files()
        if self._uplink is not None:
            self._uplink.close()
        self.line.close()
        if self._builder:
            os.close(self._life)
        for pid in (self.pid, self._builder):
            if pid:
                with contextlib.suppress(ProcessLookupError, ChildProcessError):
                    os.kill(pid, signal.SIGKILL)
                    os.waitpid(pid, 0)


@final
class _Building:
    """A running bubblewrap and its namespaces; closing `life` ends it."""

    def __init__(self, argv: Sequence[str], env: Sequence[str]) -> None:
        self._info, told = os.pipe2(os.O_CLOEXEC)
        theirs, self.life = os.pipe2(os.O_CLOEXEC)
        self._said, says = os.pipe2(os.O_CLOEXEC)
        pairs = (text.partition("=") for text in env)
        files = ((theirs, 0), (says, 1), (says, 2), (told, INFO_FD))
        self.namespaces: dict[int, int] = {}
        self.owner = self.inner = -1
        try:
            self.pid = os.posix_spawn(
                argv[0],
                list(argv),
                {name: value for name, _, value in pairs},
                file_actions=[(os.POSIX_SPAWN_DUP2, fd, n) for fd, n in files],
                setsid=True,
                setsigmask=(),
                setsigdef=HEARD,
            )
        finally:
            for fd in (told, theirs, says):
                os.close(fd)

    def open(self) -> None:
        """Wait until the sandbox is built, and open its namespaces."""
        # The program inside echoes this once the sandbox is complete.
        os.write(self.life, b"\n")
        poll = select.poll()
        poll.register(self._said, select.POLLIN)
        if not poll.poll(BUILD_S * 1_000):
            raise ValueError(f"bubblewrap has not built it after {BUILD_S:g} s")
        first = os.read(self._said, REASON_BYTES_MAX)
        if first != b"\n":
            raise ValueError(first.decode(errors="replace").strip() or "it ended")
        inside = json.loads(os.read(self._info, INFO_BYTES_MAX))["child-pid"]

        def namespace(name: str) -> int:
            return os.open(f"/proc/{inside}/ns/{name}", os.O_RDONLY | os.O_CLOEXEC)

        self.inner = namespace("user")
        place = self.namespaces[mounts.NEWNS] = namespace("mnt")
        self.owner = fcntl.ioctl(place, NS_GET_USERNS)
        for kind, name in OTHERS.items():
            fd = self.namespaces[kind] = namespace(name)
            if os.path.samestat(os.fstat(fd), os.stat(f"/proc/self/ns/{name}")):  # noqa: PTH116
                os.close(self.namespaces.pop(kind))  # Not unshared: it is our own.

    def close(self) -> None:
        """Close the namespaces."""
        for fd in (self._info, self._said, self.owner, self.inner):
            if fd >= 0:
                os.close(fd)
        for fd in self.namespaces.values():
            os.close(fd)


def _enter(
    building: _Building, line: socket.socket, fails: int, tells: int
) -> NoReturn:
    """Enter the sandbox and fork the keeper; runs in a child of the supervisor."""
    os.setsid()
    with open("/proc/self/oom_score_adj", "w", encoding="ascii") as file:  # noqa: PTH123
        file.write(keeper.TASK_OOM_SCORE)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)
    null = os.open(os.devnull, os.O_RDWR)
    for standard in range(keeper.FILES):
        os.dup2(null, standard)
    inner, owner, namespaces = building.inner, building.owner, building.namespaces
    ways = (inner, owner, *namespaces.values())
    keeper.close_all_but(line.fileno(), fails, tells, *ways)
    root = os.geteuid() == 0
    if root:
        os.setgroups([])
    network = namespaces.get(keeper.NEWNET)
    if network is not None and enter_from_outside(network, owner):
        del namespaces[keeper.NEWNET]
    call("setns", owner, keeper.NEWUSER)
    os.setresgid(0, 0, 0)
    os.setresuid(0, 0, 0)
    for kind, fd in namespaces.items():
        call("setns", fd, kind)
    call("unshare", mounts.NEWNS | keeper.NEWPID)
    pid = os.fork()
    if pid == 0:
        keeper.close_all_but(line.fileno(), fails, inner)
        keeper.guarded(fails, keeper.Keeper(line, inner, root=root).serve)
    os.write(tells, str(pid).encode())
    os._exit(0)


def try_out(directory: str, argv: Sequence[str]) -> None:
    """Build a room, run a program in it, and exit with its code or an error."""
    try:
        room = SandboxRoom(argv, ("PATH=/usr/bin:/bin",))
        entry = RoomEntry(directory, 0, 0, (), ("PATH=/usr/bin:/bin",), TRIAL)
        room.start(entry, range(keeper.FILES))
    except (RoomError, OSError) as error:
        raise SystemExit(str(error)) from error
    code = room.ended()
    room.close()
    raise SystemExit(code)


NEWUSER, NEWNET = 0x10000000, 0x40000000
EXIT_FD: Final = 3
MADE_S: Final = 10.0
LOOK_S: Final = 0.002


@final
class Uplink:
    """A program that connects a process's network; it ends with the supervisor."""

    def __init__(self, argv: Sequence[str], pid: int) -> None:
        """Start `argv` once process `pid` has its own network namespace."""
        _wait_for_network(pid)
        theirs, self._life = os.pipe2(os.O_CLOEXEC)
        self._pid = 0
        null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        files = ((null, 0), (null, 1), (null, 2), (theirs, EXIT_FD))
        try:
            self._pid = os.posix_spawn(
                argv[0],
                [text.replace("{pid}", str(pid)) for text in argv],
                {"PATH": "/usr/bin:/bin"},
                file_actions=[(os.POSIX_SPAWN_DUP2, fd, n) for fd, n in files],
                setsid=True,
                setsigmask=(),
                setsigdef=HEARD,
            )
        finally:
            os.close(theirs)
            os.close(null)

    def close(self) -> None:
        """Kill and reap the program."""
        os.close(self._life)
        with contextlib.suppress(ProcessLookupError, ChildProcessError):
            os.kill(self._pid, signal.SIGKILL)
            os.waitpid(self._pid, 0)


def _wait_for_network(pid: int) -> None:
    until = time.monotonic() + MADE_S
    ours = os.stat("/proc/self/ns/net").st_ino  # noqa: PTH116
    while not (
        os.stat(f"/proc/{pid}/ns/net").st_ino != ours  # noqa: PTH116
        # A new user namespace is unusable before its maps are written.
        and read_text(f"/proc/{pid}/uid_map")
        and read_text(f"/proc/{pid}/gid_map")
    ):
        if time.monotonic() > until:
            raise ValueError(f"no network was made within {MADE_S:g} s")
        time.sleep(LOOK_S)


def enter_from_outside(network: int, owner: int) -> bool:
    """Enter `network` if another user namespace than `owner` owns it.

    Return whether it did. A network of `owner` can only be entered after `owner`.
    """
    around = fcntl.ioctl(network, NS_GET_USERNS)
    try:
        if os.path.samestat(os.fstat(around), os.fstat(owner)):
            return False
        if os.geteuid() != 0:
            call("setns", around, NEWUSER)
        call("setns", network, NEWNET)
    finally:
        os.close(around)
    return True
