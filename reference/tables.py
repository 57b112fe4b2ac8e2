"""Tables of Markdown."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


def table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Return the lines of a table, with an empty line before and after it."""
    lines = [f"| {' | '.join(_cell(cell) for cell in row)} |" for row in rows]
    head = [f"| {' | '.join(headings)} |", f"|{'---|' * len(headings)}"]
    return ["", *head, *lines, ""] if lines else []


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def page(lines: Iterable[str]) -> str:
    """Join lines to a page; merge consecutive empty lines."""
    kept: list[str] = []
    for line in lines:
        if line or (kept and kept[-1]):
            kept.append(line.rstrip())
    return "\n".join(kept).strip("\n") + "\n"
