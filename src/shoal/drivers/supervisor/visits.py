"""The supervisor's part in visits: lets programs and connections join its task.

In a reusable sandbox the keeper does everything, and orders and answers only pass
through here. Without any sandbox, the supervisor itself starts the programs, as it
started the task. A sandbox that bubblewrap built for one task cannot be joined.

Descriptors pass through, bytes do not: the node talks to a program or a connection
directly. So a slow user slows nobody else down, and nothing is kept here.

Supervisors use this, so it may import only the standard library.
"""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import socket
from typing import TYPE_CHECKING, Final, final

from shoal.drivers.sandbox import connecting
from shoal.drivers.sandbox.visit_frames import (
    FDS_MAX,
    KILL,
    LEFT,
    OPENED,
    PACKET_BYTES_MAX,
    PORT6,
    PROGRAM,
    REFUSED,
    STDIN,
    VisitAnswer,
    VisitOrder,
    pack_visit_answer,
    unpack_visit,
)
from shoal.drivers.supervisor.frame_fields import FrameError
from shoal.drivers.supervisor.process_tree import descendants

if TYPE_CHECKING:
    from collections.abc import Callable

    from shoal.drivers.sandbox.rooms import SandboxRoom
    from shoal.drivers.supervisor.supervisor import SupervisedRun

    Watch = Callable[[int, Callable[[int], None]], None]

FILES: Final = 3
OVER: Final = "the task has ended"
CLOSED: Final = "the sandbox of this worker cannot be entered"


@final
class SupervisorVisits:
    """The visitors of the task that one supervisor runs."""

    def __init__(
        self, line: socket.socket, watch: Watch, unwatch: Callable[[int], None]
    ) -> None:
        """Take orders from `line`; `watch` calls when a descriptor is readable."""
        self.run: SupervisedRun | None = None  # the task, while it can be joined
        self._line = line
        self._watch = watch
        self._unwatch = unwatch
        self._visitors: dict[int, tuple[int, int]] = {}  # number and pid, by pidfd
        watch(line.fileno(), self._on_order)

    def end(self) -> None:
        """Forget all visitors: they have ended with the task."""
        self.run = None
        for pidfd in self._visitors:
            self._unwatch(pidfd)
            os.close(pidfd)
        self._visitors = {}

    def pass_on(self, room: SandboxRoom) -> bool:
        """Pass an answer of the keeper to the node; return whether it was one."""
        found = room.visit_answer()
        if found is None:
            return False
        said, fds = found
        self._send(said, fds)
        for fd in fds:
            os.close(fd)
        return True

    def _send(self, said: bytes, fds: list[int]) -> None:
        socket.send_fds(self._line, [said], fds)

    def _answer(
        self, kind: bytes, number: int, *fds: int, code: int = 0, reason: str = ""
    ) -> None:
        answer = VisitAnswer(kind, number, code, reason)
        self._send(pack_visit_answer(answer), list(fds))

    def _on_order(self, _fd: int) -> None:
        flags = socket.MSG_CMSG_CLOEXEC
        said, fds, _, _ = socket.recv_fds(self._line, PACKET_BYTES_MAX, FDS_MAX, flags)
        if not said:
            raise SystemExit
        try:
            visit = unpack_visit(said)
            try:
                self._obey(visit, said, fds)
            except (FrameError, OSError, ValueError) as error:
                why = getattr(error, "strerror", None) or str(error)
                self._answer(REFUSED, visit.number, reason=why)
        except FrameError as error:  # Our own node never sends this.
            raise SystemExit(f"the node spoke nonsense: {error}") from error
        finally:
            for fd in fds:
                os.close(fd)

    def _obey(self, visit: VisitOrder, said: bytes, fds: list[int]) -> None:
        run = self.run
        if run is None:
            raise ValueError(OVER)
        if visit.kind == STDIN:
            given = run.take_input()
            try:
                self._answer(OPENED, visit.number, given)
            finally:
                os.close(given)
        elif run.room is not None:
            run.room.visit(said, fds)
        elif run.start.boxed:
            raise ValueError(CLOSED)
        elif visit.kind == KILL:
            self._turn_out(visit.number)
        elif visit.kind == PROGRAM:
            self._let_in(run, visit, fds)
        else:
            self._connect(visit)

    # Without a sandbox.

    def _connect(self, visit: VisitOrder) -> None:
        family = socket.AF_INET6 if visit.kind == PORT6 else socket.AF_INET
        if not connecting.listens(visit.port, family, descendants(os.getpid())):
            raise OSError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED))
        with connecting.connecting(visit.port, family) as line:
            self._answer(OPENED, visit.number, line.fileno())

    def _let_in(self, run: SupervisedRun, visit: VisitOrder, fds: list[int]) -> None:
        terminal = os.openpty() if visit.terminal else ()
        try:
            if not terminal and len(fds) != FILES:
                raise ValueError("a program needs three descriptors, or a terminal")
            place = os.ttyname(terminal[1]) if terminal else ""
            pid = run.spawn_beside(visit.argv, visit.env, tuple(fds), place)
            pidfd = os.pidfd_open(pid)
            self._visitors[pidfd] = (visit.number, pid)
            self._watch(pidfd, self._see_off)
            self._answer(OPENED, visit.number, *terminal[:1])
        finally:
            for fd in terminal:
                os.close(fd)

    def _see_off(self, pidfd: int) -> None:
        number, pid = self._visitors.pop(pidfd)
        self._unwatch(pidfd)
        os.close(pidfd)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        self._answer(LEFT, number, code=code if code >= 0 else 128 - code)

    def _turn_out(self, number: int) -> None:
        for known, pid in self._visitors.values():
            if known == number:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(pid, signal.SIGKILL)
