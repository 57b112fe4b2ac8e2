"""The supervisor: a small process that runs one attempt at a time and cleans up.

The node starts it with `BOOT`, without site packages, so it may import only the
standard library and modules that say they are for supervisors. It is the subreaper of
its task: even a process that forks twice into its own session stays a descendant. When
the task's main process ends, the node says so, or the node dies (the socket closes),
the supervisor kills and reaps all descendants. It reports the end after that, and after
all output.

It reads output only when the last piece has been sent, so a slow node throttles the
task, and neither process buffers more than that.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import resource
import select
import signal
import socket
import stat
import time
from typing import TYPE_CHECKING, Final, NoReturn, final

from shoal.drivers.limits.cgroup_entry import CgroupDoors
from shoal.drivers.limits.cpu_priority import lower, lower_session, restore
from shoal.drivers.limits.usage_watch import UsageWatch
from shoal.drivers.sandbox import seccomp
from shoal.drivers.sandbox.keeper import TASK_OOM_SCORE
from shoal.drivers.sandbox.privileges import leave_keyring
from shoal.drivers.sandbox.room_frames import Furnishing, RoomEntry
from shoal.drivers.sandbox.rooms import RoomError, SandboxRoom, in_memory
from shoal.drivers.sandbox.visit_frames import IN_SETUP, INPUT_TAKEN, NO_INPUT
from shoal.drivers.supervisor.frame_fields import FrameError
from shoal.drivers.supervisor.process_tree import (
    HEARD,
    descendants,
    give_notice,
    kill_all_below,
)
from shoal.drivers.supervisor.supervisor_frames import (
    EXITED,
    NOT_STARTED,
    PIPE,
    START,
    STDERR,
    STDOUT,
    STOP,
    TERMINAL,
    AttemptEnded,
    StartAttempt,
    frame,
    frame_buffer,
    frames_of,
    pack_end,
    unpack_start,
    unpack_stop,
)
from shoal.drivers.supervisor.visits import SupervisorVisits

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from shoal.drivers.supervisor.redaction import Redacted

BOOT: Final = """
import sys
for name, path in (("shoal", sys.argv[2] + "/.."), ("shoal.drivers", sys.argv[2])):
    sys.modules[name] = type(sys)(name)
    sys.modules[name].__path__ = [path]
from shoal.drivers.supervisor.supervisor import main
main(int(sys.argv[1]), int(sys.argv[1]) + 1)
"""
"""Starts a supervisor; arguments: its socket and the folder of `shoal.drivers`.

The socket after that is for visits.

The packages above are stubs, because the real ones import packages that a supervisor
lacks.
"""

PIECE_BYTES_MAX: Final = 65_536
"""Most bytes read from a pipe at once and sent in one frame."""

OPEN_FILES_MAX: Final = 65_536
FILES_END: Final = 1 << 20
ROOMS_MAX: Final = 2
"""Sandboxes that a supervisor keeps: tasks with other devices need another."""

KILLED: Final = 128 + signal.SIGKILL
EMPTY_MODE: Final = stat.S_IFDIR | 0o700
PR_SET_CHILD_SUBREAPER: Final = 36


class NotStartedError(Exception):
    """The program could not be started; the text says why."""


# Starting a program.


def find_program(name: str, env: Sequence[str]) -> str:
    """Return the path of a program, found in the task's own PATH."""
    if "/" in name:
        return name
    paths = [text[5:] for text in env if text.startswith("PATH=")]
    for folder in (paths[-1] if paths else "/usr/bin:/bin").split(":"):
        path = f"{folder}/{name}"
        if os.path.isfile(path) and os.access(path, os.X_OK):  # noqa: PTH113
            return path
    raise NotStartedError(f"no such program in PATH: '{name}'")


def why_not_started(path: str, error: OSError) -> str:
    """Return why a program did not start, in words for the user."""
    match error.errno:
        case errno.ENOENT if os.path.exists(path):  # noqa: PTH110
            return f"the interpreter that '{path}' names does not exist"
        case errno.ENOENT | errno.ENOTDIR:
            return f"no such program: '{path}'"
        case errno.EACCES | errno.EPERM:
            return f"not executable: '{path}'"
        case errno.ENOEXEC:
            return f"not a program of this machine, and without a #! line: '{path}'"
        case errno.E2BIG:
            return "its arguments and environment are too long together"
        case errno.ENOMEM | errno.EAGAIN:
            return f"no memory, or no more processes, to start '{path}'"
        case _:
            return f"cannot start '{path}': {error.strerror}"


