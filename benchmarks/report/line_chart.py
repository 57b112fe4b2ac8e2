"""Draw measured curves as an SVG, in colours that suit light and dark pages."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final, NamedTuple

from shoal.lab.report.svg import element, number, picture, text, ticks, title

WIDTH: Final = 720.0
HEIGHT: Final = 300.0
LEFT: Final = 56.0
RIGHT: Final = 16.0
TOP: Final = 26.0
KEY_ROW: Final = 20.0
KEY_LETTER: Final = 7.0
COLOURS: Final = (
    *("#6a6f78", "#2f7fe0", "#d1690f", "#1b9a6c"),
    *("#a355c0", "#cf4a6c", "#8f7a1c", "#2aa7b8"),
)
INK: Final = "#7a828e"
GRID: Final = "#8a93a0"


class Curve(NamedTuple):
    """A name, and points from left to right."""

    name: str
    points: Sequence[tuple[float, float]]


class _Axis:
    """Places values between two ends of a picture, linearly or in powers of ten."""

    def __init__(
        self, values: Sequence[float], start: float, end: float, *, powers: bool = False
    ) -> None:
        self._powers = powers
        self._start, self._length = start, end - start
        low, high = self._scaled(min(values)), self._scaled(max(values))
        room = 0.0 if powers else 0.04 * (high - low)
        self._low, self._high = low - room, high + room

    def _scaled(self, value: float) -> float:
        return math.log10(value) if self._powers else value

    def place(self, value: float) -> float:
        """Return where a value lies."""
        part = (self._scaled(value) - self._low) / (self._high - self._low)
        return self._start + self._length * part

    def marks(self) -> list[float]:
        """Return round values between the ends."""
        if self._powers:
            first, last = math.ceil(self._low), math.floor(self._high)
            return [10.0**power for power in range(first, last + 1)]
        span = self._high - self._low
        step = ticks(span)[1]
        first = math.ceil(self._low / step)
        return [step * n for n in range(first, math.floor(self._high / step) + 1)]


def drawn(
    curves: Sequence[Curve], x_words: str, y_words: str, *, powers: bool = False
) -> str:
    """Return a picture of curves; `powers` draws x in powers of ten."""
    points = [point for curve in curves for point in curve.points]
    bottom = TOP + HEIGHT
    x = _Axis([p[0] for p in points], LEFT, WIDTH - RIGHT, powers=powers)
    y = _Axis([p[1] for p in points], bottom, TOP)
    parts = [text(LEFT, 14, y_words, fill=INK)]
    for value in y.marks():
        at = y.place(value)
        parts.append(_rule(LEFT, at, WIDTH - RIGHT, at))
        words = number(round(value, 2))
        parts.append(text(LEFT - 6, at + 4, words, fill=INK, text_anchor="end"))
    for value in x.marks():
        at = x.place(value)
        parts.append(_rule(at, TOP, at, bottom))
        words = f"{value:,g}"
        parts.append(text(at, bottom + 16, words, fill=INK, text_anchor="middle"))
    parts.append(text(WIDTH - RIGHT, bottom + 34, x_words, fill=INK, text_anchor="end"))
    key, below = _key(curves, bottom + 52)
    parts.append(key)
    for curve, colour in zip(curves, COLOURS, strict=False):
        path = " ".join(
            f"{number(x.place(a))},{number(y.place(b))}" for a, b in curve.points
        )
        parts.append(
            element(
                "polyline",
                title(curve.name),
                points=path,
                fill="none",
                stroke=colour,
                stroke_width=1.8,
            )
        )
    content = element("g", "".join(parts), font_family="sans-serif", font_size=12.0)
    return picture(WIDTH, below, content, f"{y_words}, by {x_words}") + "\n"


def _rule(x1: float, y1: float, x2: float, y2: float) -> str:
    return element("line", x1=x1, y1=y1, x2=x2, y2=y2, stroke=GRID, stroke_opacity=0.3)


def _key(curves: Sequence[Curve], y: float) -> tuple[str, float]:
    """Return the names with their colours, and where they end."""
    parts: list[str] = []
    x = LEFT
    for curve, colour in zip(curves, COLOURS, strict=False):
        wide = 36 + KEY_LETTER * len(curve.name)
        if x + wide > WIDTH:
            x, y = LEFT, y + KEY_ROW
        parts.append(
            element("rect", x=x, y=y - 9, width=11.0, height=11.0, fill=colour)
        )
        parts.append(text(x + 17, y, curve.name, fill=INK))
        x += wide
    return "".join(parts), y + KEY_ROW / 2
