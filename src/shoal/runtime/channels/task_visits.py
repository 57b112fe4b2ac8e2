"""Serves channels to tasks that run here: ports, programs that join, and their input.

The scheduler of the attempt opened the channel; the machine has seen to that. A driver
opens the port or starts the program inside the sandbox of the task (`Driver.visits`).
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import socket
import struct
import termios
from typing import TYPE_CHECKING, Final, final

from shoal.core.channels.events import TaskClosed, TaskOpened
from shoal.core.events import InputLost, InputTaken
from shoal.drivers.environment import TERMINAL_TYPE
from shoal.drivers.process import NOT_RUNNING
from shoal.drivers.sandbox.visit_frames import IN_SETUP, INPUT_TAKEN, PORT, PORT6
from shoal.drivers.supervisor.visit_line import ENDED
from shoal.errors import ShoalError
from shoal.protocol.channels import items
from shoal.runtime.background_tasks import BackgroundTasks
from shoal.runtime.channels.descriptors import DescriptorReader, DescriptorWriter

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from shoal.core.events import Event
    from shoal.core.membership.members import Admission
    from shoal.drivers import Driver
    from shoal.drivers.supervisor.visit_line import VisitLine, Visitor
    from shoal.model.ids import Attempt
    from shoal.protocol.channels.messages import ChannelOpen, ChannelUse
    from shoal.runtime.channels.channel_ends import ChannelLine
    from shoal.runtime.channels.task_api import TaskApi

CONNECT_S: Final = 10.0
OPEN_S: Final = 20.0
DRAIN_S: Final = 0.3
"""How long a program that has ended may stay silent, though others hold its output."""

LOOK_S: Final = 0.05
NOT_BEGUN: Final = frozenset({NOT_RUNNING, ENDED, IN_SETUP})
"""What tasks say that are not over, but whose program has not begun."""

_SIZE: Final = struct.Struct("HHHH")
END_OF_INPUT: Final = b"\x04"


@final
class TaskVisits:
    """Lets channels into the tasks of this node."""

    def __init__(self, feed: Callable[[Event], None]) -> None:
        """Tell the machine which tasks run by `feed`."""
        self._feed = feed
        self._drivers: dict[Attempt, Driver] = {}
        self._visits = BackgroundTasks()
        self._inputs: set[Attempt] = set()  # whose standard input somebody sends
        self.calls: TaskApi | None = None  # Nothing before there are channels.

    def begin(self, attempt: Attempt, driver: Driver) -> None:
        """Let channels into an attempt from now on."""
        self._drivers[attempt] = driver
        self._feed(TaskOpened(attempt))

    def end(self, attempt: Attempt) -> None:
        """Refuse further visits of an attempt."""
        self._inputs.discard(attempt)
        if self._drivers.pop(attempt, None) is not None:
            self._feed(TaskClosed(attempt))

    def open_api(self, attempt: Attempt, connection: socket.socket) -> None:
        """Let a task that runs here call the API of its shoal."""
        assert self.calls is not None
        self.calls.open(attempt, connection)

    def serve(self, line: ChannelLine, caller: Admission, asked: ChannelOpen) -> _Visit:
        """Serve one channel."""
        del caller
        attempt, use = asked.attempt, asked.use
        assert attempt is not None
        visit: _Visit
        if use.kind == "port":
            visit = PortVisit(line)
        elif use.kind == "program":
            visit = ProgramVisit(line)
        else:
            visit = InputVisit(line, lambda why: self._lose(attempt, why))
        visit.task = self._visits.start(self._run(visit, attempt, use))
        return visit

    async def close(self) -> None:
        """End all visits."""
        await self._visits.close()

    def _lose(self, attempt: Attempt, why: str) -> None:
        if attempt in self._inputs:
            self._feed(InputLost(attempt, why))

    async def _run(self, visit: _Visit, attempt: Attempt, use: ChannelUse) -> None:
        try:
            if isinstance(visit, InputVisit):
                if attempt in self._inputs:
                    raise ShoalError(INPUT_TAKEN)
                self._inputs.add(attempt)
                self._feed(InputTaken(attempt))
            await self._once_begun(visit, attempt, use)
        except ShoalError as error:
            visit.fail(error)
        except OSError as error:
            visit.fail(ShoalError("the worker failed", because=str(error)))

    async def _once_begun(
        self, visit: _Visit, attempt: Attempt, use: ChannelUse
    ) -> None:
        """Serve a channel to an attempt, perhaps before its program has begun."""
        while (driver := self._drivers.get(attempt)) is not None:
            try:
                await visit.run(driver.visits(attempt), use)
            except ShoalError as error:
                if error.what not in NOT_BEGUN:
                    raise
                await asyncio.sleep(LOOK_S)
            else:
                return
        raise ShoalError(ENDED)


class _Visit:
    """What all that reaches into a task has in common."""

    def __init__(self, line: ChannelLine) -> None:
        self.task: asyncio.Task[None] | None = None
        self._line = line
        self._readers: list[DescriptorReader] = []
        self._writer: DescriptorWriter | None = None
        self._early: list[bytes] = []  # items that came before there was a writer
        self._over = asyncio.Event()
        self._is_lost = False
        self._visitor: Visitor | None = None
        self._is_terminal = False
        line.slow(slow=True)  # Nothing comes before there is somewhere to put it.

    async def run(self, line: VisitLine, use: ChannelUse) -> None:
        """Serve the channel to its end; raise `ShoalError` if nothing was opened."""
        raise NotImplementedError

    def deliver(self, found: tuple[bytes, ...]) -> None:
        """Pass items of the user on."""
        for item in found:
            if self._writer is None:
                self._early.append(item)
            else:
                self.take(item[:1], item[1:])

    def take(self, kind: bytes, body: bytes) -> None:
        """Take one item of the user."""
        assert self._writer is not None
        if kind == items.RESIZE and (size := items.size_of(body)) is not None:
            self._resize(*size)
        elif kind == items.EOF and self._is_terminal:
            self._writer.write(END_OF_INPUT)
        elif kind == items.DATA:
            self._writer.write(body)
        elif kind == items.EOF:
            self._writer.end()

    def _resize(self, rows: int, columns: int) -> None:
        if self._is_terminal and self._visitor is not None and rows and columns:
            with contextlib.suppress(OSError):
                size = _SIZE.pack(rows, columns, 0, 0)
                fcntl.ioctl(self._visitor.both, termios.TIOCSWINSZ, size)

    def pause(self, *, paused: bool) -> None:
        """Read nothing while the user is behind."""
        for reader in self._readers:
            reader.pause(paused=paused)

    def ended(self, reason: str) -> None:
        """Give up: the user has gone."""
        del reason
        self._is_lost = True
        if self.task is not None:
            self.task.cancel()

    def fail(self, error: ShoalError) -> None:
        """Tell the user why there is nothing."""
        if not self._is_lost:
            told = items.failed(error.what, error.because or "", error.hint or "")
            self._line.write(told)
            self._line.finish()

    def _begin(self, writer: DescriptorWriter, *readers: DescriptorReader) -> None:
        self._writer = writer
        self._readers += readers
        self._line.write(items.READY)
        early, self._early = self._early, []
        self.deliver(tuple(early))
        self._line.slow(slow=False)

    def _slowed(self, is_slow: bool) -> None:
        self._line.slow(slow=is_slow)

    def _reading(self, fd: int, kind: bytes) -> DescriptorReader:
        return DescriptorReader(
            fd, lambda data: self._line.write(kind + data), self._over.set
        )

    def _stop(self) -> None:
        for reader in self._readers:
            reader.stop()
        if self._writer is not None:
            self._writer.stop()


@final
class PortVisit(_Visit):
    """A connection to a port of a task."""

    async def run(self, line: VisitLine, use: ChannelUse) -> None:
        """Carry bytes both ways until both sides have said all."""
        connection = await _connected(line, use.port)
        fd = connection.fileno()
        written = asyncio.Event()

        def finish(_fd: int) -> None:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_WR)
            written.set()

        try:
            self._begin(
                DescriptorWriter(fd, self._slowed, finish),
                self._reading(fd, items.DATA),
            )
            await self._over.wait()
            if any(reader.is_broken for reader in self._readers):
                self._line.drop("the task broke the connection off")
                return
            self._line.write(items.EOF)
            await written.wait()
            self._line.finish()
        finally:
            self._stop()
            connection.close()


async def _connected(line: VisitLine, port: int) -> socket.socket:
    """Return a socket that is connected to a port of the task."""
    error = ""
    for kind in (PORT, PORT6):
        try:
            async with asyncio.timeout(OPEN_S):
                connection = await line.socket(kind, port)
        except TimeoutError:
            raise ShoalError("the sandbox of the task does not answer") from None
        except ShoalError as refused:
            if refused.what in NOT_BEGUN:
                raise
            error = error or refused.what
            continue
        if not (why := await _trouble(connection)):
            return connection
        connection.close()
        error = error or why
    raise ShoalError(
        f"nothing of the task listens on port {port}",
        because=error,
        hint="it may not be up yet; servers in a task listen on 127.0.0.1 or 0.0.0.0",
    )


async def _trouble(connection: socket.socket) -> str:
    """Wait until a socket is connected; return why it is not."""
    loop, ready = asyncio.get_running_loop(), asyncio.Event()
    loop.add_writer(connection.fileno(), ready.set)
    try:
        async with asyncio.timeout(CONNECT_S):
            await ready.wait()
    except TimeoutError:
        return "it takes no connections"
    finally:
        loop.remove_writer(connection.fileno())
    number = connection.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
    return os.strerror(number) if number else ""


@final
class ProgramVisit(_Visit):
    """A program that joins a task."""

    async def run(self, line: VisitLine, use: ChannelUse) -> None:
        """Carry input, output and exit code of the program."""
        visitor = self._visitor = await _opened(self._opening(line, use))
        self._is_terminal = use.terminal
        if use.terminal:
            self._resize(use.rows, use.columns)
        try:
            self._attach(visitor)
            code = await visitor.code
            await self._drain()
            self._line.write(items.exit_item(code))
            self._line.finish()
        finally:
            self._stop()
            visitor.close()

    def _opening(
        self, line: VisitLine, use: ChannelUse
    ) -> Coroutine[object, object, Visitor]:
        env = [f"TERM={use.terminal_type or TERMINAL_TYPE}"] if use.terminal else []
        return line.program(use.argv, env, terminal=use.terminal)

    def _attach(self, visitor: Visitor) -> None:
        into = visitor.both if visitor.into < 0 else visitor.into
        readers = [self._reading(visitor.both, items.DATA)]
        if visitor.errors >= 0:
            readers.append(self._reading(visitor.errors, items.ERRORS))
        self._begin(DescriptorWriter(into, self._slowed, self._finished), *readers)

    def _finished(self, fd: int) -> None:
        """Close the program's input: the user has no more."""
        visitor = self._visitor
        if visitor is not None and visitor.into == fd:
            visitor.into = -1
            os.close(fd)

    async def _drain(self) -> None:
        """Read what an ended program has written; others may still hold its output."""
        last = -1
        while not all(reader.is_over for reader in self._readers):
            reads = sum(reader.reads for reader in self._readers)
            is_paused = any(reader.is_paused for reader in self._readers)
            if reads == last and not is_paused:
                return
            last = reads
            self._over.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(DRAIN_S):
                    await self._over.wait()


