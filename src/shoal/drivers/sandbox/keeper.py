"""The keeper: the first process in a reusable sandbox, which starts its tasks.

It is a fork of the supervisor that has entered the namespaces built by bubblewrap
(`rooms.py`). As pid 1 of its pid namespace it inherits every orphan, and one `kill`
ends all other processes, however fast they fork. For each entry it mounts the task's
own folders and forks a child, which drops all privileges and executes the program. When
the program ends, the keeper kills and reaps the rest, then answers ENDED.

There are two nested user namespaces: the outer one owns the mounts; tasks run in the
inner one, where no further user namespace can be made.

Supervisors use this, so it may import only the standard library.
"""

from __future__ import annotations

import contextlib
import os
import resource
import select
import signal
import socket
from typing import TYPE_CHECKING, Final, NoReturn, final

from shoal.drivers.sandbox import mounts
from shoal.drivers.sandbox.privileges import call, give_up
from shoal.drivers.sandbox.room_frames import (
    ANSWER_BYTES_MAX,
    ENDED,
    FAILED,
    MESSAGE_BYTES_MAX,
    NOTICE,
    STARTED,
    RoomAnswer,
    pack_answer,
    unpacked,
)
from shoal.drivers.supervisor.frame_fields import FrameError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from shoal.drivers.sandbox.room_frames import RoomEntry

WORK: Final = "/job"
"""The work directory inside: a name that hides no folder with users' programs."""

SCRATCH: Final = ("/dev/shm", "/tmp")  # noqa: S108 - Each task has its own.
SHOWN: Final = "/shown"
"""Where readable folders below `SCRATCH` are mounted, by number, until needed."""

INNER_UID: Final = 1000
TASK_NICE: Final = 5  # The node and its owner go first.
TASK_OOM_SCORE: Final = "500"  # Out of memory, tasks are killed first.
FILES: Final = 3  # stdin, stdout and stderr of a task

NEWCGROUP, NEWUTS, NEWIPC = 0x2000000, 0x4000000, 0x8000000
NEWUSER, NEWPID, NEWNET = 0x10000000, 0x20000000, 0x40000000
_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE = 1, 4
_FILES_END: Final = 1 << 20


def close_all_but(*keep: int) -> None:
    """Close all descriptors except the standard ones and `keep`."""
    first = FILES
    for fd in sorted(keep):
        os.closerange(first, fd)
        first = fd + 1
    os.closerange(first, _FILES_END)


def guarded(fails: int, step: Callable[[], NoReturn]) -> NoReturn:
    """Run `step` in a forked child; write any error to `fails`, and exit."""
    try:
        step()
    except OSError as error:
        why = f"{error.filename}: {error.strerror}" if error.filename else str(error)
        os.write(fails, pack_answer(RoomAnswer(FAILED, reason=why)))
    except BaseException as error:  # noqa: BLE001 - A child must end here.
        os.write(fails, pack_answer(RoomAnswer(FAILED, reason=repr(error))))
    finally:
        os._exit(127)


@final
class Keeper:
    """Serves one supervisor until that is gone; all tasks inside die with it."""

    def __init__(self, line: socket.socket, inner: int, *, root: bool) -> None:
        """Run tasks in user namespace `inner`; `root`: the supervisor is root."""
        self._line = line
        self._inner = inner
        self._root = root
        self._pid = 0  # of the running program
        self._settings = -1  # /proc/sys, writable only through this
        self._namespaces: mounts.Namespaces | None = None

    def serve(self) -> NoReturn:
        """Start programs for the supervisor, one at a time."""
        # No task may inspect or trace this process: it came from outside.
        call("prctl", _PR_SET_DUMPABLE, 0, 0, 0, 0)
        mounts.mount(b"none", "/", b"", mounts.MS_REC | mounts.MS_PRIVATE)
        self._settings = mounts.mount_proc()
        self._namespaces = mounts.Namespaces(root=self._root)
        self._say(STARTED)
        while True:
            data, fds, flags, _ = socket.recv_fds(
                self._line, MESSAGE_BYTES_MAX, FILES + 1
            )
            for fd in fds:
                os.set_inheritable(fd, False)
            if not data:
                os._exit(0)
            if len(fds) >= FILES:  # Anything else is a late notice.
                self._on_message(data, fds, whole=not flags & socket.MSG_TRUNC)

    def _say(self, kind: bytes, number: int = 0, reason: str = "") -> None:
        self._line.send(pack_answer(RoomAnswer(kind, number, reason)))

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

    def _on_entry(self, entry: RoomEntry, fds: list[int]) -> None:
        # The parent is the supervisor now: it has reaped the process between.
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
        answer = pack_answer(RoomAnswer(STARTED, self._pid))
        socket.send_fds(self._line, [answer], scratch)  # For measuring.
        for fd in scratch:
            os.close(fd)
        self._attend()

    def _attend(self) -> None:
        """Wait until the program ends, forwarding notices and kills."""
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
        for place in SCRATCH:  # Else files count for the next task.
            mounts.unmount(place)
        self._say(ENDED, code)

    def _empty(self) -> int:
        """Kill and reap all processes inside; return the program's exit code."""
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

    def _furnish(self, entry: RoomEntry, tree: int) -> None:
        """Replace the previous task's private mounts by those of this task."""
        call("unshare", NEWIPC)
        flags = mounts.MS_NOSUID | mounts.MS_NODEV
        size = b"mode=1777,size=%d" % max(1 << 20, entry.scratch_bytes)
        for place in SCRATCH:
            mounts.unmount(place)  # Nothing is mounted before the first task.
            mounts.mount(b"tmpfs", place, b"tmpfs", flags, size)
        for number, path in enumerate(entry.shown):
            os.makedirs(path, exist_ok=True)  # noqa: PTH103
            mounts.mount(f"{SHOWN}/{number}".encode(), path, b"", mounts.MS_BIND)
        mounts.unmount(WORK)
        if tree >= 0:
            mounts.attach(tree, WORK)
            flags |= mounts.MS_REMOUNT | mounts.MS_BIND
            mounts.mount(b"none", WORK, b"", flags)
            return
        assert self._namespaces is not None
        name = os.path.basename(entry.directory)  # noqa: PTH119
        own = self._namespaces.work(name)
        mounts.attach(own, WORK)
        os.close(own)

    def _become(self, entry: RoomEntry, files: Sequence[int]) -> NoReturn:
        """Drop all privileges and execute the program."""
        for target, fd in enumerate(files):
            os.dup2(fd, target)
        assert self._namespaces is not None
        self._namespaces.hide()
        os.setsid()
        os.setpriority(os.PRIO_PROCESS, 0, TASK_NICE)
        call("setns", self._inner, NEWUSER)
        os.setresgid(INNER_UID, INNER_UID, INNER_UID)
        os.setresuid(INNER_UID, INNER_UID, INNER_UID)
        self._write("user/max_user_namespaces", b"0")
        if most := entry.processes_max:
            resource.setrlimit(resource.RLIMIT_NPROC, (most, most))
        if most := entry.file_bytes:
            resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
        os.chdir(WORK)
        for number in (signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        env = dict(text.split("=", 1) for text in entry.env)
        give_up()
        os.execvpe(entry.argv[0], list(entry.argv), env)  # noqa: S606

    def _write(self, setting: str, data: bytes) -> None:
        fd = os.open(setting, os.O_WRONLY | os.O_CLOEXEC, dir_fd=self._settings)
        try:
            os.write(fd, data)
        finally:
            os.close(fd)
