"""Run lanes: long-lived Python interpreters that execute function calls.

`ProcessDriver` runs a lane like any other process, with its supervisor, sandbox and
devices. This driver adds a program, `lane.py`, and a socket in the work directory for
calls and results. When the lane connects, its `LaneLine` is announced to the
`LaneDesk`, whose `LaneEnd` then receives all that the lane sends. Both directions have
backpressure: `slowed` for calls, `pause` for results.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import itertools
import os
import shutil
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol, cast, final

import msgspec

import shoal
from shoal import framing
from shoal.drivers import lane
from shoal.drivers.process import cannot
from shoal.framing import FramingError, framed
from shoal.protocol import call_items, payloads, plain_values
from shoal.protocol.messages import Outcome

if TYPE_CHECKING:
    from collections.abc import Sequence

    from shoal.drivers import Promises, RunOrder, Watcher
    from shoal.drivers.process import ProcessDriver
    from shoal.drivers.supervisor.visit_line import VisitLine
    from shoal.model.ids import Attempt

FOLDER: Final = ".shoal"
FILES: Final = (
    *(lane.__file__, call_items.__file__, framing.__file__),
    *(payloads.__file__, plain_values.__file__),
)
SOCKET: Final = "lane.sock"
PROGRAM: Final = "python3"
WRITE_BYTES_HIGH: Final = 1 << 20
HEAR_OUT_S: Final = 10.0
"""How long to wait, after a lane's end, until its last output is read."""


class LaneEnd(Protocol):
    """Receives what a lane sends."""

    def said(self, items: list[bytes]) -> None:
        """Receive items from the lane."""
        ...

    def slowed(self, *, slow: bool) -> None:
        """Note that the lane's input is full, or has room again."""
        ...

    def ended(self) -> None:
        """Note that the lane has ended."""
        ...


class LaneDesk(Protocol):
    """Receives new lanes."""

    def came(self, order: RunOrder, line: LaneLine) -> LaneEnd:
        """Accept a new lane; return the receiver of its items."""
        ...


@final
class LaneLine(asyncio.Protocol):
    """The socket to one lane."""

    def __init__(self, order: RunOrder, desk: LaneDesk) -> None:
        self._order = order
        self._desk = desk
        self._end: LaneEnd | None = None
        self._transport: asyncio.Transport | None = None
        self._buffer = lane.item_buffer()
        self._lost = asyncio.Event()

    def write(self, items: Sequence[bytes]) -> None:
        """Send items to the lane."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(framed(*items))

    def pause(self, *, paused: bool) -> None:
        """Pause reading, so that the lane blocks on its output; or resume."""
        if self._transport is None or self._transport.is_closing():
            return
        if paused:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()

    async def heard_out(self) -> None:
        """Wait until all output of an ended lane is read, at most `HEAR_OUT_S`."""
        if self._transport is not None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(HEAR_OUT_S):
                    await self._lost.wait()

    def close(self) -> None:
        """Close the connection; a lane that still runs exits."""
        if self._transport is not None:
            self._transport.abort()

    # Called by the event loop.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Announce the lane."""
        transport = cast("asyncio.Transport", transport)  # uvloop has its own class.
        transport.set_write_buffer_limits(high=WRITE_BYTES_HIGH)
        self._transport = transport
        self._end = self._desk.came(self._order, self)

    def data_received(self, data: bytes) -> None:
        """Pass whole items on."""
        try:
            items = self._buffer.feed(data)
        except FramingError:
            self.close()  # The user's code wrote to the socket.
            return
        if items and self._end is not None:
            self._end.said(items)

    def pause_writing(self) -> None:
        """Report that the lane's input is full."""
        if self._end is not None:
            self._end.slowed(slow=True)

    def resume_writing(self) -> None:
        """Report that the lane's input has room again."""
        if self._end is not None:
            self._end.slowed(slow=False)

    def connection_lost(self, exc: Exception | None) -> None:
        """Report that the lane has ended."""
        self._lost.set()
        end, self._end = self._end, None
        if end is not None:
            end.ended()