@final
class InputVisit(_Visit):
    """The standard input of a task, or its terminal. Its output is none of ours.

    The input of a task ends when its user says so, and never because the user has
    gone: a task that took half of its input for the whole would be done, and wrong.
    """

    def __init__(self, line: ChannelLine, lost: Callable[[str], None]) -> None:
        super().__init__(line)
        self._lost = lost
        self._is_whole = False  # whether the user has sent all
        self._done = asyncio.Event()

    async def run(self, line: VisitLine, use: ChannelUse) -> None:
        """Carry input until its end, or that of the task."""
        visitor = self._visitor = await _opened(line.stdin())
        self._is_terminal = os.isatty(visitor.both)
        visitor.code.add_done_callback(lambda _: self._done.set())
        try:
            self._resize(use.rows, use.columns)
            self._begin(DescriptorWriter(visitor.both, self._slowed, self._finished))
            await self._done.wait()
            if not self._is_lost:
                self._line.finish()
        finally:
            self._stop()
            visitor.close()

    def take(self, kind: bytes, body: bytes) -> None:
        """Take one item of the user; the end of a terminal's input is not the last."""
        self._is_whole |= kind == items.EOF and not self._is_terminal
        super().take(kind, body)

    def ended(self, reason: str) -> None:
        """Have the task stopped, if that was not all; what it has stays open."""
        self._is_lost = True
        if not self._is_whole:
            self._lost(reason or "its user has gone")

    def _finished(self, _fd: int) -> None:
        """Stop: all is written, or the task reads no more."""
        self._done.set()


async def _opened(opening: Coroutine[object, object, Visitor]) -> Visitor:
    try:
        async with asyncio.timeout(OPEN_S):
            return await opening
    except TimeoutError:
        raise ShoalError("the sandbox of the task does not answer") from None
