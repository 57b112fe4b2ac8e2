"""Plots in a terminal with braille dots: two columns by four rows per character."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

    Points = Sequence[tuple[float, float]]

_DOTS: Final = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))
_EMPTY: Final = 0x2800
MARGIN: Final = 9
"""Columns left of the plot, for its scale."""


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
