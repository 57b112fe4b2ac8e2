"""Build reusable sandboxes ("rooms") that run one task after another.

Bubblewrap takes several milliseconds to build a sandbox, which is the same for all
tasks of a supervisor except for the folders of its own. So a supervisor builds it once,
with an idle program inside, and forks a furnisher (`furnisher.py`) and a keeper
(`keeper.py`) that enter its namespaces. For each task it asks the furnisher for new
folders, and sends the keeper a `RoomEntry`. The keeper answers STARTED or FAILED, and
ENDED when the task has ended and all its processes are dead. A room falls when its
supervisor closes it or dies.

Tasks of one job often follow each other and leave nothing behind. Then the folders are
as new, and stay: to mount others takes as long as to run a short program.

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
from typing import TYPE_CHECKING, Final, NamedTuple, NoReturn, final

from shoal.drivers.sandbox import furnisher, keeper, mounts
from shoal.drivers.sandbox.privileges import call
from shoal.drivers.sandbox.room_frames import (
    ANSWER_BYTES_MAX,
    ENDED,
    KILL,
    NOTHING,
    NOTICE,
    REASON_BYTES_MAX,
    STARTED,
    Furnishing,
    RoomAnswer,
    RoomEntry,
    pack_furnishing,
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

TRIAL: Final = ("touch", f"{furnisher.WORK}/probe")
OTHERS: Final = {
    keeper.NEWNET: "net",
    keeper.NEWUTS: "uts",
    keeper.NEWCGROUP: "cgroup",
}
BUILD_S: Final = 30.0
"""Time limit for building: a folder in it may lie on a disk that hangs."""

INFO_BYTES_MAX: Final = 4_096
SCRATCH: Final = len(furnisher.SCRATCH)
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
        self._furnisher = 0
        self._is_over = False  # no other task may enter
        self._furnished: _Furnished | None = None
        self._uplink: Uplink | None = None
        self.line, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._orders, taken = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            building = _Building(argv, env)
            self._builder, self._life = building.pid, building.life
            with contextlib.closing(building):
                if uplink:
                    self._uplink = Uplink(uplink, building.pid)
                building.open()
                self.pid = self._enter(building, theirs, taken)
            theirs.close()  # So that we notice when the keeper is gone.
            taken.close()
            self._hear(STARTED)
        except RoomError:
            self.close()
            raise
        except (OSError, ValueError, KeyError) as error:
            self.close()
            raise RoomError(str(error)) from error
        finally:
            theirs.close()
            taken.close()

    def _hear(self, kind: bytes) -> int:
        """Wait for the keeper to say this and return its number; raise if it does not.

        A descriptor that comes along is our side of the terminal of the task.
        """
        answer, fds = _heard(self.line, kind, 1)
        if fds:
            [self._terminal] = fds
        if kind == ENDED and answer.reason:
            self._is_over = True
        return answer.number

    def _enter(
        self, building: _Building, theirs: socket.socket, taken: socket.socket
    ) -> int:
        """Fork the furnisher, which forks the keeper; return the keeper's pid."""
        told, tells = os.pipe2(os.O_CLOEXEC)
        entering = os.fork()
        if entering == 0:
            fails = os.dup(theirs.fileno())
            keeper.guarded(fails, lambda: _enter(building, theirs, taken, fails, tells))
        self._furnisher = entering
        os.close(tells)
        pid = os.read(told, INFO_BYTES_MAX)
        os.close(told)
        if not pid:
            theirs.close()
            self._hear(STARTED)
        return int(pid)

    def start(
        self, wanted: Furnishing, entry: RoomEntry, files: Sequence[int], job: str = ""
    ) -> int:
        """Start a program inside; return its pid there, or raise if that fails.

        Folders that are as new may go from one task to the next of the same `job`.
        """
        self._furnish(wanted, job)
        socket.send_fds(self.line, [packed(entry)], files)
        return self._hear(STARTED)

    def _furnish(self, wanted: Furnishing, job: str) -> None:
        found = os.stat(wanted.directory)  # noqa: PTH116
        before = self._furnished
        place = (found.st_dev, found.st_ino)
        key = (job, wanted.scratch_bytes, *place, *wanted.shown)
        if before is not None and before.key == key and before.is_as_new(self.scratch):
            return
        self._furnished = None
        self._close_scratch()
        tree = mounts.detached(wanted.directory) if os.geteuid() == 0 else -1
        try:
            given = [tree] if tree >= 0 else []
            socket.send_fds(self._orders, [pack_furnishing(wanted)], given)
        finally:
            if tree >= 0:
                os.close(tree)
        self.scratch = _heard(self._orders, STARTED, SCRATCH)[1]
        if job:
            self._furnished = _Furnished(key, list(map(_use_of, self.scratch)))

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

    def _close_scratch(self) -> None:
        for fd in self.scratch:
            os.close(fd)
        self.scratch = []

    @property
    def stands(self) -> bool:
        """Whether another task may enter."""
        if self._is_over:
            return False
        poll = select.poll()
        poll.register(self.line, select.POLLIN)
        return not poll.poll(0)

    def ended(self) -> int | None:
        """Return the exit code of the ended program; None if the room is gone."""
        try:
            code = self._hear(ENDED)
            if self._furnished is None or not self._furnished.is_as_new(self.scratch):
                self._clear()
        except RoomError:
            return None
        return code

    def _clear(self) -> None:
        """Let files in memory go at once: else they count for the next task."""
        self._furnished = None
        self._close_scratch()
        self._orders.send(pack_furnishing(NOTHING))
        _heard(self._orders, STARTED, 0)

    def notify(self, *, kill: bool = False) -> None:
        """Send SIGTERM, or SIGKILL with `kill`, to all processes inside."""
        with contextlib.suppress(OSError):
            self.line.send(KILL if kill else NOTICE)

    def close(self) -> None:
        """Tear the sandbox down, killing all processes inside."""
        self._close_scratch()
        if (terminal := self.take_terminal()) >= 0:
            os.close(terminal)
        if self._uplink is not None:
            self._uplink.close()
        self.line.close()
        self._orders.close()
        if self._builder:
            os.close(self._life)
        # The keeper is a child of the furnisher, and ours once that is gone.
        for pid in (self._furnisher, self.pid, self._builder):
            if pid:
                with contextlib.suppress(ProcessLookupError, ChildProcessError):
                    os.kill(pid, signal.SIGKILL)
                    os.waitpid(pid, 0)


