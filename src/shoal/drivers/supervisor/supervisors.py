"""The node's pool of supervisors: start, reuse and command them.

A supervisor (`supervisor.py`) runs one attempt at a time. Starting one costs about 5 MB
and 20 ms, so it is reused: `get` takes an idle one or starts one, `put` returns it, and
up to `IDLE_MAX` stay idle. Those that nobody wanted for `REST_S` end, with the
sandboxes they keep, but for a few. At most `SUPERVISORS_MAX` are out; further runs
wait. The node reads one socket for each, and holds no pipe, pidfd or timer for a task.
Output waits in the supervisor while `PENDING_BYTES_MAX` of it are pending in the node.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import signal
import socket
import sys
from collections import deque
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final, cast, final

import msgspec

from shoal import failpoints
from shoal.drivers import Stream
from shoal.drivers.supervisor import leftovers, supervisor
from shoal.drivers.supervisor import supervisor_frames as frames
from shoal.drivers.supervisor.frame_fields import FrameError
from shoal.drivers.supervisor.process_tree import HEARD
from shoal.drivers.supervisor.visit_line import VisitLine
from shoal.drivers.task_socket import TaskSocket

SUPERVISORS_MAX: Final = 1_024
IDLE_MAX: Final = 32
REST_S: Final = 10.0
KEPT_MIN: Final = 2
"""How many stay idle however long, of a driver that warms any up."""

PENDING_BYTES_MAX: Final = 4 * supervisor.PIECE_BYTES_MAX
"""Output of one task that may wait in the node before reading is paused."""

FDS_FROM: Final = 10
READ_BYTES: Final = 1 << 17
KILL_WAIT_S: Final = 10.0
HERE: Final = Path(__file__).parents[1]
_LOST: Final = b"?"
_STREAMS: Final[dict[bytes, Stream]] = {
    frames.STDOUT: "stdout",
    frames.STDERR: "stderr",
}

Take = Callable[[Stream, int, bytes], Awaitable[None]]


class AttemptEnd(msgspec.Struct, frozen=True):
    """How a run ended, as reported by its supervisor."""

    kind: str  # "exited", "not-started" or "lost"
    code: int = 0
    reason: str = ""
    as_new: bool = False  # whether its work directory can be reused
    memory_bytes: int = 0  # the most that it took at once


@final
class SupervisorProcess(asyncio.BufferedProtocol):
    """One supervisor and its connection; `reports` is the socket of its tasks."""

    def __init__(self, slot: int, reports: TaskSocket, marker: Path) -> None:
        self.slot = slot
        self.reports = reports
        self.pid = 0
        self.lost = False
        self.cpus = ""  # of its last run
        self.spare = ""  # an empty work directory to reuse
        self.spare_for = ""  # in a sandbox, only for tasks of this job
        self._marker = marker
        self._pidfd = -1
        self._transport: asyncio.Transport | None = None
        self._space = memoryview(bytearray(READ_BYTES))
        self._buffer = frames.frame_buffer()
        self._frames: deque[tuple[bytes, bytes]] = deque()
        self._pending_bytes = 0
        self._waiter: asyncio.Future[None] | None = None
        self.visits: VisitLine | None = None
        self.idle_since = 0.0  # by the clock of the loop, while it is idle

    async def start(self, mark: str) -> None:
        """Start the process in its own session, without our environment.

        Its environment carries `mark`, so that a later run of the node finds it.
        """
        ours, theirs = socket.socketpair()
        near, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            self.pid = _spawn((theirs.fileno(), far.fileno()), mark, self.slot)
        except OSError:
            ours.close()
            near.close()
            raise
        finally:
            theirs.close()
            far.close()
        self.visits = VisitLine(near)
        self._pidfd = os.pidfd_open(self.pid)
        leftovers.write_marker(self._marker, self.pid)
        ours.setblocking(False)
        loop = asyncio.get_running_loop()
        await loop.create_unix_connection(lambda: self, sock=ours)

    # Called by the event loop.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Store the transport."""
        self._transport = cast("asyncio.Transport", transport)  # uvloop has its own.

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return the buffer to read into."""
        return self._space

    def buffer_updated(self, nbytes: int) -> None:
        """Queue the complete frames that have arrived."""
        try:
            for kind, body in frames.frames_of(self._buffer, self._space[:nbytes]):
                self._add(kind, body)
        except FrameError:
            self._hang_up()

    def connection_lost(self, exc: Exception | None) -> None:
        """Note that the supervisor is gone."""
        self.lost = True
        self._add(_LOST, b"")

    def _add(self, kind: bytes, body: bytes) -> None:
        self._frames.append((kind, body))
        self._pending_bytes += len(body)
        if self._pending_bytes > PENDING_BYTES_MAX and not self.lost:
            assert self._transport is not None
            self._transport.pause_reading()
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    # Orders.

    async def run(self, start: frames.StartAttempt, take: Take) -> AttemptEnd:
        """Run one attempt; return only when none of its processes is left."""
        self.cpus = start.cpus
        self._write(frames.pack_start(start))
        failpoints.reach("task.spawned")
        try:
            return await self._pass_on(take)
        except BaseException:
            self.stop(0.0)
            await self._wait_for_end()
            raise
        finally:
            if self.visits is not None:
                self.visits.end()

    def stop(self, grace_s: float) -> None:
        """Tell the supervisor to stop its task within the grace."""
        self._write(frames.pack_stop(grace_s))

    def _write(self, data: bytes) -> None:
        assert self._transport is not None
        if not self.lost:
            self._transport.write(data)

    def _hang_up(self) -> None:
        """Disconnect a supervisor that sends nonsense; it kills its task and exits."""
        self.lost = True
        if self._transport is not None:
            self._transport.abort()

    async def _pass_on(self, take: Take) -> AttemptEnd:
        offsets = {frames.STDOUT: 0, frames.STDERR: 0}
        while True:
            kind, body = await self._next()
            if kind == _LOST:
                return AttemptEnd("lost", reason="its supervisor was killed")
            if kind in offsets:
                await take(_STREAMS[kind], offsets[kind], body)
                offsets[kind] += len(body)
                continue
            try:
                return _end_of(kind, body)
            except FrameError as error:
                self._hang_up()
                return AttemptEnd(
                    "lost", reason=f"its supervisor spoke nonsense: {error}"
                )

    async def _next(self) -> tuple[bytes, bytes]:
        while not self._frames:
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        kind, body = self._frames.popleft()
        self._pending_bytes -= len(body)
        if not self._frames and not self.lost:
            assert self._transport is not None
            self._transport.resume_reading()
        return kind, body

    async def _wait_for_end(self) -> None:
        """Wait for the end despite cancellation: the devices are not free before."""
        while True:
            try:
                kind, _ = await self._next()
            except asyncio.CancelledError:
                continue
            if kind in (frames.END, _LOST):
                return

    # The end of the supervisor itself.

    async def close(self) -> None:
        """Disconnect, so that it kills its task and exits; kill it if it does not."""
        if self._transport is not None:
            self._transport.close()
        if self.visits is not None:
            self.visits.close()
        if self._pidfd >= 0:
            if not await _readable(self._pidfd, KILL_WAIT_S):
                signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)
                await _readable(self._pidfd, KILL_WAIT_S)
            _reap(self.pid)
            os.close(self._pidfd)
            self._pidfd = -1
        self._marker.unlink(missing_ok=True)
        self.reports.close()


def _spawn(fds: tuple[int, int], mark: str, slot: int) -> int:
    """Start a supervisor with these sockets as descriptors 3 and 4; return its pid."""
    # A descriptor may have the number of another one's copy.
    high = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, FDS_FROM) for fd in fds]
    try:
        return _spawned(high, mark, slot)
    finally:
        for fd in high:
            os.close(fd)


def _spawned(fds: list[int], mark: str, slot: int) -> int:
    return os.posix_spawn(
        sys.executable,
        [*(sys.executable, "-I", "-S", "-c", supervisor.BOOT), "3", str(HERE)],
        {leftovers.VARIABLE: mark, leftovers.SLOT_VARIABLE: str(slot)},
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0),
            *((os.POSIX_SPAWN_DUP2, fd, n) for n, fd in enumerate(fds, start=3)),
        ],
        setsid=True,
        setsigdef=HEARD,
    )


def _reap(pid: int) -> None:
    """Reap a process that has ended."""
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)


def _end_of(kind: bytes, body: bytes) -> AttemptEnd:
    if kind != frames.END:
        raise FrameError(f"a frame of the kind {kind!r}")
    told = frames.unpack_end(body)
    return AttemptEnd(told.kind, told.code, told.reason, told.as_new, told.memory_bytes)


async def _readable(fd: int, timeout_s: float) -> bool:
    """Wait until `fd` is readable; for a pidfd, until its process has ended."""
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    loop.add_reader(fd, ready.set)
    try:
        async with asyncio.timeout(timeout_s):
            await ready.wait()
    except TimeoutError:
        return False
    finally:
        loop.remove_reader(fd)
    return True


@final
class Supervisors:
    """The pool of a driver's supervisors, idle and busy."""

    def __init__(self, folder: Path, sockets: Path, mark: str) -> None:
        """Keep marker files in `folder` and the sockets of tasks in `sockets`."""
        self.lost = 0  # supervisors that died unexpectedly
        self._folder = folder
        self._sockets = sockets
        self._mark = mark
        self._idle: list[SupervisorProcess] = []  # the one that was used last is last
        self._kept = 0  # so many stay, however long they rest
        self._rest: asyncio.TimerHandle | None = None
        self._ending: set[asyncio.Task[None]] = set()
        self._busy: dict[int, SupervisorProcess] = {}
        self._slots: list[int] = []  # free for reuse
        self._slots_used = 0
        self._room = asyncio.Semaphore(SUPERVISORS_MAX)

    async def get(self, cpus: str = "") -> SupervisorProcess:
        """Return an idle supervisor, or start one; give it back with `put`.

        Prefers one that last ran on these CPUs: moving costs 0.1 ms.
        """
        await self._room.acquire()
        try:
            found = await self._take_idle(cpus) or await self._start()
        except BaseException:
            self._room.release()
            raise
        self._busy[found.slot] = found
        return found

    async def put(self, used: SupervisorProcess) -> None:
        """Take a supervisor back; end it if it is lost or enough are idle."""
        del self._busy[used.slot]
        self._room.release()
        if used.lost or len(self._idle) >= IDLE_MAX:
            self.lost += used.lost
            await self._retire(used)
        else:
            self._leave_idle(used)

    async def warm(self, count: int) -> None:
        """Start supervisors ahead, so that the first tasks do not wait."""
        count = min(count, IDLE_MAX)
        self._kept = max(count, KEPT_MIN) if count else 0
        while len(self._idle) < count:
            self._leave_idle(await self._start())

    async def close(self) -> None:
        """End all supervisors; none may be busy."""
        assert not self._busy, "runs end before their driver"
        if self._rest is not None:
            self._rest.cancel()
        idle, self._idle = self._idle, []
        await asyncio.gather(*(self._retire(each) for each in idle), *self._ending)

    def _leave_idle(self, used: SupervisorProcess) -> None:
        loop = asyncio.get_running_loop()
        used.idle_since = loop.time()
        self._idle.append(used)
        if self._rest is None and len(self._idle) > self._kept:
            self._rest = loop.call_later(REST_S, self._end_rested)

    def _end_rested(self) -> None:
        """End those that nobody wanted for long, and look again when others may be."""
        loop = asyncio.get_running_loop()
        self._rest = None
        while len(self._idle) > self._kept:
            left_s = self._idle[0].idle_since + REST_S - loop.time()
            if left_s > 0:
                self._rest = loop.call_later(left_s, self._end_rested)
                return
            ending = loop.create_task(self._retire(self._idle.pop(0)))
            self._ending.add(ending)
            ending.add_done_callback(self._ending.discard)

    async def _take_idle(self, cpus: str) -> SupervisorProcess | None:
        while self._idle:
            fitting = [n for n, each in enumerate(self._idle) if each.cpus == cpus]
            found = self._idle.pop(fitting[-1] if fitting else -1)
            if not found.lost:
                return found
            self.lost += 1
            await self._retire(found)
        return None

    async def _start(self) -> SupervisorProcess:
        slot = self._slots.pop() if self._slots else self._slots_used
        self._slots_used = max(self._slots_used, slot + 1)
        reports = TaskSocket(self._sockets / f"{slot}.sock")
        new = SupervisorProcess(slot, reports, self._folder / f"supervisor-{slot}")
        try:
            reports.open()
            await new.start(self._mark)
        except BaseException:
            await self._retire(new)
            raise
        return new

    async def _retire(self, old: SupervisorProcess) -> None:
        await old.close()
        self._slots.append(old.slot)
