"""Line charts: how full hosts are, how long queues are, how news spreads."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Final

from shoal.lab.report.formatting import columns, seconds, share
from shoal.lab.report.svg import (
    HUES,
    PlotFrame,
    element,
    number,
    picture,
    text,
    ticks,
    title,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from shoal.lab.datacentre.results import RunResult
    from shoal.lab.datacentre.settings import PlannedFault

WIDTH: Final = 960.0
LEFT: Final = 56.0
RIGHT: Final = 16.0
WORDS: Final = 130.0  # room for the words of a mark
ROWS_MAX: Final = 4

Marks = tuple[tuple[float, str], ...]


def marks_of(planned_faults: Sequence[PlannedFault]) -> Marks:
    """Return what happened when, in a few words."""
    marks: list[tuple[float, str]] = []
    for each in planned_faults:
        words = {"fail": "fails", "join": "joins", "leave": "leaves"}[each.what]
        marks.append((each.at_s, f"{each.name} {words}"))
        if each.for_s is not None:
            marks.append((each.at_s + each.for_s, f"{each.name} is back"))
    return tuple(sorted(marks))


def legend(names: Sequence[str], kind: str = "", note: str = "") -> str:
    """Return names with their colours, for above a chart; `kind` styles swatches."""
    items = [
        element(
            "span",
            element("i", class_=f"swatch {kind}hue{place % HUES}") + escape(name),
            class_="key",
        )
        for place, name in enumerate(names)
    ]
    return element("p", "".join(items) + note, class_="legend")


def over_time(results: list[RunResult], marks: Marks) -> str:
    """Return utilisation and queue of all runs, one above the other."""
    span_s = max(result.makespan_s for result in results)
    waiting_most = max(max(result.series.waiting) for result in results)
    top = 26.0 + above(marks)
    wide = WIDTH - LEFT - RIGHT
    upper = PlotFrame(LEFT, top, wide, 150, span_s, 1.0)
    lower = PlotFrame(LEFT, top + 196, wide, 150, span_s, max(1.0, waiting_most))
    parts = [
        text(LEFT, 14, "devices in use", class_="label"),
        upper.grid([(v, share(v)) for v in (0.0, 0.5, 1.0)]),
        text(LEFT, top + 184, "tasks that wait", class_="label"),
        lower.grid([(v, number(v)) for v in ticks(lower.y_most, 4)]),
        lower.time_axis(span_s),
        marked(upper, marks),
        marked(lower, marks, named=False),
    ]
    for place, (result, name) in enumerate(zip(results, columns(results), strict=True)):
        hue = place % HUES
        step_s = result.series.step_s
        used = [(step_s * n, value) for n, value in enumerate(result.series.used)]
        parts.append(curve(upper, used, hue, f"{name}: devices in use"))
        waiting = [(step_s * n, v) for n, v in enumerate(result.series.waiting)]
        parts.append(curve(lower, waiting, hue, f"{name}: tasks that wait"))
    return picture(WIDTH, top + 374, "".join(parts), "utilisation and queue over time")


def spreading(results: list[RunResult], interval_s: float) -> str:
    """Return how many hosts had heard a piece of news, after how long."""
    # Long enough for the slowest to reach most hosts; the last few may take longer.
    bound_s = results[0].gossip.log2_hosts * interval_s
    slowest_s = max(result.gossip.converged_p50_s or 0.0 for result in results)
    span_s = max(bound_s * 1.25, slowest_s * 2, interval_s)
    frame = PlotFrame(LEFT, 26, WIDTH - LEFT - RIGHT, 200, span_s, 1.0)
    x = frame.x(bound_s)
    parts = [
        text(LEFT, 14, "hosts that have heard a piece of news", class_="label"),
        frame.grid([(v, share(v)) for v in (0.0, 0.25, 0.5, 0.75, 1.0)]),
        frame.time_axis(span_s) if span_s >= 2 else _short_axis(frame),
        element("line", x1=x, x2=x, y1=26, y2=226, class_="bound"),
        text(
            x + 6,
            214,
            f"log2({round(2 ** results[0].gossip.log2_hosts)}) rounds",
            class_="tick",
        ),
    ]
    for place, (result, name) in enumerate(zip(results, columns(results), strict=True)):
        gossip = result.gossip
        heard = zip(gossip.curve_s, gossip.curve_share, strict=True)
        points = [(at, reached) for at, reached in heard if at <= span_s]
        points.append((span_s, points[-1][1]))
        told = f"{name}: 99 % know after {seconds(gossip.converged_p50_s)}"
        parts.append(curve(frame, points, place % HUES, told))
    return picture(WIDTH, 252, "".join(parts), "how news spreads")


def _short_axis(frame: PlotFrame) -> str:
    bottom = frame.top + frame.height
    parts = [
        text(
            frame.x(at),
            bottom + 15,
            f"{number(at * 1e3)} ms" if at else "0",
            class_="tick",
            text_anchor="middle",
        )
        for at in ticks(frame.x_most, 6)
    ]
    return "".join(parts)


def above(marks: Marks) -> float:
    """Return the height that the words of marks need above a chart."""
    return 13.0 * min(ROWS_MAX, len(marks))


def marked(frame: PlotFrame, marks: Marks, *, named: bool = True) -> str:
    """Return a line for each mark, with its words above the chart."""
    parts: list[str] = []
    ends: list[float] = []  # how far the words in each row go
    for at, words in marks:
        if at > frame.x_most:
            continue
        x, down = frame.x(at), frame.top + frame.height
        flip = x > WIDTH - WORDS
        row = next((n for n, end in enumerate(ends) if end <= x), len(ends)) % ROWS_MAX
        if row == len(ends):
            ends.append(0.0)
        ends[row] = x + WORDS
        up = frame.top - (4 + 13 * row if named else 0)
        line = element("line", title(words), x1=x, x2=x, y1=up, y2=down, class_="event")
        parts.append(line)
        if named:
            side, place = ("end", x - 4) if flip else ("start", x + 4)
            parts.append(text(place, up + 2, words, class_="mark", text_anchor=side))
    return "".join(parts)


def curve(
    frame: PlotFrame, points: Sequence[tuple[float, float]], hue: int, told: str
) -> str:
    """Return a line through points; from the ninth on, colours come back dashed."""
    dashes = "none" if hue < HUES else "7 4"
    path = " ".join(f"{number(frame.x(x))},{number(frame.y(y))}" for x, y in points)
    return element(
        "polyline",
        title(told),
        points=path,
        class_=f"line hue{hue % HUES}",
        stroke_dasharray=dashes,
    )