def _spawn(
    argv: Sequence[str],
    env: Sequence[str],
    files: tuple[int, ...],
    terminal: str = "",
) -> int:
    """Start a program in a session of its own, with these files or on a terminal."""
    path = find_program(argv[0], env)
    pairs = (text.partition("=") for text in env)
    actions: list[tuple[int, ...] | tuple[int, int, str, int, int]]
    actions = [(os.POSIX_SPAWN_DUP2, fd, n) for n, fd in enumerate(files)]
    if terminal:  # The first that the leader of a session opens controls it.
        actions = [(os.POSIX_SPAWN_OPEN, 0, terminal, os.O_RDWR, 0)]
        actions += [(os.POSIX_SPAWN_DUP2, 0, n) for n in (1, 2)]
    try:
        return os.posix_spawn(
            path,
            list(argv),
            {name: value for name, _, value in pairs},
            file_actions=actions,
            setsid=True,
            setsigmask=(),
            setsigdef=(signal.SIGXFSZ, *HEARD),
        )
    except OSError as error:
        raise NotStartedError(why_not_started(path, error)) from error


def _spawn_boxed(
    argv: Sequence[str], env: Sequence[str], files: tuple[int, ...]
) -> int:
    """Start bubblewrap without any variables of the task in its own environment.

    Some, such as LD_PRELOAD, would run the task's code outside the sandbox. They are
    passed in a file, because any user can read a command line.
    """
    ours = {name: os.environ[name] for name in os.environ if name.startswith("SHOAL_")}
    args = [text for name in ours for text in ("--unsetenv", name)]
    for text in env:
        name, _, value = text.partition("=")
        args += ("--setenv", name, value)
    data = b"".join(os.fsencode(text) + b"\0" for text in args)
    given = (in_memory(data), in_memory(seccomp.PROGRAM))
    assert min(given) >= len(files) + len(given), "these are ours"
    marks = [f"{name}={value}" for name, value in ours.items()]
    try:
        return _spawn(argv, marks, (*files, *given))
    finally:
        for fd in given:
            os.close(fd)


def _make(start: StartAttempt) -> None:
    if start.spare:  # Making a folder takes six times as long.
        try:
            os.rename(start.spare, start.make)  # noqa: PTH104
        except OSError:
            pass  # The spare was removed or is not empty.
        else:
            return
    try:
        os.mkdir(start.make, 0o700)  # noqa: PTH102
    except FileExistsError:
        return  # Made by the host.
    if start.owner >= 0:
        os.chown(start.make, start.owner, start.owner)


def _is_as_new(directory: str) -> bool:
    """Whether a work directory is empty and can be reused for another task."""
    try:
        return not os.listdir(directory) and (  # noqa: PTH208
            os.stat(directory).st_mode == EMPTY_MODE  # noqa: PTH116
        )
    except OSError:
        return False


def _prepare(start: StartAttempt) -> None:
    """Make the work directory, and enter it for the task to inherit."""
    try:
        if start.make:  # Here, as the node's loop must not block.
            _make(start)
        if not start.room:
            os.chdir(start.directory)
    except OSError as error:
        reason = f"no work directory: {error.strerror}"
        raise NotStartedError(reason) from error


def _keep_to(pid: int, cpus: str) -> None:
    """Bind a process and its future children to these CPUs."""
    wanted = [int(cpu) for cpu in cpus.split(",") if cpu] or _ALL_CPUS
    try:
        if wanted != sorted(os.sched_getaffinity(pid)):  # Setting is far slower.
            os.sched_setaffinity(pid, wanted)
    except OSError as error:
        reason = f"cpus {cpus} cannot be used: {error.strerror}"
        raise NotStartedError(reason) from error


_ALL_CPUS: Final = sorted(os.sched_getaffinity(0))


