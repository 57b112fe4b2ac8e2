"""The keeper: the first process in a reusable sandbox, which starts its tasks.

It is a fork of the supervisor that has entered the namespaces built by bubblewrap
(`rooms.py`). As pid 1 of its pid namespace it inherits every orphan, and one `kill`
ends all other processes, however fast they fork. It has given up every privilege, so
whatever it starts has none either, at no cost: most programs it starts by
`posix_spawn`, and forks itself only for those with a terminal or limits of their own.
When a program ends, the keeper kills and reaps the rest, then answers ENDED.

The folders of a task are mounted before by the furnisher (`furnisher.py`), which is
outside the pid namespace. What could remain of a task in here is memory and messages of
System V and POSIX, and settings of the keeper itself, which has the uid of the tasks.
If any remain, the end is the last one, and the supervisor builds another sandbox.

While a program runs, others may join it (`visit_frames.py`): the keeper forks them with
the same limits and folders, or connects to a port from inside. They end with the
program.

There are two nested user namespaces: the outer one owns the mounts; tasks run in the
inner one, where no further user namespace can be made.

Supervisors use this, so it may import only the standard library.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import resource
import select
import signal
import socket
import termios
from typing import TYPE_CHECKING, Final, NoReturn, final

from shoal.drivers.limits.cpu_priority import lower
from shoal.drivers.sandbox import connecting, mounts
from shoal.drivers.sandbox.furnisher import WORK
from shoal.drivers.sandbox.privileges import (
    call,
    give_up,
    leave_abstract_sockets,
)
from shoal.drivers.sandbox.remains import Remains
from shoal.drivers.sandbox.room_frames import (
    ANSWER_BYTES_MAX,
    ENDED,
    FAILED,
    MESSAGE_BYTES_MAX,
    NOTICE,
    STARTED,
    RoomAnswer,
    pack_answer,
    unpack_answer,
    unpacked,
)
from shoal.drivers.sandbox.visit_frames import (
    FDS_MAX,
    LEFT,
    MARK,
    OPENED,
    PORT6,
    PROGRAM,
    REFUSED,
    VisitAnswer,
    pack_visit_answer,
    unpack_visit,
)
from shoal.drivers.sandbox.visit_frames import KILL as KILL_VISIT
from shoal.drivers.supervisor.frame_fields import FrameError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from shoal.drivers.sandbox.room_frames import RoomEntry
    from shoal.drivers.sandbox.visit_frames import VisitOrder

INNER_UID: Final = 1000
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
        place = os.fsdecode(error.filename) if error.filename else ""
        why = f"{place}: {error.strerror}" if place else str(error)
        os.write(fails, pack_answer(RoomAnswer(FAILED, reason=why)))
    except BaseException as error:  # noqa: BLE001 - A child must end here.
        os.write(fails, pack_answer(RoomAnswer(FAILED, reason=repr(error))))
    finally:
        os._exit(127)


@final
class Keeper:
    """Serves one supervisor until that is gone; all tasks inside die with it."""

    def __init__(
        self, line: socket.socket, inner: int, namespaces: mounts.Namespaces
    ) -> None:
        """Run tasks in user namespace `inner`, without a list of mounts."""
        self._line = line
        self._inner = inner
        self._namespaces = namespaces
        self._pid = 0  # of the running program
        self._visitors: dict[int, tuple[int, int]] = {}  # number and pid, by pidfd
        self._processes_max: int | None = None  # our own limit, set for the first task
        self._remains: Remains | None = None

    def serve(self) -> NoReturn:
        """Start programs for the supervisor, one at a time."""
        settings = mounts.mount_proc()
        self._remains = Remains()
        # Here and not in each program: those who join a task must see its processes.
        leave_abstract_sockets()
        self._give_up(settings)
        self._say(STARTED)
        while True:
            data, fds, flags, _ = socket.recv_fds(self._line, MESSAGE_BYTES_MAX, FILES)
            for fd in fds:
                os.set_inheritable(fd, False)
            if not data:
                os._exit(0)
            if len(fds) == FILES and not data.startswith(MARK):
                self._on_message(data, fds, whole=not flags & socket.MSG_TRUNC)
            else:  # A notice or a visit that came too late.
                for fd in fds:
                    os.close(fd)

    def _give_up(self, settings: int) -> None:
        """Become as powerless as the tasks, which inherit it from here."""
        self._namespaces.hide()
        lower(0, spare_cpu=False)
        call("setns", self._inner, NEWUSER)
        os.setresgid(INNER_UID, INNER_UID, INNER_UID)
        os.setresuid(INNER_UID, INNER_UID, INNER_UID)
        setting = "user/max_user_namespaces"
        fd = os.open(setting, os.O_WRONLY | os.O_CLOEXEC, dir_fd=settings)
        os.write(fd, b"0")
        os.close(fd)
        os.close(settings)
        self._namespaces.close()
        os.close(self._inner)
        give_up()
        # No task may inspect or trace this process: it came from outside.
        call("prctl", _PR_SET_DUMPABLE, 0, 0, 0, 0)
        call("prctl", _PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)

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
        ours: list[int] = []  # our side of its terminal
        try:
            self._limit_processes(entry)
            if entry.terminal:
                near, far = os.openpty()
                ours = [near]
                for fd in fds:
                    os.close(fd)
                fds = [far] * FILES
            self._pid = self._started(entry, fds)
        except OSError as error:
            self._empty()
            self._say(FAILED, reason=_why(error))
            return
        finally:
            for fd in set(fds):
                os.close(fd)
        socket.send_fds(self._line, [pack_answer(RoomAnswer(STARTED, self._pid))], ours)
        for fd in ours:
            os.close(fd)
        self._attend(entry)

    def _limit_processes(self, entry: RoomEntry) -> None:
        if self._processes_max is None:
            self._processes_max = most = entry.processes_max
            if most:
                resource.setrlimit(resource.RLIMIT_NPROC, (most, most))
        assert self._remains is not None
        self._remains.begin()

    def _started(self, entry: RoomEntry, files: Sequence[int]) -> int:
        """Start a program in the way that costs least; return its pid."""
        is_plain = not (entry.terminal or entry.file_bytes or entry.spare_cpu)
        if is_plain and entry.processes_max == self._processes_max:
            return _spawned(entry, files)
        return self._forked(entry, files, terminal=entry.terminal)

    def _forked(
        self, entry: RoomEntry, files: Sequence[int], *, terminal: bool = False
    ) -> int:
        failed, fails = os.pipe2(os.O_CLOEXEC)
        try:
            pid = os.fork()
            if pid == 0:
                guarded(fails, lambda: _become(entry, files, terminal=terminal))
            os.close(fails)
            fails = -1
            if answer := os.read(failed, ANSWER_BYTES_MAX):
                os.waitpid(pid, 0)
                raise OSError(unpack_answer(answer).reason)
        finally:
            for fd in (failed, fails):
                if fd >= 0:
                    os.close(fd)
        return pid

    def _attend(self, entry: RoomEntry) -> None:
        """Wait until the program ends, forwarding notices, kills and visits."""
        pidfd = os.pidfd_open(self._pid)
        poll = select.poll()
        poll.register(pidfd, select.POLLIN)
        poll.register(self._line, select.POLLIN)
        while pidfd not in (ready := [fd for fd, _ in poll.poll()]):
            for fd in ready:
                if fd in self._visitors:
                    poll.unregister(fd)
                    self._see_off(fd)
                elif (visitor := self._on_order(entry)) is not None:
                    poll.register(visitor, select.POLLIN)
        for fd in (pidfd, *self._visitors):
            os.close(fd)
        self._visitors = {}
        code = self._empty()
        assert self._remains is not None
        self._say(ENDED, code, self._remains.found())

    def _on_order(self, entry: RoomEntry) -> int | None:
        """Obey the supervisor; return the pidfd of a visitor, if there is a new one."""
        said, fds, flags, _ = socket.recv_fds(self._line, MESSAGE_BYTES_MAX, FDS_MAX)
        for fd in fds:
            os.set_inheritable(fd, False)
        if not said:
            os._exit(0)
        try:
            if said.startswith(MARK):
                return self._on_visit(
                    entry, said, fds, whole=not flags & socket.MSG_TRUNC
                )
            with contextlib.suppress(ProcessLookupError):
                os.kill(-1, signal.SIGTERM if said == NOTICE else signal.SIGKILL)
                if entry.terminal:
                    os.kill(-1, signal.SIGHUP)  # A shell heeds only this.
        finally:
            for fd in fds:
                os.close(fd)
        return None

    # Visits.

    def _on_visit(
        self, entry: RoomEntry, said: bytes, fds: list[int], *, whole: bool
    ) -> int | None:
        number = 0
        try:
            if not whole:
                raise FrameError("a visit is too long")
            visit = unpack_visit(said)
            number = visit.number
            if visit.kind == KILL_VISIT:
                self._turn_out(number)
                return None
            if visit.kind == PROGRAM:
                return self._let_in(entry, visit, fds)
            self._connect(visit)
        except (FrameError, OSError) as error:
            self._answer_visit(VisitAnswer(REFUSED, number, reason=str(error)))
        return None

    def _answer_visit(self, answer: VisitAnswer, *fds: int) -> None:
        socket.send_fds(self._line, [pack_visit_answer(answer)], fds)

    def _connect(self, visit: VisitOrder) -> None:
        family = socket.AF_INET6 if visit.kind == PORT6 else socket.AF_INET
        if not connecting.listens(visit.port, family, connecting.processes()):
            raise OSError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED))
        with connecting.connecting(visit.port, family) as line:
            self._answer_visit(VisitAnswer(OPENED, visit.number), line.fileno())

    def _let_in(self, entry: RoomEntry, visit: VisitOrder, fds: list[int]) -> int:
        """Start a program beside the task, and answer; return its pidfd."""
        terminal = os.openpty() if visit.terminal else ()
        files = list(terminal[1:]) * FILES or fds
        own = entry._replace(argv=visit.argv, env=[*entry.env, *visit.env])
        try:
            if len(files) != FILES:
                raise FrameError("a program needs three descriptors, or a terminal")
            pid = self._forked(own, files, terminal=visit.terminal)
            pidfd = os.pidfd_open(pid)
            self._visitors[pidfd] = (visit.number, pid)
            self._answer_visit(VisitAnswer(OPENED, visit.number), *terminal[:1])
        finally:
            for fd in terminal:
                os.close(fd)
        return pidfd

    def _see_off(self, pidfd: int) -> None:
        """Reap a visitor that has ended, and say how."""
        number, pid = self._visitors.pop(pidfd)
        os.close(pidfd)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        code = code if code >= 0 else 128 - code
        self._answer_visit(VisitAnswer(LEFT, number, code))

    def _turn_out(self, number: int) -> None:
        """Kill a visitor and its group; it is seen off like any other."""
        for known, pid in self._visitors.values():
            if known == number:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(pid, signal.SIGKILL)

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


def _why(error: OSError) -> str:
    if error.filename:
        return f"{os.fsdecode(error.filename)}: {error.strerror}"
    return error.strerror or str(error)


def _variables(entry: RoomEntry) -> dict[str, str]:
    return dict(text.split("=", 1) for text in entry.env)


def _paths(name: str, env: dict[str, str]) -> list[str]:
    """Return where a program may be, as the task finds it."""
    if "/" in name:
        return [name]
    return [f"{folder}/{name}" for folder in env.get("PATH", "/bin").split(":")]


def _spawned(entry: RoomEntry, files: Sequence[int]) -> int:
    """Start a program by `posix_spawn`, which copies nothing of this process."""
    env = _variables(entry)
    paths = _paths(entry.argv[0], env)
    os.chdir(WORK)
    try:
        path = next((each for each in paths if os.access(each, os.X_OK)), paths[0])
        return os.posix_spawn(
            path,
            list(entry.argv),
            env,
            file_actions=[(os.POSIX_SPAWN_DUP2, fd, n) for n, fd in enumerate(files)],
            setsid=True,
            setsigmask=(),
            setsigdef=(signal.SIGPIPE, signal.SIGXFSZ),
        )
    finally:
        os.chdir("/")  # Else its work directory could not be unmounted.


def _become(
    entry: RoomEntry, files: Sequence[int], *, terminal: bool = False
) -> NoReturn:
    """Set the limits of a program, and execute it; runs in a child of the keeper."""
    for target, fd in enumerate(files):
        os.dup2(fd, target)
    os.setsid()
    if terminal:
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    lower(0, spare_cpu=entry.spare_cpu)
    if most := entry.processes_max:
        resource.setrlimit(resource.RLIMIT_NPROC, (most, most))
    if most := entry.file_bytes:
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
    os.chdir(WORK)
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    os.execvpe(entry.argv[0], list(entry.argv), _variables(entry))  # noqa: S606
