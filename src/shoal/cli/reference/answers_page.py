"""The page about JSON, from `answers`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from shoal.cli.printing import VERSION
from shoal.cli.reference.answers import ANSWERS, LINES, LOOKS, OBJECTS, Shape
from shoal.cli.reference.tables import page, table

if TYPE_CHECKING:
    from collections.abc import Iterator

INTRODUCTION: Final = f"""\
# Reference: JSON

What `--json` prints, written by `make docs`; tests compare it with what commands really
print. Every document has a `version`, now {VERSION}. Within a version fields may be
added, so ignore those that you do not know; if one goes, or changes its meaning, the
version rises.

Each command prints one document on one line; `logs` and `events` print one for each
piece, and `top` one for each look. Errors are text on stderr, and the exit code says
which kind: see [cli.md](cli.md#exit-codes).
"""


def answers_page() -> str:
    """Return the page."""
    return page(_lines())


def _lines() -> Iterator[str]:
    yield from INTRODUCTION.splitlines()
    yield from ("", "## Commands", "")
    for command, shape in ANSWERS.items():
        yield from ("", f"### shoal {command} --json", "")
        if command in LINES:
            yield "For each look:" if command in LOOKS else "For each piece:"
        yield from _table(shape)
    yield from ("", "## Objects", "")
    for name, shape in OBJECTS.items():
        yield from ("", f"### {name}", "")
        yield from _table(shape)


def _table(shape: Shape) -> list[str]:
    rows = [
        (
            f"`{name.removesuffix('?')}`" + (", if any" if name.endswith("?") else ""),
            _linked(kind),
            about,
        )
        for name, (kind, about) in shape.items()
    ]
    return table(("field", "is", "means"), rows)


def _linked(kind: str) -> str:
    return re.sub(
        r"\w+",
        lambda word: f"[{word[0]}](#{word[0]})" if word[0] in OBJECTS else word[0],
        kind,
    )