@final
class SupervisedRun:
    """One attempt, from its order until its program has ended."""

    def __init__(
        self,
        start: StartAttempt,
        null: int,
        room: SandboxRoom | None,
        doors: CgroupDoors,
    ) -> None:
        self.start = start
        self._doors = doors
        self.pid = 0  # 0 in a reusable sandbox
        self.exit_fd = -1  # readable when the program has ended
        self.kill_at: float | None = None
        self.excess = ""  # the exceeded limit it was killed for
        self.late = False  # killed after its grace
        self.setting_up = bool(start.setup)
        self.watch = UsageWatch(start)
        self._null = null
        self.room = room
        self.pipes: dict[int, tuple[bytes, OutputFiles]] = {}
        self._ends: list[int] = []
        self._input = -1  # the other end of its standard input, or of its terminal
        self._has_given_input = False

    def open(self) -> None:
        """Start the setup, or the program if there is none; both share the pipes."""
        _prepare(self.start)
        _keep_to(0 if self.room is None else self.room.pid, self.start.cpus)
        for kind, name in ((STDOUT, "stdout"), (STDERR, "stderr")):
            ours, theirs = os.pipe2(os.O_CLOEXEC)
            os.set_blocking(ours, False)
            path = f"{self.start.kept}.{name}"
            self.pipes[ours] = (kind, OutputFiles(path, self.start.secrets))
            self._ends.append(theirs)
        self._launch(self.start.setup if self.setting_up else self.start.argv)

    def go_on(self) -> None:
        """Start the program after its setup."""
        self.setting_up = False
        self._launch(self.start.argv)

    def _launch(self, argv: Sequence[str]) -> None:
        stdin = "none" if self.setting_up else self.start.stdin
        read = self._null
        if stdin == PIPE:
            read, self._input = os.pipe2(os.O_CLOEXEC)
        try:
            self._begin(argv, (read, *self._ends), terminal=stdin == TERMINAL)
        finally:
            if stdin == PIPE:
                os.close(read)
        if stdin == TERMINAL:  # What it shows comes the way of any output.
            os.set_blocking(self._input, False)
            kept = OutputFiles(f"{self.start.kept}.stdout", self.start.secrets)
            self.pipes[self._input] = (STDOUT, kept)
        if not self.setting_up:
            self._close_ends()

    def _begin(
        self, argv: Sequence[str], files: tuple[int, ...], *, terminal: bool
    ) -> None:
        if self.room is None:
            self._spawn(argv, files, terminal=terminal)
        else:
            start = self.start
            wanted = Furnishing(start.directory, start.scratch_bytes, start.shown)
            entry = RoomEntry(
                start.processes_max,
                start.env,
                argv,
                start.file_bytes,
                terminal,
                start.spare_cpu,
            )
            try:
                self.room.start(wanted, entry, files, start.job)
            except (RoomError, FrameError, OSError) as error:
                raise NotStartedError(f"not started in its sandbox: {error}") from error
            if start.spare_cpu and not start.doors:
                for pid in descendants(self.room.pid):
                    lower_session(pid)
            self.exit_fd = self.room.line.fileno()
            if terminal:
                self._input = self.room.take_terminal()

    def _spawn(
        self, argv: Sequence[str], files: tuple[int, ...], *, terminal: bool
    ) -> None:
        start = self.start
        pair = os.openpty() if terminal else ()
        place = os.ttyname(pair[1]) if pair else ""
        try:
            with self._doors.inside(start.doors, start.home):
                if start.boxed:
                    self.pid = _spawn_boxed(argv, start.env, pair[1:] * 3 or files)
                else:
                    self.pid = _spawn(argv, start.env, files, place)
        except OSError as error:
            raise NotStartedError(f"no group for it: {error.strerror}") from error
        finally:
            for fd in pair[1:]:
                os.close(fd)
        if pair:
            self._input = pair[0]
        self.exit_fd = os.pidfd_open(self.pid)
        self._limit(self.pid)

    def _limit(self, pid: int) -> None:
        with contextlib.suppress(OSError):
            if most := self.start.file_bytes:
                resource.prlimit(pid, resource.RLIMIT_FSIZE, (most, most))
            lower(pid, spare_cpu=self.start.spare_cpu)
            fd = os.open(f"/proc/{pid}/oom_score_adj", os.O_WRONLY)
            os.write(fd, TASK_OOM_SCORE.encode())
            os.close(fd)

    def spawn_beside(
        self,
        argv: Sequence[str],
        env: Sequence[str],
        files: tuple[int, ...],
        terminal: str,
    ) -> int:
        """Start another program as the task was started; return its pid."""
        start = self.start
        try:
            with self._doors.inside(start.doors, start.home):
                pid = _spawn(argv, [*start.env, *env], files, terminal)
        except NotStartedError as error:
            raise ValueError(str(error)) from error
        self._limit(pid)
        return pid

    def take_input(self) -> int:
        """Return the other end of the task's standard input, once; to be closed."""
        if self.start.stdin == "none":
            raise ValueError(NO_INPUT)
        if self._has_given_input:
            raise ValueError(INPUT_TAKEN)
        if self._input < 0:
            raise ValueError(IN_SETUP)
        self._has_given_input = True
        if self.start.stdin == TERMINAL:  # We read it, too.
            return os.dup(self._input)
        given, self._input = self._input, -1
        return given

    def reap(self) -> int:
        """Reap the ended program; return its exit code, 128 + N for signal N."""
        if self.room is not None:
            code = self.room.ended()
            return KILLED if code is None else code
        os.close(self.exit_fd)
        self.exit_fd = -1
        status = os.waitpid(self.pid, 0)[1]
        code = os.waitstatus_to_exitcode(status)
        return code if code >= 0 else 128 - code

    def give_notice(self) -> None:
        """Send SIGTERM, so that the task may end by itself."""
        self._hasten()
        if self.room is None:
            give_notice(self.pid, boxed=self.start.boxed)
            if self.start.stdin == TERMINAL and not self.start.boxed:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(self.pid, signal.SIGHUP)  # A shell heeds only this.
        else:
            self.room.notify()

    def kill(self) -> None:
        """Kill the program; its other processes are killed once it has ended."""
        if self.room is None:
            os.kill(self.pid, signal.SIGKILL)
        else:
            self.room.notify(kill=True)
        self._hasten()  # A killed process needs the CPU, too, to be gone.

    def _hasten(self) -> None:
        if self.start.spare_cpu:
            restore(descendants(os.getpid() if self.room is None else self.room.pid))

    def look(self) -> None:
        """Kill the task if it exceeds a limit."""
        top = os.getpid() if self.room is None else self.room.pid
        scratch = () if self.room is None else self.room.scratch
        self.excess = self.excess or self.watch.look(top, scratch)
        if self.excess:
            self.kill()

    def _close_ends(self) -> None:
        for fd in self._ends:
            os.close(fd)
        self._ends = []

    def close(self) -> None:
        """Close all files."""
        self._close_ends()
        if self._input >= 0 and self._input not in self.pipes:
            os.close(self._input)
        self.watch.close()
        for fd, (_, kept) in self.pipes.items():
            os.close(fd)
            kept.close()
        self.pipes = {}
        if self.exit_fd >= 0 and self.room is None:
            os.close(self.exit_fd)


