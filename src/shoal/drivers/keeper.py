"""The first process in a sandbox that stays: it starts one task after another there.

It is a fork of a warden that has entered what bubblewrap built (`rooms.py`). As the
first process of its namespace of processes it gets every orphan in there, and one call
of it kills all but itself, however they fork. It mounts what is a task's own, and a
child of it gives up all rights for good and becomes the program.

Two namespaces of users, one inside the other, are around it: the outer owns the
mounts, and in the inner tasks run, where no further one can be made.

Wardens use this, so it may import nothing but the standard library.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import select
import signal
import socket
from typing import TYPE_CHECKING, Final, NoReturn, final

from shoal.drivers.fields import FrameError
from shoal.drivers.rights import call, give_up
from shoal.drivers.room_frames import (
    ANSWER_BYTES_MAX,
    ENDED,
    FAILED,
    MESSAGE_BYTES_MAX,
    NOTICE,
    STARTED,
    Answer,
    pack_answer,
    unpacked,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from shoal.drivers.room_frames import Entry

WORK: Final = "/job"
"""A name that hides no folder where people keep programs that tasks need."""

BASE: Final = "/mnt"
"""Where the folder of all work directories is, if it is not root who mounts one."""

SCRATCH: Final = ("/dev/shm", "/tmp")  # noqa: S108 - Each task has its own.
SHOWN: Final = "/shown"
"""Where folders are, numbered, that belong below those and would be hidden there."""

MASKED_FILES: Final = (
    "/proc/cmdline",
    "/proc/interrupts",
    "/proc/kcore",
    "/proc/key-users",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/sched_debug",
    "/proc/swaps",
    "/proc/timer_list",
)
MASKED_FOLDERS: Final = ("/proc/acpi", "/proc/asound", "/proc/fs", "/proc/scsi")
"""What containers hide too, and what names keys, disks and shares of the machine."""

INNER_UID: Final = 1000
TASK_NICE: Final = 5  # The node must be heard on a busy machine, and so must its owner.
TASK_OOM_SCORE: Final = "500"  # If memory runs out, the kernel kills tasks first.
FILES: Final = 3  # input, output and errors, as a task has them

NEWNS, NEWCGROUP, NEWUTS, NEWIPC = 0x20000, 0x2000000, 0x4000000, 0x8000000
NEWUSER, NEWPID, NEWNET = 0x10000000, 0x20000000, 0x40000000
_MS_RDONLY, _MS_NOSUID, _MS_NODEV, _MS_NOEXEC, _MS_BIND = 1, 2, 4, 8, 4096
_MS_REMOUNT, _MS_REC, _MS_PRIVATE = 32, 16384, 1 << 18
_MNT_DETACH: Final = 2
_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE = 1, 4
_SYS_OPEN_TREE, _SYS_MOVE_MOUNT = 428, 429
_AT_FDCWD: Final = -100
_OPEN_TREE_CLONE, _MOVE_EMPTY_PATH = 1, 4
_FILES_END: Final = 1 << 20

_libc = ctypes.CDLL(None, use_errno=True)


def detached(directory: str) -> int:
    """Return a mount of a folder that is in no namespace yet; only root can."""
    flags = _OPEN_TREE_CLONE | os.O_CLOEXEC
    path = os.fsencode(directory)
    return call("syscall", _SYS_OPEN_TREE, _AT_FDCWD, path, flags)


def close_all_but(*keep: int) -> None:
    """Close all files but the standard ones and these."""
    first = FILES
    for fd in sorted(keep):
        os.closerange(first, fd)
        first = fd + 1
    os.closerange(first, _FILES_END)


def guarded(fails: int, step: Callable[[], NoReturn]) -> NoReturn:
    """Do what a child is for; what goes wrong is answered, and it always ends here."""
    try:
        step()
    except OSError as error:
        why = f"{error.filename}: {error.strerror}" if error.filename else str(error)
        os.write(fails, pack_answer(Answer(FAILED, reason=why)))
    except BaseException as error:  # noqa: BLE001 - No child may go on as a warden.
        os.write(fails, pack_answer(Answer(FAILED, reason=repr(error))))
    finally:
        os._exit(127)


@final
class Keeper:
    """Serves one warden until it is gone. Everything else in here dies with it."""

    def __init__(self, line: socket.socket, inner: int, *, root: bool) -> None:
        """Run tasks in the namespace of users `inner`; `root` mounts what it likes."""
        self._line = line
        self._inner = inner
        self._root = root
        self._pid = 0  # of the program that runs

    def serve(self) -> NoReturn:
        """Start what the warden says, one at a time."""
        # Nobody inside may see or trace this one: it came from outside.
        call("prctl", _PR_SET_DUMPABLE, 0, 0, 0, 0)
        _mount(b"none", "/", b"", _MS_REC | _MS_PRIVATE)
        flags = _MS_NOSUID | _MS_NODEV | _MS_NOEXEC
        _mount(b"proc", "/proc", b"proc", flags, b"hidepid=invisible")
        _mask()
        self._say(STARTED)
        while True:
            data, fds, flags, _ = socket.recv_fds(
                self._line, MESSAGE_BYTES_MAX, FILES + 1
            )
            for fd in fds:
                os.set_inheritable(fd, False)
            if not data:
                os._exit(0)
            if len(fds) >= FILES:  # Anything else is for a program that has ended.
                self._on_message(data, fds, whole=not flags & socket.MSG_TRUNC)

    def _say(self, kind: bytes, number: int = 0, reason: str = "") -> None:
        self._line.send(pack_answer(Answer(kind, number, reason)))

    def _on_message(self, data: bytes, fds: list[int], *, whole: bool) -> None:
        try:
            if not whole:
                raise FrameError("an entry is too long")
            entry = unpacked(data)
        except FrameError as error:
            for fd in fds:
                os.close(fd)
            self._say(FAILED, reason=str(error))
            return
        self._on_entry(entry, fds)

    def _on_entry(self, entry: Entry, fds: list[int]) -> None:
        # Our parent is the warden by now: it has reaped who stood between.
        call("prctl", _PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        failed, fails = os.pipe2(os.O_CLOEXEC)
        try:
            self._furnish(entry, fds[FILES] if len(fds) > FILES else -1)
            self._pid = os.fork()
            if self._pid == 0:
                guarded(fails, lambda: self._become(entry, fds[:FILES]))
        except OSError as error:
            self._say(FAILED, reason=str(error))
            return
        finally:
            for fd in (*fds, fails):
                os.close(fd)
        answer = os.read(failed, ANSWER_BYTES_MAX)
        os.close(failed)
        if answer:
            self._empty()
            self._line.send(answer)
            return
        scratch = [os.open(place, os.O_PATH | os.O_CLOEXEC) for place in SCRATCH]
        answer = pack_answer(Answer(STARTED, self._pid))
        socket.send_fds(self._line, [answer], scratch)  # To be measured from outside.
        for fd in scratch:
            os.close(fd)
        self._attend()

    def _attend(self) -> None:
        """Wait for the end of the program, and pass notices on."""
        pidfd = os.pidfd_open(self._pid)
        poll = select.poll()
        poll.register(pidfd, select.POLLIN)
        poll.register(self._line, select.POLLIN)
        while not any(fd == pidfd for fd, _ in poll.poll()):
            said = self._line.recv(1)
            if not said:
                os._exit(0)
            with contextlib.suppress(ProcessLookupError):
                os.kill(-1, signal.SIGTERM if said == NOTICE else signal.SIGKILL)
        os.close(pidfd)
        code = self._empty()
        for place in SCRATCH:  # What it left there would count for the next task.
            _unmount(place)
        self._say(ENDED, code)

    def _empty(self) -> int:
        """Kill and reap all that is inside; return how the program ended."""
        code = 0
        with contextlib.suppress(ProcessLookupError):
            os.kill(-1, signal.SIGKILL)
        while True:
            try:
                pid, status = os.wait()
            except ChildProcessError:
                return code
            if pid == self._pid:
                ended = os.waitstatus_to_exitcode(status)
                code = ended if ended >= 0 else 128 - ended

    def _furnish(self, entry: Entry, tree: int) -> None:
        """Mount what is the task's own; what the one before had goes."""
        call("unshare", NEWIPC)
        flags = _MS_NOSUID | _MS_NODEV
        size = b"mode=1777,size=%d" % max(1 << 20, entry.scratch_bytes)
        for place in SCRATCH:
            _unmount(place)
            _mount(b"tmpfs", place, b"tmpfs", flags, size)
        for number, path in enumerate(entry.shown):
            os.makedirs(path, exist_ok=True)  # noqa: PTH103
            _mount(f"{SHOWN}/{number}".encode(), path, b"", _MS_BIND)
        _unmount(WORK)
        if tree >= 0:
            where, flags = WORK.encode(), _MOVE_EMPTY_PATH
            call("syscall", _SYS_MOVE_MOUNT, tree, b"", _AT_FDCWD, where, flags)
            flags = _MS_REMOUNT | _MS_BIND | _MS_NOSUID | _MS_NODEV
            _mount(b"none", WORK, b"", flags)
        else:
            name = os.path.basename(entry.directory)  # noqa: PTH119
            _mount(os.fsencode(f"{BASE}/{name}"), WORK, b"", _MS_BIND)

    def _become(self, entry: Entry, files: Sequence[int]) -> NoReturn:
        """Give up all rights, and be the program."""
        for target, fd in enumerate(files):
            os.dup2(fd, target)
        if not self._root:
            call("unshare", NEWNS)
            _unmount(BASE)
        os.setsid()
        os.setpriority(os.PRIO_PROCESS, 0, TASK_NICE)
        call("setns", self._inner, NEWUSER)
        os.setresgid(INNER_UID, INNER_UID, INNER_UID)
        os.setresuid(INNER_UID, INNER_UID, INNER_UID)
        _write("/proc/sys/user/max_user_namespaces", b"0")
        if most := entry.processes_max:
            resource.setrlimit(resource.RLIMIT_NPROC, (most, most))
        os.chdir(WORK)
        for number in (signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        env = dict(text.split("=", 1) for text in entry.env)
        give_up()
        os.execvpe(entry.argv[0], list(entry.argv), env)  # noqa: S606


def _mount(
    source: bytes, place: str, kind: bytes, flags: int, options: bytes = b""
) -> None:
    where = place.encode()
    try:
        call("mount", source, where, kind, ctypes.c_ulong(flags), options)
    except OSError as error:
        raise OSError(error.errno, f"{place}: {error.strerror}") from error


def _mask() -> None:
    """Hide what the kernel tells everybody about the machine, as far as it does."""
    for path in MASKED_FILES:
        if os.path.exists(path):  # noqa: PTH110
            _mount(b"/dev/null", path, b"", _MS_BIND)
    for path in MASKED_FOLDERS:
        if os.path.isdir(path):  # noqa: PTH112
            flags = _MS_RDONLY | _MS_NOSUID | _MS_NODEV | _MS_NOEXEC
            _mount(b"tmpfs", path, b"tmpfs", flags, b"size=4k,mode=555")


def _unmount(place: str) -> None:
    _libc.umount2(place.encode(), _MNT_DETACH)  # The first task finds nothing there.


def _write(path: str, data: bytes) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(fd, data)
    finally:
        os.close(fd)
