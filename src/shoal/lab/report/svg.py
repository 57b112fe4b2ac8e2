"""SVG building blocks: elements, axes, ticks. Colours come from the page's style."""

from __future__ import annotations

import math
from html import escape
from typing import Final

import msgspec

HUES: Final = 8
"""Colours that tell lines and kinds apart; then they repeat."""


def number(value: float) -> str:
    """Write a coordinate, short and the same on every machine."""
    text = f"{value:.2f}".rstrip("0").rstrip(".")
    return "0" if text in ("", "-0") else text


def element(tag: str, content: str = "", /, **attributes: str | float) -> str:
    """Return one element; `class_` and `stroke_width` lose what Python needs."""
    parts = [tag]
    for key, value in attributes.items():
        name = key.rstrip("_").replace("_", "-")
        text = value if isinstance(value, str) else number(value)
        parts.append(f'{name}="{escape(text)}"')
    return f"<{' '.join(parts)}>{content}</{tag}>"


def text(x: float, y: float, words: str, /, **attributes: str | float) -> str:
    """Return some words at a place."""
    return element("text", escape(words), x=x, y=y, **attributes)


def title(words: str) -> str:
    """Return what is shown when the pointer rests on an element."""
    return element("title", escape(words))


def picture(width: float, height: float, content: str, label: str) -> str:
    """Return a whole picture, which scales with the page."""
    return element(
        "svg",
        content,
        viewBox=f"0 0 {number(width)} {number(height)}",
        role="img",
        aria_label=label,
        xmlns="http://www.w3.org/2000/svg",
    )


def with_key(drawn: str, names: list[str]) -> str:
    """Return a picture with the colours of names under it, for where no page is."""
    head, _, rest = drawn.partition(">")
    box = next(part for part in head.split('"') if part.startswith("0 0 "))
    _, _, width, height = box.split()
    below = float(height)
    parts: list[str] = []
    x = 60.0
    for place, name in enumerate(names):
        hue = f"fill{place % HUES}"
        parts.append(
            element("rect", x=x, y=below, width=11.0, height=11.0, rx=3.0, class_=hue)
        )
        parts.append(text(x + 17, below + 9.5, name, class_="name"))
        x += 40 + 7 * len(name)
    taller = head.replace(box, f"0 0 {width} {number(below + 20)}")
    return f"{taller}>{rest.removesuffix('</svg>')}{''.join(parts)}</svg>"


def ticks(most: float, about: int = 5) -> list[float]:
    """Return round values from 0 to `most`, about `about` of them."""
    if most <= 0:
        return [0.0]
    rough = most / about
    magnitude = 10.0 ** math.floor(math.log10(rough))
    step = next(m * magnitude for m in (1, 2, 2.5, 5, 10) if m * magnitude >= rough)
    return [step * n for n in range(int(most / step + 1e-9) + 1)]


def time_ticks(span_s: float, about: int = 8) -> list[tuple[float, str]]:
    """Return times from 0 to `span_s` to read a chart by, and their words."""
    steps = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1_800, 3_600, 7_200, 14_400)
    step = next((s for s in steps if span_s / s <= about), 86_400)
    unit, name = (
        (3_600, "h") if step >= 3_600 else (60, "min") if step >= 60 else (1, "s")
    )
    return [
        (float(at), f"{number(at / unit)} {name}" if at else "0")
        for at in range(0, int(span_s) + 1, step)
    ]


class PlotFrame(msgspec.Struct, frozen=True):
    """Where a chart lies in its picture, and what its axes measure."""

    left: float
    top: float
    width: float
    height: float
    x_most: float
    y_most: float

    def x(self, value: float) -> float:
        """Return where a value lies from left to right."""
        return self.left + self.width * value / self.x_most

    def y(self, value: float) -> float:
        """Return where a value lies from bottom to top."""
        return self.top + self.height * (1 - value / self.y_most)

    def grid(self, y_ticks: list[tuple[float, str]]) -> str:
        """Return the lines to read values by, with their texts."""
        right = self.left + self.width
        parts: list[str] = []
        for value, words in y_ticks:
            y = self.y(value)
            parts.append(
                element("line", x1=self.left, x2=right, y1=y, y2=y, class_="grid")
            )
            parts.append(
                text(self.left - 6, y + 3.5, words, class_="tick", text_anchor="end")
            )
        return "".join(parts)

    def time_axis(self, span_s: float) -> str:
        """Return the axis of time under the chart."""
        bottom = self.top + self.height
        parts = [
            element(
                "line",
                x1=self.left,
                x2=self.left + self.width,
                y1=bottom,
                y2=bottom,
                class_="axis",
            )
        ]
        for at, words in time_ticks(span_s):
            x = self.x(at)
            parts.append(
                text(x, bottom + 15, words, class_="tick", text_anchor="middle")
            )
            parts.append(
                element("line", x1=x, x2=x, y1=bottom, y2=bottom + 4, class_="axis")
            )
        return "".join(parts)
