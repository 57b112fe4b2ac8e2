"""The Gantt chart: one lane per device, one bar per task."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from shoal.lab.report.charts import (
    LEFT,
    RIGHT,
    WIDTH,
    Marks,
    above,
    marked,
)
from shoal.lab.report.formatting import seconds
from shoal.lab.report.svg import HUES, PlotFrame, element, picture, text, title

if TYPE_CHECKING:
    from collections.abc import Sequence

    from shoal.lab.datacentre.recorder import Bar
    from shoal.model.ids import JobId

LANES_MAX: Final = 160
"""More lanes than these would be thinner than a line."""

HEIGHT: Final = 560.0
LANE_MAX: Final = 14.0


def gantt(
    bars: Sequence[Bar],
    kinds: dict[JobId, int],
    hosts: Sequence[str],
    devices: int,
    span_s: float,
    marks: Marks,
) -> str:
    """Return the bars of the first hosts; `kinds` gives each job its colour."""
    per_host = max(1, devices)
    shown = min(len(hosts), max(1, LANES_MAX // per_host))
    lane = min(LANE_MAX, HEIGHT / (shown * per_host))
    height = lane * shown * per_host
    top = 12.0 + above(marks)
    frame = PlotFrame(LEFT + 14, top, WIDTH - LEFT - 14 - RIGHT, height, span_s, 1.0)
    parts = [_stripes(frame, hosts[:shown], lane * per_host)]
    for bar in bars:
        if bar.host < shown and bar.began < span_s:
            places = bar.devices if devices else (0,)
            parts.extend(
                _rect(frame, bar, place, lane, per_host, kinds) for place in places
            )
    parts.append(marked(frame, marks))
    parts.append(frame.time_axis(span_s))
    return picture(
        WIDTH, top + height + 28, "".join(parts), "jobs on devices over time"
    )


def shown_of(hosts: int, devices: int) -> str:
    """Say how much of a large shoal the picture shows."""
    shown = min(hosts, max(1, LANES_MAX // max(1, devices)))
    return "" if shown == hosts else f"The first {shown} of {hosts:,} hosts."


def _stripes(frame: PlotFrame, hosts: Sequence[str], band: float) -> str:
    parts: list[str] = []
    every = max(1, round(13 / band))
    for place, name in enumerate(hosts):
        y = frame.top + place * band
        if place % 2 == 0:
            parts.append(
                element(
                    "rect",
                    x=frame.left,
                    y=y,
                    width=frame.width,
                    height=band,
                    class_="stripe",
                )
            )
        if place % every == 0:
            parts.append(
                text(
                    frame.left - 6,
                    y + band / 2 + 3.5,
                    name,
                    class_="tick",
                    text_anchor="end",
                )
            )
    return "".join(parts)


def _rect(
    frame: PlotFrame,
    bar: Bar,
    place: int,
    lane: float,
    per_host: int,
    kinds: dict[JobId, int],
) -> str:
    ended = bar.ended if bar.ended >= 0 else frame.x_most
    x = frame.x(bar.began)
    width = max(0.8, frame.x(min(ended, frame.x_most)) - x)
    end = "cut short" if bar.cut else "ended"
    told = f"{bar.job}: {seconds(bar.began)} to {seconds(ended)}, {end}"
    gap = 0.5 if lane > 3 else 0.15
    return element(
        "rect",
        title(told),
        x=x,
        y=frame.top + (bar.host * per_host + place) * lane + gap,
        width=width,
        height=max(0.6, lane - 2 * gap),
        class_=f"bar fill{kinds[bar.job] % HUES}{' cut' if bar.cut else ''}",
    )
