"""The node's side of visits: asks a supervisor to let a visitor join its task.

`open` returns a `Visitor`, whose descriptors lead straight to the program or the
connection. Whoever has it closes it. Visitors that are left when the task ends are told
so: no process of them is alive by then.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from typing import TYPE_CHECKING, Final, final

from shoal.drivers.sandbox.visit_frames import (
    FDS_MAX,
    KILL,
    LEFT,
    OPENED,
    PACKET_BYTES_MAX,
    PROGRAM,
    STDIN,
    VisitAnswer,
    VisitOrder,
    pack_visit,
    unpack_visit_answer,
)
from shoal.drivers.supervisor.frame_fields import FrameError
from shoal.errors import ShoalError

if TYPE_CHECKING:
    from collections.abc import Sequence

VISITORS_MAX: Final = 64
"""Visitors of one task at a time."""

KILLED: Final = 128 + 9
ENDED: Final = "the task has ended"


@final
class Visitor:
    """A visitor of a task, and its descriptors; -1: none."""

    def __init__(
        self, number: int, line: VisitLine, both: int, errors: int = -1, into: int = -1
    ) -> None:
        self.into = into  # where to write; -1: to `both`
        self.both = both  # where to read, and perhaps to write
        self.errors = errors  # where to read standard error
        self.code: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._number = number
        self._line = line

    def kill(self) -> None:
        """Kill its program, if that still runs."""
        if not self.code.done():
            self._line.kill(self._number)

    def close(self) -> None:
        """Close the descriptors and forget it; its program is killed."""
        self.kill()
        self._line.forget(self._number)
        for fd in (self.into, self.both, self.errors):
            if fd >= 0:
                os.close(fd)
        self.into = self.both = self.errors = -1


@final
class VisitLine:
    """The socket on which one supervisor takes orders about visits."""

    def __init__(self, line: socket.socket) -> None:
        line.setblocking(False)
        self._line = line
        self._number = 0
        self._asked: dict[int, asyncio.Future[list[int]]] = {}
        self._visitors: dict[int, Visitor] = {}
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(line.fileno(), self._on_answer)

    async def program(
        self, argv: Sequence[str], env: Sequence[str], *, terminal: bool
    ) -> Visitor:
        """Start a program beside the task; raise `ShoalError` if that fails."""
        try:
            return await self._program(argv, env, terminal=terminal)
        except ShoalError as error:
            if error.what == ENDED:
                raise
            raise ShoalError(
                f"'{argv[0]}' cannot be started in the task",
                because=error.what,
                hint="it must be installed where the task runs, or in its work "
                "directory",
            ) from error

    async def _program(
        self, argv: Sequence[str], env: Sequence[str], *, terminal: bool
    ) -> Visitor:
        if terminal:
            visit = self._next(PROGRAM, argv=argv, env=env, terminal=True)
            [both] = await self._ask(visit, ())
            return self._add(visit, both)
        pipes = [os.pipe2(os.O_CLOEXEC) for _ in range(3)]
        (stdin, into), (both, stdout), (errors, stderr) = pipes
        ours, theirs = (into, both, errors), (stdin, stdout, stderr)
        visit = self._next(PROGRAM, argv=argv, env=env)
        try:
            await self._ask(visit, theirs)
        except BaseException:
            for fd in ours:
                os.close(fd)
            raise
        finally:
            for fd in theirs:
                os.close(fd)
        return self._add(visit, both, errors, into)

    async def stdin(self) -> Visitor:
        """Return the other end of the task's standard input, or of its terminal."""
        visit = self._next(STDIN)
        [fd] = await self._ask(visit, ())
        return self._add(visit, fd)

    async def socket(self, kind: str, port: int) -> socket.socket:
        """Return a socket that is being connected to a port of the task."""
        [fd] = await self._ask(self._next(kind, port=port), ())
        return socket.socket(fileno=fd)

    def kill(self, number: int) -> None:
        """Kill a visitor's program."""
        with contextlib.suppress(OSError):
            self._send(VisitOrder(number, KILL), ())

    def forget(self, number: int) -> None:
        """Expect nothing more of a visitor."""
        self._visitors.pop(number, None)

    def end(self, code: int = KILLED) -> None:
        """Tell all visitors that the task has ended."""
        for visitor in self._visitors.values():
            _resolve(visitor.code, code)
        self._visitors = {}
        for answer in self._asked.values():
            if not answer.done():
                answer.set_exception(ShoalError(ENDED))

    def close(self) -> None:
        """Close the socket."""
        self.end()
        self._loop.remove_reader(self._line.fileno())
        self._line.close()

    def _next(
        self,
        kind: str,
        *,
        argv: Sequence[str] = (),
        env: Sequence[str] = (),
        terminal: bool = False,
        port: int = 0,
    ) -> VisitOrder:
        if len(self._visitors) + len(self._asked) >= VISITORS_MAX:
            raise ShoalError(
                f"{VISITORS_MAX} commands and connections use this task",
                because="that is the most",
                hint="end some of them",
            )
        self._number += 1
        return VisitOrder(self._number, kind, argv, env, terminal, port)

    def _add(
        self, visit: VisitOrder, both: int, errors: int = -1, into: int = -1
    ) -> Visitor:
        visitor = Visitor(visit.number, self, both, errors, into)
        self._visitors[visit.number] = visitor
        return visitor

    async def _ask(self, visit: VisitOrder, fds: Sequence[int]) -> list[int]:
        answer: asyncio.Future[list[int]] = self._loop.create_future()
        self._asked[visit.number] = answer
        try:
            self._send(visit, fds)
            return await answer
        except FrameError as error:
            raise ShoalError("it cannot be run", because=str(error)) from error
        except OSError as error:
            why = error.strerror or str(error)
            raise ShoalError("the task cannot be reached", because=why) from error
        finally:
            del self._asked[visit.number]

    def _send(self, visit: VisitOrder, fds: Sequence[int]) -> None:
        socket.send_fds(self._line, [pack_visit(visit)], fds)

    def _on_answer(self) -> None:
        flags = socket.MSG_CMSG_CLOEXEC
        try:
            said, fds, _, _ = socket.recv_fds(
                self._line, PACKET_BYTES_MAX, FDS_MAX, flags
            )
        except BlockingIOError:
            return
        except OSError:
            said, fds = b"", []
        if not said:
            self._loop.remove_reader(self._line.fileno())
            self.end()
            return
        try:
            self._take(unpack_visit_answer(said), fds)
        except FrameError:
            for fd in fds:
                os.close(fd)

    def _take(self, answer: VisitAnswer, fds: list[int]) -> None:
        if answer.kind == LEFT:
            if (visitor := self._visitors.get(answer.number)) is not None:
                _resolve(visitor.code, answer.code)
            return
        asked = self._asked.get(answer.number)
        if asked is None or asked.done():  # Whoever asked has gone.
            for fd in fds:
                os.close(fd)
            self.kill(answer.number)
        elif answer.kind == OPENED:
            asked.set_result(fds)
        else:
            asked.set_exception(ShoalError(answer.reason))


def _resolve(code: asyncio.Future[int], value: int) -> None:
    if not code.done():
        code.set_result(value)