@final
class Supervisor:
    """Serves the node and one task in a single-threaded loop."""

    def __init__(self, line: socket.socket, visits: socket.socket) -> None:
        self._line = line
        self._poll = select.poll()
        self._null = os.open("/dev/null", os.O_RDONLY | os.O_CLOEXEC)
        self._doors = CgroupDoors()
        self._inbox = frame_buffer()
        self._unsent = b""
        self._listening = True  # whether the pipes are polled
        self._run: SupervisedRun | None = None
        self._rooms: dict[tuple[str, ...], SandboxRoom] = {}
        self._handlers: dict[int, Callable[[int], None]] = {}
        line.setblocking(False)
        self._watch(line.fileno(), self._on_line)
        self._visits = SupervisorVisits(visits, self._watch, self._unwatch)

    def serve(self) -> NoReturn:
        """Serve until the node is gone."""
        while True:
            for fd, event in self._poll.poll(self._timeout_ms()):
                if event & select.POLLOUT:
                    self._flush()
                if event & ~select.POLLOUT and fd in self._handlers:
                    self._handlers[fd](fd)
            self._look_at_clock()

    # The loop.

    def _watch(self, fd: int, handler: Callable[[int], None]) -> None:
        self._handlers[fd] = handler
        self._poll.register(fd, select.POLLIN)

    def _unwatch(self, fd: int) -> None:
        self._handlers.pop(fd, None)
        with contextlib.suppress(KeyError):
            self._poll.unregister(fd)

    def _timeout_ms(self) -> float | None:
        run = self._run
        if run is None:
            return None
        waits = [run.watch.wait_s]
        if run.kill_at is not None:
            waits.append(max(0.0, run.kill_at - time.monotonic()))
        return min(waits) * 1_000 + 1

    def _look_at_clock(self) -> None:
        run = self._run
        if run is None:
            return
        if run.kill_at is not None and run.kill_at <= time.monotonic():
            run.kill_at = None
            run.late = True
            run.kill()
        if not run.excess:
            run.look()

    # The node.

    def _on_line(self, _fd: int) -> None:
        data = self._line.recv(1 << 16)
        if not data:
            raise SystemExit
        try:
            for kind, body in frames_of(self._inbox, data):
                self._on_frame(kind, body)
        except FrameError as error:  # Our own node never sends this.
            raise SystemExit(f"the node spoke nonsense: {error}") from error

    def _on_frame(self, kind: bytes, body: bytes) -> None:
        if kind == START and self._run is None:
            self._on_start(unpack_start(body))
        elif kind == STOP:
            grace_s = unpack_stop(body)
            if self._run is not None:  # Otherwise it has just ended.
                self._on_stop(self._run, grace_s)
        else:
            raise FrameError(f"a frame of the kind {kind!r}")

    def _on_start(self, start: StartAttempt) -> None:
        try:
            room = self._room_for(start) if start.room else None
        except (RoomError, OSError) as error:
            reason = f"no sandbox for it: {error}"
            self._send(pack_end(AttemptEnded(NOT_STARTED, reason=reason)))
            return
        run = self._run = SupervisedRun(start, self._null, room, self._doors)
        try:
            run.open()
        except NotStartedError as error:
            self._end(NOT_STARTED, 0, str(error))
            return
        self._attend(run)
        self._visits.run = run

    def _attend(self, run: SupervisedRun) -> None:
        """Read what a program that was started writes, and wait for its end."""
        for fd in run.pipes:
            if fd not in self._handlers:
                self._watch(fd, self._on_pipe)
        self._watch(run.exit_fd, self._on_exit)

    def _room_for(self, start: StartAttempt) -> SandboxRoom:
        """Return the sandbox for a task, evicting the least recently used if needed."""
        key = (*start.room, *start.doors, str(start.processes_max))
        room = self._rooms.pop(key, None)
        if room is not None and not room.stands:
            room.close()
            room = None
        if room is None:
            if len(self._rooms) == ROOMS_MAX:
                self._rooms.pop(next(iter(self._rooms))).close()
            mark = [f"{name}={value}" for name, value in os.environ.items()]
            with self._doors.inside(start.doors, start.home):
                room = SandboxRoom(start.room, mark, start.uplink)
        self._rooms[key] = room
        return room

    def _on_stop(self, run: SupervisedRun, grace_s: float) -> None:
        if run.late:
            return
        kill_at = time.monotonic() + grace_s
        first = run.kill_at is None
        run.kill_at = kill_at if run.kill_at is None else min(run.kill_at, kill_at)
        if first and grace_s > 0:
            run.give_notice()

    def _send(self, data: bytes) -> None:
        assert not self._unsent, "one frame at a time"
        self._unsent = data
        self._flush()

    def _flush(self) -> None:
        try:
            sent = self._line.send(self._unsent)
        except BlockingIOError:
            sent = 0
        self._unsent = self._unsent[sent:]
        wants = select.POLLIN | (select.POLLOUT if self._unsent else 0)
        self._poll.modify(self._line.fileno(), wants)
        if self._listening == bool(self._unsent):
            self._listen_to_pipes(listen=not self._unsent)

    # The task.

    def _listen_to_pipes(self, *, listen: bool) -> None:
        """Poll the pipes or not: off while a piece waits, or hang-ups would spin."""
        self._listening = listen
        for fd in self._run.pipes if self._run else ():
            if fd not in self._handlers:
                continue
            if listen:
                self._poll.register(fd, select.POLLIN)
            else:
                self._poll.unregister(fd)

    def _on_pipe(self, fd: int) -> None:
        if not self._unsent:  # Both pipes may be ready in the same turn.
            self._pass_on(fd)

    def _pass_on(self, fd: int) -> bool:
        """Forward a piece of output; return whether there may be more."""
        assert self._run is not None
        kind, kept = self._run.pipes[fd]
        try:
            data = os.read(fd, PIECE_BYTES_MAX)
        except BlockingIOError:
            return False
        except OSError:  # A terminal that no process has open any more says EIO.
            data = b""
        if not data:
            self._unwatch(fd)
            return False
        kept.write(data)
        self._send(frame(kind, data))
        return True

    def _on_exit(self, fd: int) -> None:
        run = self._run
        assert run is not None
        if run.room is not None and self._visits.pass_on(run.room):
            return
        self._unwatch(fd)
        code = run.reap()
        stopped = run.kill_at is not None or run.late or run.excess
        if run.setting_up and code == 0 and not stopped:
            try:
                run.go_on()
            except NotStartedError as error:
                self._end(NOT_STARTED, 0, str(error))
            else:
                self._attend(run)
            return
        self._end(EXITED, code, _reason(run, code))

    def _end(self, kind: str, code: int, reason: str) -> None:
        """Kill remaining processes, forward remaining output, then report the end."""
        run = self._run
        assert run is not None
        self._visits.end()
        if not self._rooms:  # A keeper has done that in its sandbox.
            kill_all_below()
        open_ = [fd for fd in run.pipes if fd in self._handlers]
        if open_ or self._unsent:
            # The task is dead, so blocking on the node delays nothing else.
            self._line.setblocking(True)
            while self._unsent:
                self._flush()
            for fd in open_:
                while self._pass_on(fd):
                    pass
                self._unwatch(fd)
            self._line.setblocking(False)
        self._run = None
        as_new = _is_as_new(run.start.make)
        most = run.watch.most_bytes
        self._send(pack_end(AttemptEnded(kind, code, as_new, reason, most)))
        run.close()
        os.chdir("/")