@final
class PythonDriver:
    """Runs lanes by means of a `ProcessDriver`."""

    name = "python"

    def __init__(self, process: ProcessDriver, desk: LaneDesk) -> None:
        """Run lanes by `process`, which the host opens and closes, for `desk`."""
        self._process = process
        self._desk = desk

    @property
    def promises(self) -> Promises:
        """The driver's guarantees to the owner of the machine; valid after `open`."""
        return self._process.promises

    async def open(self) -> None:
        """Do nothing: lanes start on demand."""

    def prepare(self, attempt: Attempt) -> Path:
        """Make an empty work directory for the host to fill."""
        return self._process.prepare(attempt)

    async def run(self, order: RunOrder, watcher: Watcher) -> Outcome:
        """Run a lane until it ends; see `Driver.run`."""
        try:
            directory = order.directory or self.prepare(order.attempt)
            folder = await asyncio.to_thread(furnish, directory)
            listener = listen(folder)
        except OSError as error:
            return Outcome("not-started", reason=cannot(error))
        line = LaneLine(order, self._desk)
        greeting = asyncio.ensure_future(_greet(listener, line))
        work = order.task.work
        program = work.argv or (PROGRAM,)
        argv = (
            *(*program, "-c", lane.BOOT, folder.name),
            *(f"{folder.name}/{SOCKET}", how(order)),
        )
        task = msgspec.structs.replace(
            order.task, work=msgspec.structs.replace(work, argv=argv)
        )
        order = msgspec.structs.replace(order, task=task, directory=directory)
        try:
            outcome = await self._process.run(order, watcher)
            await line.heard_out()
            return outcome
        finally:
            greeting.cancel()
            await asyncio.gather(greeting, return_exceptions=True)
            listener.close()
            line.close()

    def stop(self, attempt: Attempt, grace_s: float) -> None:
        """Let the running call end within the grace; waiting calls are given back."""
        self._process.stop(attempt, grace_s)

    def visits(self, attempt: Attempt) -> VisitLine:
        """Return what lets others join a running attempt; see `Driver.visits`."""
        return self._process.visits(attempt)

    async def clear(self, attempt: Attempt) -> None:
        """Kill all processes of an attempt whose run raised; raise if any survives."""
        await self._process.clear(attempt)

    async def discard(self, *attempts: Attempt) -> None:
        """Remove the work directories and kept output of ended attempts."""
        await self._process.discard(*attempts)

    async def close(self) -> None:
        """Do nothing: all lanes have ended."""


def how(order: RunOrder) -> str:
    """Return a lane's result format: plain if foreign or requested, else pickled."""
    wanted = dict(order.task.work.env).get(plain_values.RESULTS_VARIABLE)
    return lane.PLAIN if order.foreign or wanted == lane.PLAIN else lane.PICKLED


def furnish(directory: Path) -> Path:
    """Copy the files of a lane into a new folder of a work directory; return it.

    Compiled files are copied too, with their dates, so that the same Python version
    accepts them.
    """
    folder = _new_folder(directory)
    packages = folder / "packages"
    for file in FILES:
        _copy(Path(file), folder)
    for module in ("__init__", "errors", "task_client", "task_metrics"):
        path = Path(shoal.__file__).with_name(f"{module}.py")
        _copy(path, packages / "shoal")
    found = importlib.util.find_spec("cloudpickle")
    assert found is not None
    assert found.origin is not None
    for each in sorted(Path(found.origin).parent.glob("*.py")):
        _copy(each, packages / "cloudpickle")
    return folder


def _new_folder(directory: Path) -> Path:
    """Make a folder under a name that no file of the user has."""
    folder = directory / FOLDER
    numbers = itertools.count(2)
    while True:
        try:
            folder.mkdir(mode=0o755)
        except FileExistsError:
            folder = directory / f"{FOLDER}-{next(numbers)}"
        else:
            return folder


def _copy(path: Path, folder: Path) -> None:
    folder.mkdir(mode=0o755, parents=True, exist_ok=True)
    shutil.copy2(path, folder)
    compiled = Path(importlib.util.cache_from_source(str(path)))
    if compiled.exists():
        cache = folder / "__pycache__"
        cache.mkdir(mode=0o755, exist_ok=True)
        shutil.copy2(compiled, cache)


def listen(directory: Path) -> socket.socket:
    """Return a socket that listens in a folder, even if its path is very long."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.setblocking(False)
    folder = os.open(directory, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        listener.bind(f"/proc/self/fd/{folder}/{SOCKET}")
        listener.listen(1)
    except OSError:
        listener.close()
        raise
    finally:
        os.close(folder)
    return listener


async def _greet(listener: socket.socket, line: LaneLine) -> None:
    """Accept the first connection, which is the lane, and no other."""
    loop = asyncio.get_running_loop()
    found, _ = await loop.sock_accept(listener)
    listener.close()
    with contextlib.suppress(OSError):
        await loop.create_unix_connection(lambda: line, sock=found)
