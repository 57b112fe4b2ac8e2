"""The unix socket by which a task tells its figures, and asks its worker for things.

One JSON object a line: `{"metrics": {"loss": 0.3}, "step": 7, "progress": 0.5}`, which
is not answered, or `{"call": "put", "path": "model.pt"}`, which is, by one line too.
`shoal.log`, `shoal.put` and others are the other end.

A task is not trusted. It gets so many connections, bytes and lines a moment, and
beyond that it waits; of what it tells in one moment the latest is passed on, cut and
clamped to what a `Progress` message can hold. Nonsense is answered with
`{"error": ...}` and counted, and changes nothing else.

A socket stays while attempts come and go. When an attempt ends all its processes are
dead, so what is still unread is read, and then every connection is closed: the next
attempt is never told the figures of the one before.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import socket
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Final, cast, final

import msgspec

from shoal.errors import UsageError
from shoal.model.bounds import NAME_LENGTH_MAX
from shoal.model.texts import one_line
from shoal.protocol.limits import METRICS_MAX

if TYPE_CHECKING:
    from pathlib import Path

PATH_BYTES_MAX: Final = 107
SOCKET_MODE: Final = 0o600
LINE_BYTES_MAX: Final = 65_536
CONNECTIONS_MAX: Final = 8
MOMENT_S: Final = 0.25
"""How often figures are passed on, and for how long the two limits below hold."""

BYTES_PER_MOMENT_MAX: Final = 262_144
LINES_PER_MOMENT_MAX: Final = 1_000
CALLS_MAX: Final = 16
"""Calls of a task that are not answered yet."""

STEP: Final = "step"
CALL: Final = "call"

Progressed = Callable[[float | None, dict[str, float]], None]
Calls = Callable[[Mapping[str, object]], Awaitable[dict[str, object]]]


class Figures(msgspec.Struct):
    """What a task told; within the limits of a message, whatever it said."""

    fraction: float | None = None
    metrics: dict[str, float] = {}


def read(line: bytes) -> dict[str, object] | str:
    """Return the object in a line of a task, or why there is none."""
    try:
        found: object = json.loads(line)
    except (ValueError, RecursionError):
        return "not a line of JSON"
    if not isinstance(found, dict):
        return "not a JSON object"
    return cast("dict[str, object]", found)


def parse(line: bytes) -> Figures | str:
    """Return the figures that a line of a task tells, or why it is nonsense."""
    report = read(line)
    return report if isinstance(report, str) else figures_of(report)


def figures_of(report: dict[str, object]) -> Figures | str:
    """Return the figures that a task tells, or why they are nonsense."""
    metrics = report.get("metrics", {})
    if not isinstance(metrics, dict):
        return "metrics is not an object"
    named = dict(cast("dict[str, object]", metrics))
    if report.get(STEP) is not None:
        named[STEP] = report[STEP]
    figures = Figures()
    for name, value in named.items():
        number = _number(value)
        if number is None:
            return f"metric '{_cut(name)[:32]}' is not a number"
        if len(figures.metrics) < METRICS_MAX:
            figures.metrics[_cut(name)] = number
    if report.get("progress") is None:
        return figures
    progress = _number(report["progress"])
    if progress is None or math.isnan(progress):
        return "progress is not a number between 0 and 1"
    figures.fraction = min(1.0, max(0.0, progress))
    return figures


def _number(value: object) -> float | None:
    if not isinstance(value, int | float):
        return None
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def _cut(name: str) -> str:
    """Make a name fit for a message: JSON can spell what UTF-8 cannot."""
    return one_line(name[:NAME_LENGTH_MAX])


@final
class _Connection:
    """One process of the task that talks to us."""

    def __init__(self, line: socket.socket) -> None:
        self.socket = line
        self.unparsed = b""
        self.skipping = False  # inside a line that is too long

    def lines(self, data: bytes) -> tuple[list[bytes], int]:
        """Return whole lines, and how many were too long."""
        *done, rest = (self.unparsed + data).split(b"\n")
        too_long = 0
        if self.skipping and done:
            del done[0]
            self.skipping = False
        if self.skipping:
            rest = b""
        elif len(rest) > LINE_BYTES_MAX:
            self.skipping = True
            too_long += 1
            rest = b""
        self.unparsed = rest
        fit = [line for line in done if len(line) <= LINE_BYTES_MAX]
        return fit, too_long + len(done) - len(fit)

    def answer(self, answer: Mapping[str, object]) -> None:
        """Say something, if the task cares to hear it."""
        data = json.dumps(answer).encode() + b"\n"
        with contextlib.suppress(OSError):
            self.socket.send(data, socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)


@final
class TaskSocket:
    """Listens at `path`, for one attempt after another."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.counts: Counter[str] = Counter()
        self._loop = asyncio.get_running_loop()
        self._listener: socket.socket | None = None
        self._connections: dict[int, _Connection] = {}
        self._progressed: Progressed | None = None
        self._calls: Calls | None = None
        self._answering: set[asyncio.Task[None]] = set()  # at most CALLS_MAX
        self._pending: Figures | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._bytes_left = BYTES_PER_MOMENT_MAX
        self._lines_left = LINES_PER_MOMENT_MAX

    def open(self, mode: int = SOCKET_MODE) -> None:
        """Begin to listen; by default nobody but this user can connect.

        A wider `mode` is for sockets in a folder that nobody else can enter.
        """
        if len(str(self.path).encode()) > PATH_BYTES_MAX:
            raise UsageError(
                f"the path of a task's socket is too long: {self.path}",
                because=f"the system allows {PATH_BYTES_MAX} bytes",
                hint="choose a shorter folder for sockets",
            )
        self.path.unlink(missing_ok=True)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener = listener
        listener.setblocking(False)
        listener.bind(str(self.path))
        self.path.chmod(mode)
        listener.listen(CONNECTIONS_MAX)
        self._loop.add_reader(listener, self._accept)

    def begin(self, progressed: Progressed, calls: Calls | None = None) -> None:
        """Tell `progressed` from now on, and let `calls` answer: an attempt begins."""
        assert self._progressed is None, "one attempt at a time"
        self._progressed = progressed
        self._calls = calls

    def end(self) -> None:
        """Pass on what the dead processes of the attempt have told, and forget them."""
        self._accept()
        self._bytes_left = BYTES_PER_MOMENT_MAX
        self._lines_left = LINES_PER_MOMENT_MAX
        for connection in list(self._connections.values()):
            while self._bytes_left > 0 and self._receive(connection):
                pass
            self._drop(connection)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._pass_on()
        self._progressed = None
        self._calls = None
        for answering in self._answering:
            answering.cancel()

    def close(self) -> None:
        """Stop listening."""
        for connection in list(self._connections.values()):
            self._drop(connection)
        if self._timer is not None:
            self._timer.cancel()
        if self._listener is not None:
            self._loop.remove_reader(self._listener)
            self._listener.close()
            self._listener = None
            self.path.unlink(missing_ok=True)

    # Connections.

    def _accept(self) -> None:
        assert self._listener is not None
        for _ in range(2 * CONNECTIONS_MAX):
            try:
                line, _ = self._listener.accept()
            except OSError:  # Nobody waits, or we have no more files.
                return
            if len(self._connections) >= CONNECTIONS_MAX or self._progressed is None:
                self.counts["connections refused"] += 1
                line.close()
                continue
            line.setblocking(False)
            self._connections[line.fileno()] = _Connection(line)
            self._loop.add_reader(line, self._on_readable, line.fileno())

    def _drop(self, connection: _Connection) -> None:
        self._loop.remove_reader(connection.socket)
        del self._connections[connection.socket.fileno()]
        connection.socket.close()

    def _on_readable(self, fd: int) -> None:
        connection = self._connections[fd]
        if self._bytes_left <= 0 or self._lines_left <= 0:
            self.counts["moments too busy"] += 1
            self._loop.remove_reader(connection.socket)  # until the moment is over
            self._arm()
        elif self._receive(connection) is False:
            self._drop(connection)

    def _receive(self, connection: _Connection) -> bool | None:
        """Read once; return whether there may be more, and None if not yet."""
        try:
            data = connection.socket.recv(LINE_BYTES_MAX)
        except BlockingIOError:
            return None
        except OSError:
            return False
        self._bytes_left -= len(data)
        lines, too_long = connection.lines(data)
        if too_long:
            self._refuse(connection, f"a line is longer than {LINE_BYTES_MAX} bytes")
        for line in lines:
            self._on_line(connection, line)
        self._arm()
        return bool(data)

    # Figures.

    def _on_line(self, connection: _Connection, line: bytes) -> None:
        if not line.strip():
            return
        self._lines_left -= 1
        report = read(line)
        if isinstance(report, dict) and CALL in report:
            self._call(connection, report)
            return
        figures = report if isinstance(report, str) else figures_of(report)
        if isinstance(figures, str):
            self._refuse(connection, figures)
            return
        self.counts["reports"] += 1
        if self._pending is None:
            self._pending = figures
            return
        if figures.fraction is not None:
            self._pending.fraction = figures.fraction
        for name, number in figures.metrics.items():
            if len(self._pending.metrics) < METRICS_MAX or name in (
                self._pending.metrics
            ):
                self._pending.metrics[name] = number

    def _refuse(self, connection: _Connection, reason: str) -> None:
        self.counts["nonsense"] += 1
        connection.answer({"error": reason})

    def _call(self, connection: _Connection, call: dict[str, object]) -> None:
        if self._calls is None or len(self._answering) >= CALLS_MAX:
            why = "calls are not answered here" if self._calls is None else "too many"
            self._refuse(connection, why)
            return
        self.counts["calls"] += 1
        answering = self._loop.create_task(self._answer(connection, self._calls, call))
        self._answering.add(answering)
        answering.add_done_callback(self._answering.discard)

    async def _answer(
        self, connection: _Connection, calls: Calls, call: dict[str, object]
    ) -> None:
        try:
            answer = await calls(call)
        except Exception as error:  # noqa: BLE001 - No call of a task ends anything.
            self.counts["calls that raised"] += 1
            answer = {"error": f"the worker cannot: {type(error).__name__}"}
        if connection.socket.fileno() >= 0:  # Unless the task hung up.
            connection.answer(answer)

    def _arm(self) -> None:
        if self._timer is None:
            self._timer = self._loop.call_later(MOMENT_S, self._on_moment)

    def _on_moment(self) -> None:
        self._timer = None
        self._bytes_left = BYTES_PER_MOMENT_MAX
        self._lines_left = LINES_PER_MOMENT_MAX
        self._pass_on()
        for fd, connection in self._connections.items():
            self._loop.add_reader(connection.socket, self._on_readable, fd)

    def _pass_on(self) -> None:
        figures, self._pending = self._pending, None
        if figures is not None and self._progressed is not None:
            self._progressed(figures.fraction, figures.metrics)