class _Furnished(NamedTuple):
    """What was mounted for a task, and how the folders in memory were then."""

    key: tuple[object, ...]  # the job, the size, and the work directory
    uses: list[tuple[int, ...]]

    def is_as_new(self, scratch: Sequence[int]) -> bool:
        """Whether tasks since then left nothing there."""
        return list(map(_use_of, scratch)) == self.uses


def _use_of(folder: int) -> tuple[int, ...]:
    """Return what of a folder in memory is in use: blocks, inodes, and its mode."""
    found = os.statvfs(folder)
    blocks, inodes = found.f_blocks - found.f_bfree, found.f_files - found.f_ffree
    return blocks, inodes, os.stat(folder).st_mode


def _heard(
    line: socket.socket, kind: bytes, fds_max: int
) -> tuple[RoomAnswer, list[int]]:
    """Wait for an answer of this kind, with its descriptors; raise on any other."""
    flags = socket.MSG_CMSG_CLOEXEC  # Not for processes that we start.
    said, fds, _, _ = socket.recv_fds(line, ANSWER_BYTES_MAX, fds_max, flags)
    try:
        if not said:
            raise RoomError("its keeper ended")
        try:
            answer = unpack_answer(said)
        except FrameError as error:
            raise RoomError(f"its keeper spoke nonsense: {error}") from error
        if answer.kind != kind:
            raise RoomError(answer.reason or f"its keeper said {answer.kind!r}")
    except RoomError:
        for fd in fds:
            os.close(fd)
        raise
    return answer, fds


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
    building: _Building,
    line: socket.socket,
    orders: socket.socket,
    fails: int,
    tells: int,
) -> NoReturn:
    """Enter the sandbox, fork the keeper and furnish; in a child of the supervisor."""
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
    keeper.close_all_but(line.fileno(), orders.fileno(), fails, tells, *ways)
    proc = os.open("/proc", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
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
    # Messages and memory of System V, too, are those of this sandbox alone.
    call("unshare", mounts.NEWNS | keeper.NEWPID | keeper.NEWIPC)
    mounts.mount(b"none", "/", b"", mounts.MS_REC | mounts.MS_PRIVATE)
    made = mounts.Namespaces(proc, root=root)
    pid = os.fork()
    if pid == 0:
        keeper.close_all_but(line.fileno(), fails, inner, *made.files)
        keeper.guarded(fails, keeper.Keeper(line, inner, made).serve)
    os.write(tells, str(pid).encode())
    keeper.close_all_but(orders.fileno(), *made.files)
    furnisher.Furnisher(orders, made).serve()


def try_out(directory: str, argv: Sequence[str]) -> None:
    """Build a room, run a program in it, and exit with its code or an error."""
    try:
        room = SandboxRoom(argv, ("PATH=/usr/bin:/bin",))
        entry = RoomEntry(0, ("PATH=/usr/bin:/bin",), TRIAL)
        room.start(Furnishing(directory, 0), entry, range(keeper.FILES))
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
