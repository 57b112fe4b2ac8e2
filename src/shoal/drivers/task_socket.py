"""The unix socket by which a task reports metrics and calls its worker.

Each line is a JSON object: `{"metrics": {"loss": 0.3}, "step": 7, "progress": 0.5}`
gets no answer; `{"call": "put", "path": "model.pt"}` gets one line back. The other end
is `shoal.log`, `shoal.put` and so on. After `{"call": "api"}` a connection belongs to
the API of the task's shoal (`runtime.channels.task_api`), and its lines are none of
ours.

Tasks are not trusted. Connections are limited, and so are bytes and lines per moment of
`MOMENT_S`; beyond that a task waits. Each moment the latest metrics are passed on, cut
and clamped to the limits of a `Progress` message, and with them every report as a line
of its own (`model.metric_lines`), so that none is lost. Invalid lines are answered
with `{"error": ...}`, counted, and otherwise ignored.

A socket serves one attempt after another. When an attempt ends, all its processes are
dead, so unread data is read and every connection closed: metrics of one attempt are
never reported for the next.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import select
import socket
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Final, cast, final

import msgspec

from shoal.errors import UsageError
from shoal.model import metric_lines
from shoal.model.text.bounds import NAME_LENGTH_MAX
from shoal.model.text.texts import one_line
from shoal.protocol.limits import METRICS_MAX

if TYPE_CHECKING:
    from pathlib import Path

PATH_BYTES_MAX: Final = 107
SOCKET_MODE: Final = 0o600
LINE_BYTES_MAX: Final = 65_536
CONNECTIONS_MAX: Final = 8
MOMENT_S: Final = 0.25
"""Interval at which metrics are passed on, and of the two limits below."""

BYTES_PER_MOMENT_MAX: Final = 262_144
LINES_PER_MOMENT_MAX: Final = 1_000
CALLS_MAX: Final = 16
"""Unanswered calls that a task may have."""

STEP: Final = "step"
CALL: Final = "call"
API: Final = "api"

Progressed = Callable[[float | None, dict[str, float], tuple[bytes, ...]], None]
"""Takes the fraction, the latest metrics, and all reports of a moment as lines."""
Calls = Callable[[Mapping[str, object]], Awaitable[dict[str, object]]]
OpenApi = Callable[[socket.socket], None]


class TaskFigures(msgspec.Struct):
    """Metrics that a task reported, clamped to the limits of a message."""

    fraction: float | None = None
    metrics: dict[str, float] = {}


def read(line: bytes) -> dict[str, object] | str:
    """Parse a line as a JSON object; return why it is none if so."""
    try:
        found: object = json.loads(line)
    except (ValueError, RecursionError):
        return "not a line of JSON"
    if not isinstance(found, dict):
        return "not a JSON object"
    return cast("dict[str, object]", found)


def parse(line: bytes) -> TaskFigures | str:
    """Return the metrics in a line of a task, or why it is invalid."""
    report = read(line)
    return report if isinstance(report, str) else figures_of(report)


def figures_of(report: dict[str, object]) -> TaskFigures | str:
    """Return the metrics in a report of a task, or why they are invalid."""
    metrics = report.get("metrics", {})
    if not isinstance(metrics, dict):
        return "metrics is not an object"
    named = dict(cast("dict[str, object]", metrics))
    if report.get(STEP) is not None:  # First, so that it is never beyond the bound.
        named = {STEP: report[STEP]} | named | {STEP: report[STEP]}
    figures = TaskFigures()
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
    """Shorten and clean a name: JSON can hold text that UTF-8 cannot."""
    return one_line(name[:NAME_LENGTH_MAX])


@final
class _Connection:
    """A connection from one process of the task."""

    def __init__(self, line: socket.socket) -> None:
        self.socket = line
        self.unparsed = b""
        self.skipping = False  # whether inside a line that is too long

    def lines(self, data: bytes) -> tuple[list[bytes], int]:
        """Add data; return complete lines, and how many lines were too long."""
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
        """Send an answer; drop it if the task does not read."""
        data = json.dumps(answer).encode() + b"\n"
        with contextlib.suppress(OSError):
            self.socket.send(data, socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)


@final
class TaskSocket:
    """Listens at `path` for one attempt after another."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.counts: Counter[str] = Counter()
        self._loop = asyncio.get_running_loop()
        self._listener: socket.socket | None = None
        self._waiting = select.poll()  # for connections that are not accepted yet
        self._connections: dict[int, _Connection] = {}
        self._progressed: Progressed | None = None
        self._calls: Calls | None = None
        self._open_api: OpenApi | None = None
        self._answering: set[asyncio.Task[None]] = set()  # at most CALLS_MAX
        self._pending: TaskFigures | None = None
        self._lines: list[bytes] = []
        self._timer: asyncio.TimerHandle | None = None
        self._bytes_left = BYTES_PER_MOMENT_MAX
        self._lines_left = LINES_PER_MOMENT_MAX

    def open(self, mode: int = SOCKET_MODE) -> None:
        """Start to listen; by default only this user can connect.

        Use a wider `mode` only in a folder that no other user can enter.
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
        self._waiting.register(listener, select.POLLIN)

    def begin(
        self,
        progressed: Progressed,
        calls: Calls | None = None,
        open_api: OpenApi | None = None,
    ) -> None:
        """Begin an attempt: report metrics to `progressed`, calls to `calls`.

        Connections that are to call the API go to `open_api`.
        """
        assert self._progressed is None, "one attempt at a time"
        self._progressed = progressed
        self._calls = calls
        self._open_api = open_api

    def end(self) -> None:
        """End an attempt: pass on its unread metrics and close its connections."""
        if self._waiting.poll(0):  # To accept when nobody waits takes longer.
            self._accept()
        self._bytes_left = BYTES_PER_MOMENT_MAX
        self._lines_left = LINES_PER_MOMENT_MAX
        for connection in list(self._connections.values()):
            self._bytes_left = BYTES_PER_MOMENT_MAX  # More than the kernel holds.
            while self._bytes_left > 0 and self._receive(connection):
                pass
            self._drop(connection)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._pass_on()
        self._progressed = None
        self._calls = None
        self._open_api = None
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
            except OSError:  # No connection waits, or no descriptor is free.
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
        elif self._receive(connection) is False and fd in self._connections:
            self._drop(connection)

    def _receive(self, connection: _Connection) -> bool | None:
        """Read once; return True for data, False at the end, None if not ready."""
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

    # Metrics and calls.

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
        self._lines += metric_lines.encode(time.time(), figures.metrics)
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
        if call[CALL] == API and self._open_api is not None:
            self._hand_over(connection, self._open_api)
            return
        if self._calls is None or len(self._answering) >= CALLS_MAX:
            why = "calls are not answered here" if self._calls is None else "too many"
            self._refuse(connection, why)
            return
        self.counts["calls"] += 1
        answering = self._loop.create_task(self._answer(connection, self._calls, call))
        self._answering.add(answering)
        answering.add_done_callback(self._answering.discard)

    def _hand_over(self, connection: _Connection, open_api: OpenApi) -> None:
        """Let the API have a connection; what follows is answered there."""
        if connection.socket.fileno() not in self._connections:
            return  # It was handed over before: the task does not wait for answers.
        self._loop.remove_reader(connection.socket)
        del self._connections[connection.socket.fileno()]
        open_api(connection.socket)

    async def _answer(
        self, connection: _Connection, calls: Calls, call: dict[str, object]
    ) -> None:
        try:
            answer = await calls(call)
        except Exception as error:  # noqa: BLE001 - Keep serving other calls.
            self.counts["calls that raised"] += 1
            answer = {"error": f"the worker cannot: {type(error).__name__}"}
        if connection.socket.fileno() >= 0:  # Unless the connection is closed.
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
        lines, self._lines = tuple(self._lines), []
        if figures is not None and self._progressed is not None:
            self._progressed(figures.fraction, figures.metrics, lines)