def _reason(run: SupervisedRun, code: int) -> str:
    if run.excess:
        return f"killed: {run.excess}"
    if run.late:
        return "killed: it did not end within its grace"
    what = "its setup" if run.setting_up else "it"
    if code > 128 and code - 128 in signal.valid_signals():
        return f"{what} was ended by {signal.Signals(code - 128).name}"
    return f"its setup exited with {code}" if run.setting_up else ""


def _on_signal(_number: int, _frame: object) -> NoReturn:
    raise SystemExit


def main(fd: int, visits: int) -> None:
    """Serve the node at the other end of the sockets `fd` and `visits`, the next."""
    for each in (fd, visits):
        os.set_inheritable(each, False)  # A task must not inherit this.
    # Close descriptors that the node may have inherited.
    os.closerange(3, fd)
    os.closerange(visits + 1, FILES_END)
    line = socket.socket(fileno=fd)
    libc = ctypes.CDLL(None)
    if libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise SystemExit("cannot become a subreaper")
    leave_keyring()
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD])
    signal.signal(signal.SIGTERM, _on_signal)
    signal.signal(signal.SIGINT, _on_signal)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    most = OPEN_FILES_MAX if hard < 0 else min(hard, OPEN_FILES_MAX)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    try:
        Supervisor(line, socket.socket(fileno=visits)).serve()
    except (ConnectionError, BrokenPipeError):
        pass  # The node is gone.
    finally:
        kill_all_below()


