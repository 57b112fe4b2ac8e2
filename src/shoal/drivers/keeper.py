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
import os
import resource
import select
import signal
import socket
from typing import TYPE_CHECKING, Final, NoReturn, final

from shoal.drivers import mounts
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

SCRATCH: Final = ("/dev/shm", "/tmp")  # noqa: S108 - Each task has its own.
SHOWN: Final = "/shown"
"""Where folders are, numbered, that belong below those and would be hidden there."""

INNER_UID: Final = 1000
TASK_NICE: Final = 5  # The node must be heard on a busy machine, and so must its owner.
TASK_OOM_SCORE: Final = "500"  # If memory runs out, the kernel kills tasks first.
FILES: Final = 3  # input, output and errors, as a task has them

NEWCGROUP, NEWUTS, NEWIPC = 0x2000000, 0x4000000, 0x8000000
NEWUSER, NEWPID, NEWNET = 0x10000000, 0x20000000, 0x40000000
_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE = 1, 4
_FILES_END: Final = 1 << 20


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
        self._settings = -1  # of the kernel, which a task can only read
        self._namespaces: mounts.Namespaces | None = None

    def serve(self) -> NoReturn:
        """Start what the warden says, one at a time."""
        # Nobody inside may see or trace this one: it came from outside.
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
            mounts.unmount(place)
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
        flags = mounts.MS_NOSUID | mounts.MS_NODEV
        size = b"mode=1777,size=%d" % max(1 << 20, entry.scratch_bytes)
        for place in SCRATCH:
            mounts.unmount(place)  # The first task finds nothing there.
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

    def _become(self, entry: Entry, files: Sequence[int]) -> NoReturn:
        """Give up all rights, and be the program."""
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
