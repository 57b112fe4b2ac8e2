"""Writes what `benchmarks/peers.py` found: docs/benchmarks.md and its picture."""

from __future__ import annotations

import math
import statistics
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
PAGE: Final = ROOT / "docs" / "benchmarks.md"
PICTURE: Final = ROOT / "docs" / "img" / "peers.svg"
BEGIN: Final = "<!-- written by benchmarks/peers.py: begin -->"
END: Final = "<!-- written by benchmarks/peers.py: end -->"

COLUMNS: Final = (
    ("function tasks/s", ("function_per_s",)),
    ("CPU of one ms", ("function_cpu_ms",)),
    ("latency p50 / p99 ms", ("function_p50_ms", "function_p99_ms")),
    ("process tasks/s", ("process_per_s",)),
    ("CPU of one ms", ("process_cpu_ms",)),
    ("latency p50 / p99 ms", ("process_p50_ms", "process_p99_ms")),
    ("start to ready s", ("ready_s",)),
    ("memory MB", ("memory_mb",)),
    ("install MB / packages", ("install_mb", "packages")),
)

ROUNDS: Final = (
    ("function tasks/s", "function_per_s"),
    ("process tasks/s", "process_per_s"),
    ("process p50 ms", "process_p50_ms"),
    ("load before", "load"),
)
"""What is shown of every round."""

LIMIT: Final = "limit: posix_spawn"

Figures = dict[str, dict[str, float]]
AllFigures = dict[str, dict[str, list[float]]]


def write_page(
    measured: AllFigures,
    left_out: dict[str, str],
    *,
    rounds: int,
    machine: str,
    date: str,
) -> None:
    """Replace the written part of the page, and the picture."""
    found = {
        name: {key: statistics.median(values) for key, values in figures.items()}
        for name, figures in measured.items()
    }
    loads = [load for figures in measured.values() for load in figures["load"]]
    text = PAGE.read_text(encoding="utf-8")
    before, _, rest = text.partition(BEGIN)
    after = rest.partition(END)[2]
    lines = [
        BEGIN,
        "",
        f"Measured on {date}: {machine}; medians of {rounds} rounds, in each of which",
        "all systems ran one after the other. The load average before a system was",
        f"{min(loads):.1f} to {max(loads):.1f}, that of the system before it included.",
        "",
        *table(found),
        "",
        "Every round:",
        "",
        *rounds_table(measured),
        "",
        *ratios(found),
        *(f"- {name} is left out: {why}." for name, why in left_out.items()),
        "",
        "![Function tasks per second and their latency, by system](img/peers.svg)",
        "",
        END,
    ]
    PAGE.write_text(before + "\n".join(lines) + after, encoding="utf-8")
    PICTURE.write_text(picture(found), encoding="utf-8")


def table(found: Figures) -> list[str]:
    """Return the table in Markdown."""
    titles = ["one machine, 2 workers", *(title for title, _ in COLUMNS)]
    rows = [
        [
            name,
            *(cell([figures.get(key) or None for key in keys]) for _, keys in COLUMNS),
        ]
        for name, figures in found.items()
    ]
    lines = [titles, ["---"] * len(titles), *rows]
    return ["| " + " | ".join(line) + " |" for line in lines]


def rounds_table(measured: AllFigures) -> list[str]:
    """Return what every round found, in Markdown."""
    lines = [["", *(title for title, _ in ROUNDS)], ["---"] * (len(ROUNDS) + 1)]
    for name, figures in measured.items():
        each = (", ".join(map(shown, figures.get(key, ()))) for _, key in ROUNDS)
        lines.append([name, *(told or "-" for told in each)])
    return ["| " + " | ".join(line) + " |" for line in lines]


def cell(values: list[float | None]) -> str:
    """Return figures as people read them."""
    if all(value is None for value in values):
        return "-"
    return " / ".join("-" if value is None else shown(value) for value in values)


def shown(value: float) -> str:
    """Return a number with the digits that mean something."""
    if value >= 100 or value == int(value):
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def ratios(found: Figures) -> list[str]:
    """Return what the figures mean for shoal, next to Ray."""
    lines: list[str] = []
    for ours, theirs in (("shoal", "ray"), ("shoal, two nodes", "ray, two nodes")):
        if ours not in found or theirs not in found:
            continue
        rate = found[ours]["function_per_s"] / found[theirs]["function_per_s"]
        wait = found[ours]["function_p50_ms"] / found[theirs]["function_p50_ms"]
        lines.append(
            f"- {ours}: {rate:.1f} times the function tasks of {theirs}, "
            f"at {wait:.2f} of its median latency."
        )
    rivals = {
        name: figures["process_per_s"]
        for name, figures in found.items()
        if "process_per_s" in figures and not name.startswith(("shoal", "limit"))
    }
    for ours in ("shoal", "shoal, no sandbox"):
        if rivals and "process_per_s" in found.get(ours, {}):
            best = max(rivals, key=lambda name: rivals[name])
            rate = found[ours]["process_per_s"] / rivals[best]
            lines.append(
                f"- {ours}: {rate:.2f} times the process tasks of the best, {best}."
            )
        if LIMIT in found and "process_per_s" in found.get(ours, {}):
            rate = found[ours]["process_per_s"] / found[LIMIT]["process_per_s"]
            lines.append(f"- {ours}: {rate:.2f} of what the machine can start at all.")
    return lines


# The picture: two rows of bars, on logarithmic scales.

WIDTH: Final = 760
BAR: Final = 18
GAP: Final = 8
LEFT: Final = 170
RIGHT: Final = 90


def picture(found: Figures) -> str:
    """Return the picture as SVG."""
    parts: list[str] = []
    top = 30
    for key, title in (
        ("function_per_s", "function tasks per second (more is better)"),
        ("function_p50_ms", "median latency of one call, ms (less is better)"),
    ):
        rows = {name: f[key] for name, f in found.items() if key in f}
        parts += bars(rows, title, top)
        top += 40 + len(rows) * (BAR + GAP)
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{top}" '
        f'viewBox="0 0 {WIDTH} {top}" font-family="sans-serif" font-size="13">'
    )
    background = f'<rect width="{WIDTH}" height="{top}" fill="#ffffff"/>'
    return "\n".join([head, background, *parts, "</svg>", ""])


def bars(rows: dict[str, float], title: str, top: int) -> list[str]:
    """Return one row of bars with its title."""
    parts = [f'<text x="10" y="{top - 8}" font-weight="bold">{title}, log scale</text>']
    least = math.log10(min(rows.values())) - 0.3
    most = math.log10(max(rows.values()))
    for place, (name, value) in enumerate(rows.items()):
        y = top + place * (BAR + GAP)
        share = (math.log10(value) - least) / max(1e-9, most - least)
        width = share * (WIDTH - LEFT - RIGHT)
        colour = "#0b7285" if name.startswith("shoal") else "#adb5bd"
        middle = y + BAR - 4
        parts += [
            f'<text x="{LEFT - 8}" y="{middle}" text-anchor="end">{name}</text>',
            (
                f'<rect x="{LEFT}" y="{y}" width="{width:.0f}" height="{BAR}" '
                f'fill="{colour}"/>'
            ),
            f'<text x="{LEFT + width + 6:.0f}" y="{middle}">{shown(value)}</text>',
        ]
    return parts