FILE_BYTES_MAX: Final = 64 << 20
"""Of longer output, the last part is kept: between this size and twice that."""


@final
class OutputFiles:
    """One output stream in a file, whose oldest part is dropped when it grows long.

    The task's secrets are replaced by stars, so that copies of the file are safe.
    """

    def __init__(self, path: str, secrets: Sequence[str] = ()) -> None:
        self._path = path
        self._fd = -1
        self._size = 0
        self._starred: Redacted | None = None
        if secrets:
            from shoal.drivers.supervisor.redaction import (  # noqa: PLC0415 - Few have secrets.
                Redacted,
                Redaction,
            )

            if redaction := Redaction(secrets):
                self._starred = Redacted(redaction)

    def write(self, data: bytes) -> None:
        """Append data; hold back an end that may begin a secret."""
        if self._starred is not None:
            _, data = self._starred.feed(0, data)
        self._append(data)

    def close(self) -> None:
        """Write the data held back, and close the file."""
        if self._starred is not None:
            self._append(self._starred.end()[1])
        self._close()

    def _append(self, data: bytes) -> None:
        """Write data; after a disk error, drop it and the rest."""
        if not self._path or not data:
            return
        try:
            if self._fd < 0:
                flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
                self._fd = os.open(self._path, flags | os.O_NOFOLLOW, 0o600)
            self._size += os.write(self._fd, data)
            if self._size >= FILE_BYTES_MAX:
                os.replace(self._path, self._path + ".1")  # noqa: PTH105
                self._close()
        except OSError:
            self._close()
            self._path = ""

    def _close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
        self._fd, self._size = -1, 0
