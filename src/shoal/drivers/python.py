"""The driver of lanes: interpreters that stay, and run calls of functions.

A lane is a process like any other: it has its warden, its sandbox and its devices, and
`ProcessDriver` runs it. This driver only gives it a program, `lane.py`, and a socket in
its work directory, over which calls come and results go.
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
from shoal.drivers import lane
from shoal.drivers.process import cannot
from shoal.protocol import call_items, payloads, plain_values
from shoal.protocol.messages import Outcome

if TYPE_CHECKING:
    from collections.abc import Sequence

    from shoal.drivers import Order, Promises, Stream, Watcher
    from shoal.drivers.process import ProcessDriver
    from shoal.model.ids import Attempt

FOLDER: Final = ".shoal"
FILES: Final = (
    *(lane.__file__, call_items.__file__),
    *(payloads.__file__, plain_values.__file__),
)
SOCKET: Final = "lane.sock"
PROGRAM: Final = "python3"
WRITE_BYTES_HIGH: Final = 1 << 20
HEAR_OUT_S: Final = 10.0
"""How long what a lane said is waited for after its end, if nobody takes it."""


class LaneEnd(Protocol):
    """Whoever talks to a lane: it is told what the lane says."""

    def said(self, items: list[bytes]) -> None:
        """Take what the lane says."""
        ...

    def slowed(self, *, slow: bool) -> None:
        """Note that the lane does not take in more (or does so again)."""
        ...

    def ended(self) -> None:
        """Note that the lane is over."""
        ...


class LaneDesk(Protocol):
    """Where lanes that have come up are announced."""

    def came(self, order: Order, line: LaneLine) -> LaneEnd:
        """Take a new lane; what is returned is told what it says."""
        ...


@final
class LaneLine(asyncio.Protocol):
    """The socket to one lane."""

    def __init__(self, order: Order, desk: LaneDesk) -> None:
        self._order = order
        self._desk = desk
        self._end: LaneEnd | None = None
        self._transport: asyncio.Transport | None = None
        self._unread = b""
        self._lost = asyncio.Event()

    def write(self, items: Sequence[bytes]) -> None:
        """Say this to the lane."""
        if self._transport is not None and not self._transport.is_closing():
            length = lane.LENGTH.pack
            pieces = [each for data in items for each in (length(len(data)), data)]
            self._transport.write(b"".join(pieces))

    def pause(self, *, paused: bool) -> None:
        """Hear no more for a while, so that the lane waits; or hear again."""
        if self._transport is None or self._transport.is_closing():
            return
        if paused:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()

    async def heard_out(self) -> None:
        """Wait until all that a lane has said is read: its process has ended."""
        if self._transport is not None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(HEAR_OUT_S):
                    await self._lost.wait()

    def close(self) -> None:
        """Hang up; a lane that is still there ends."""
        if self._transport is not None:
            self._transport.abort()

    # What the loop calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Announce the lane."""
        transport = cast("asyncio.Transport", transport)  # uvloop has its own.
        transport.set_write_buffer_limits(high=WRITE_BYTES_HIGH)
        self._transport = transport
        self._end = self._desk.came(self._order, self)

    def data_received(self, data: bytes) -> None:
        """Pass whole items on."""
        data = self._unread + data if self._unread else data
        items: list[bytes] = []
        start, end, head = 0, len(data), lane.LENGTH.size
        while end - start >= head:
            size: int = lane.LENGTH.unpack_from(data, start)[0]
            if not call_items.HEAD_BYTES <= size <= call_items.ITEM_BYTES_MAX:
                self.close()  # The user's own code broke it.
                return
            after = start + head + size
            if after > end:
                break
            items.append(data[start + head : after])
            start = after
        self._unread = data[start:]
        if items and self._end is not None:
            self._end.said(items)

    def pause_writing(self) -> None:
        """Pass it on that the lane is slow."""
        if self._end is not None:
            self._end.slowed(slow=True)

    def resume_writing(self) -> None:
        """Pass it on that the lane has caught up."""
        if self._end is not None:
            self._end.slowed(slow=False)

    def connection_lost(self, exc: Exception | None) -> None:
        """Pass it on that the lane is over."""
        self._lost.set()
        end, self._end = self._end, None
        if end is not None:
            end.ended()


@final
class PythonDriver:
    """Runs lanes; all that is the same for every process is left to `process`."""

    name = "python"

    def __init__(self, process: ProcessDriver) -> None:
        """Run lanes by `process`, which the host opens and closes itself."""
        self.desk: LaneDesk | None = None  # set by whoever passes calls on
        self._process = process

    @property
    def not_isolated(self) -> tuple[str, ...]:
        """What a task here can reach or use up that it should not, in sentences."""
        return self._process.not_isolated

    @property
    def promises(self) -> Promises:
        """What it promises to the owner of the machine, known once it is open."""
        return self._process.promises

    async def open(self) -> None:
        """Have nothing to do: a lane is started when a task wants one."""

    def prepare(self, attempt: Attempt) -> Path:
        """Make the empty work directory of an attempt, for the host to fill."""
        return self._process.prepare(attempt)

    def kept(self, attempt: Attempt, stream: Stream) -> Path:
        """Return the file with the end of what an attempt wrote, if it wrote."""
        return self._process.kept(attempt, stream)

    async def run(self, order: Order, watcher: Watcher) -> Outcome:
        """Run a lane until it ends; see `Driver.run`."""
        assert self.desk is not None, "somebody must want the lanes"
        try:
            directory = order.directory or self.prepare(order.attempt)
            folder = await asyncio.to_thread(furnish, directory)
            listener = listen(folder)
        except OSError as error:
            return Outcome("not-started", reason=cannot(error))
        line = LaneLine(order, self.desk)
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
        """Let the call that runs end within the grace; the others go elsewhere."""
        self._process.stop(attempt, grace_s)

    async def clear(self, attempt: Attempt) -> None:
        """Kill whatever is left of an attempt whose run raised; raise if it stays."""
        await self._process.clear(attempt)

    async def discard(self, *attempts: Attempt) -> None:
        """Remove the work directories and the kept output of ended attempts."""
        await self._process.discard(*attempts)

    async def close(self) -> None:
        """Have nothing to do: all lanes have ended."""


def how(order: Order) -> str:
    """Return how a lane sends results: whoever has another owner reads no pickles."""
    wanted = dict(order.task.work.env).get(plain_values.RESULTS_VARIABLE)
    return lane.PLAIN if order.foreign or wanted == lane.PLAIN else lane.PICKLED


def furnish(directory: Path) -> Path:
    """Put what a lane needs into a new folder of a work directory; return that.

    Compiled files come along: they keep their dates, so the same Python believes them.
    """
    folder = _new_folder(directory)
    packages = folder / "packages"
    for file in FILES:
        _copy(Path(file), folder)
    for module in ("__init__", "asking", "reporting"):
        path = Path(shoal.__file__).with_name(f"{module}.py")
        _copy(path, packages / "shoal")
    found = importlib.util.find_spec("cloudpickle")
    assert found is not None
    assert found.origin is not None
    for each in sorted(Path(found.origin).parent.glob("*.py")):
        _copy(each, packages / "cloudpickle")
    return folder


def _new_folder(directory: Path) -> Path:
    """Make a folder under a name that the user's files leave free."""
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
    """Return a socket that listens in this very folder, however long its path is."""
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
    """Wait for the lane: the first one that comes is it, and the only one."""
    loop = asyncio.get_running_loop()
    found, _ = await loop.sock_accept(listener)
    listener.close()
    with contextlib.suppress(OSError):
        await loop.create_unix_connection(lambda: line, sock=found)
