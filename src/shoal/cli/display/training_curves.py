"""`shoal run --watch`: plot the curves of a job instead of its output.

Any program that calls `shoal.log` has curves. Training programs of shoal print one JSON
object per line as well, from which rounds and bytes are taken. In a terminal the plot
is redrawn in place; elsewhere there is a line for each round, or for each moment, and
one plot at the end. What a program prints besides goes to stderr.
"""

from __future__ import annotations

import json
import math
import queue
import sys
import threading
import time
from typing import TYPE_CHECKING, Any, Final, final

from shoal.api import shoal_pb2 as pb
from shoal.api.results import best_first
from shoal.cli.display.task_output import screened
from shoal.cli.terminal import echo, echo_lines, safe_line
from shoal.model import metric_lines

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    Points = Sequence[tuple[float, float]]

_DOTS: Final = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))
_EMPTY: Final = 0x2800
MARGIN: Final = 9
"""Columns left of the plot, for its scale."""

WIDTH_MIN, WIDTH_MAX = 25, 72


def plot(curves: Sequence[Points], *, width: int = 64, height: int = 10) -> list[str]:
    """Plot curves on one scale; return the lines, none if there is nothing to plot.

    Values that are not finite are left out.
    """
    known = [
        [(x, y) for x, y in curve if math.isfinite(x) and math.isfinite(y)]
        for curve in curves
    ]
    points = [point for curve in known for point in curve]
    if not points:
        return []
    left, right = min(x for x, _ in points), max(x for x, _ in points)
    low, high = min(y for _, y in points), max(y for _, y in points)
    columns, rows = 2 * (width - MARGIN), 4 * height
    cells = [[_EMPTY] * (width - MARGIN) for _ in range(height)]

    def place(x: float, y: float) -> tuple[int, int]:
        across = (x - left) / (right - left) if right > left else 0.0
        up = (y - low) / (high - low) if high > low else 0.5
        return round(across * (columns - 1)), round((1 - up) * (rows - 1))

    for curve in known:
        dots = [place(x, y) for x, y in sorted(curve)]
        for one, other in zip(dots, dots[1:] or dots, strict=False):
            for column, row in _line(one, other):
                cells[row // 4][column // 2] |= _DOTS[row % 4][column % 2]
    lines = ["".join(map(chr, row)) for row in cells]
    scale = {0: high, height - 1: low}
    body = [
        f"{_short(scale[n]) if n in scale else '':>{MARGIN - 2}} ┤{line}"
        for n, line in enumerate(lines)
    ]
    foot = f"{_short(left)}{_short(right):>{width - MARGIN - len(_short(left))}}"
    return [*body, " " * MARGIN + foot]


def _line(one: tuple[int, int], other: tuple[int, int]) -> list[tuple[int, int]]:
    """Return the dots on a line between two dots, both included."""
    steps = max(abs(other[0] - one[0]), abs(other[1] - one[1]), 1)
    return [
        (
            round(one[0] + (other[0] - one[0]) * n / steps),
            round(one[1] + (other[1] - one[1]) * n / steps),
        )
        for n in range(steps + 1)
    ]


def _short(number: float) -> str:
    """Format a number in at most seven characters."""
    return f"{number:.4g}"


ROUND: Final = "round"
VALIDATION: Final = "validation_loss"
POINTS_MAX: Final = 2_000
METRICS_NAMED: Final = 4
SAY_S: Final = 2.0
"""Between two lines about metrics, where nothing can be redrawn."""

QUEUED_MAX: Final = 256
TAIL_MAX: Final = 65_536
"""Longest unfinished line; anything longer is not JSON of ours."""


@final
class CurveBoard:
    """The state of a run so far."""

    def __init__(self) -> None:
        self.loss: dict[float, float] = {}
        self.validation: dict[float, float] = {}
        self.latest: dict[str, Any] = {}
        self.workers: dict[str, Any] = {}
        self.remarks: list[str] = []
        self._rests: dict[tuple[str, int], bytes] = {}

    def take(self, piece: pb.LogPiece) -> bool:
        """Parse some output; return whether it had a round or a measurement."""
        key = (piece.task, piece.stream)
        *lines, rest = (self._rests.get(key, b"") + piece.data).split(b"\n")
        self._rests[key] = rest[-TAIL_MAX:]
        news = [self._take_line(piece.task.partition(".")[2], line) for line in lines]
        return any(news)

    def _take_line(self, task: str, line: bytes) -> bool:
        try:
            said: Any = json.loads(line)
        except (ValueError, RecursionError):
            said = None
        if not isinstance(said, dict):
            if line.strip():
                self.remarks.append(f"{task} | {screened(line)}")
            return False
        fields: dict[str, Any] = said  # pyright: ignore[reportUnknownVariableType]
        at = fields.get(ROUND, fields.get("step"))
        if not isinstance(at, int | float):
            return False
        if isinstance(fields.get(VALIDATION), int | float):
            self.validation[float(at)] = float(fields[VALIDATION])
            return True
        event = fields.get("event")
        if event not in (ROUND, "loss") or not isinstance(
            fields.get("loss"), int | float
        ):
            return False
        self.loss[float(at)] = float(fields["loss"])
        self.latest = fields
        workers = fields.get("by_worker")
        if isinstance(workers, dict):
            self.workers.update(workers)  # pyright: ignore[reportUnknownArgumentType]
        return True

    def headline(self) -> str:
        """Summarise the progress in one line."""
        parts: list[str] = []
        if self.loss:
            at = max(self.loss)
            parts.append(f"round {at:g}  loss {self.loss[at]:.4g}")
        if self.validation:
            parts.append(f"validation {self.validation[max(self.validation)]:.4g}")
        rate = "tokens_per_s" if "tokens_per_s" in self.latest else "samples_per_s"
        for name, text in (
            (rate, "{:,.0f} " + rate.removesuffix("_per_s") + "/s"),
            ("workers", "{:g} workers"),
        ):
            if isinstance(self.latest.get(name), int | float):
                parts.append(text.format(self.latest[name]))
        if isinstance(self.latest.get("bytes_sent"), int | float):
            parts.append(f"sent {_size(self.latest['bytes_sent'])} a round")
        missing = self.latest.get("missing")
        if missing:
            parts.append(f"without {', '.join(map(str, missing))}")
        return "  ".join(parts)

    def picture(self, width: int = WIDTH_MAX, height: int = 10) -> list[str]:
        """Return headline and curves."""
        curves = [sorted(self.loss.items()), sorted(self.validation.items())]
        shown = plot(curves, width=width, height=height)
        return [self.headline(), *shown] if shown else []


@final
class MetricBoard:
    """What the tasks of a run report by `shoal.log`, one metric of it as curves."""

    def __init__(self, names: Mapping[str, str], metric: str = "") -> None:
        """Plot `metric`, or the most telling one if it is empty."""
        self._names = names
        self._metric = metric
        self._rests: dict[tuple[str, int], bytes] = {}
        self._latest: dict[str, dict[str, float]] = {}
        self._points: dict[str, dict[str, list[tuple[float, float]]]] = {}

    def take(self, piece: pb.LogPiece) -> bool:
        """Add reports; return whether there were any."""
        key = (piece.task, piece.attempt)
        whole, end, rest = (self._rests.pop(key, b"") + piece.data).rpartition(b"\n")
        self._rests[key] = rest[-TAIL_MAX:]
        reports = list(metric_lines.decode(whole + end))
        for report in reports:
            latest = self._latest.setdefault(piece.task, {})
            latest.update(report.metrics)
            for name, value in report.metrics.items():
                lines = self._points.setdefault(name, {})
                points = lines.setdefault(piece.task, [])
                at = float(len(points)) if math.isnan(report.step) else report.step
                points.append((at, value))
                if len(points) > POINTS_MAX:
                    del points[1::2]
        return bool(reports)

    @property
    def shown(self) -> str:
        """The metric that is plotted; empty if there is none yet."""
        if self._metric in self._points:
            return self._metric
        tasks = [pb.Task(metrics=latest) for latest in self._latest.values()]
        order = best_first(pb.Job(tasks=tasks))
        return order.name if order else next(iter(self._points), "")

    def headline(self) -> str:
        """Summarise the latest reports in one line."""
        name = self.shown
        lines = self._points.get(name, {})
        if len(lines) == 1:
            [(task, points)] = lines.items()
            others = {k: v for k, v in self._latest[task].items() if k != name}
            told = {name: points[-1][1], **others}
            parts = [f"{key} {value:.4g}" for key, value in told.items()]
            return f"step {points[-1][0]:g}  " + "  ".join(parts[:METRICS_NAMED])
        last = {task: points[-1][1] for task, points in lines.items()}
        parts = [
            f"{self._names.get(task) or task.partition('.')[2]} {value:.4g}"
            for task, value in list(last.items())[:METRICS_NAMED]
        ]
        more = f"  and {len(last) - len(parts)} more" if len(last) > len(parts) else ""
        return f"{name}  " + "  ".join(parts) + more if parts else ""

    def picture(self, width: int = WIDTH_MAX, height: int = 10) -> list[str]:
        """Return headline and curves."""
        shown = plot(
            [*self._points.get(self.shown, {}).values()], width=width, height=height
        )
        return [self.headline(), *shown] if shown else []


def watch(
    pieces: Iterable[pb.LogPiece],
    metrics: Iterable[pb.LogPiece] = (),
    names: Mapping[str, str] | None = None,
    metric: str = "",
) -> None:
    """Show a run until its output and its metrics end."""
    printed, reported = CurveBoard(), MetricBoard(names or {}, metric)
    drawn = 0
    said_s = -math.inf
    is_terminal = sys.stdout.isatty()
    for piece in _merged(pieces, metrics):
        if piece.stream == pb.STREAM_METRICS:
            news = reported.take(piece)
        else:
            news = printed.take(piece)
        board = printed if printed.loss or printed.validation else reported
        if printed.remarks and drawn:
            drawn, news = _erase(drawn), True
        for remark in printed.remarks:
            echo(remark, err=True)
        printed.remarks.clear()
        if news and is_terminal:
            drawn = _draw(board, drawn)
        elif news and (board is printed or time.monotonic() > said_s + SAY_S):
            said_s = time.monotonic()
            echo(board.headline())
    if not is_terminal:
        board = printed if printed.loss or printed.validation else reported
        echo_lines("\n".join(board.picture()))


def _merged(*streams: Iterable[pb.LogPiece]) -> Iterator[pb.LogPiece]:
    """Yield the pieces of several streams as they come; raise what one raises."""
    found: queue.Queue[pb.LogPiece | BaseException | None] = queue.Queue(QUEUED_MAX)

    def read(stream: Iterable[pb.LogPiece]) -> None:
        try:
            for piece in stream:
                found.put(piece)
        except BaseException as error:  # noqa: BLE001 - It is raised in the other thread.
            found.put(error)
        else:
            found.put(None)

    for stream in streams:
        threading.Thread(target=read, args=(stream,), daemon=True).start()
    left = len(streams)
    while left:
        piece = found.get()
        if piece is None:
            left -= 1
        elif isinstance(piece, BaseException):
            raise piece
        else:
            yield piece


def _room() -> int:
    """Return the longest line of this terminal: one that wraps cannot be redrawn."""
    from shutil import get_terminal_size  # noqa: PLC0415 - Only for people.

    return max(WIDTH_MIN, get_terminal_size().columns - 1)


def _draw(board: CurveBoard | MetricBoard, drawn: int) -> int:
    """Redraw in place; return the number of lines."""
    room = _room()
    lines = [safe_line(line) for line in board.picture(min(WIDTH_MAX, room))]
    cut = [line if len(line) <= room else f"{line[: room - 1]}…" for line in lines]
    up = f"\x1b[{drawn}A" if drawn else ""
    text = "".join(f"\x1b[2K{line}\n" for line in cut)
    sys.stdout.write(up + text)
    sys.stdout.flush()
    return len(lines)


def _erase(drawn: int) -> int:
    """Clear what was drawn, so that lines above it stay; return 0."""
    sys.stdout.write(f"\x1b[{drawn}A\x1b[J")
    sys.stdout.flush()
    return 0


def _size(count: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000 or unit == "GB":
            break
        count /= 1000
    return f"{count:.3g} {unit}"
