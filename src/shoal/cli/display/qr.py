"""QR codes in a terminal: half blocks, two rows of the code per line."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Final

from shoal.cli.display.printing import wants_colours
from shoal.cli.options import talk
from shoal.cli.terminal import echo_styled

if TYPE_CHECKING:
    from collections.abc import Sequence

BORDER: Final = 4
"""Width of the light border, in modules; scanners need it."""

BLOCKS: Final = {(0, 0): " ", (1, 0): "▀", (0, 1): "▄", (1, 1): "█"}
BLACK_ON_WHITE: Final = "\x1b[38;5;16;48;5;231m"  # Themes change the first 16 colours.
AS_BEFORE: Final = "\x1b[0m"


def modules(text: str) -> list[list[int]]:
    """Return the rows of a text's QR code, 1 for dark, without a border.

    The text is encoded in capitals, which takes a third less room; readers must
    ignore case.
    """
    import segno  # noqa: PLC0415 - Slow to import.

    code = segno.make_qr(text.upper(), error="l")
    return [list(row) for row in code.matrix]


def lines(rows: Sequence[Sequence[int]], *, colours: bool) -> list[str]:
    """Draw a code. Without colours it needs a terminal with a dark background."""
    dark, light = (1, 0) if colours else (0, 1)
    edge = [light] * BORDER
    blank = [light] * (len(rows) + 2 * BORDER)
    whole = [blank] * BORDER
    whole += [
        [*edge, *(dark if cell else light for cell in row), *edge] for row in rows
    ]
    whole += [blank] * (BORDER + len(whole) % 2)
    pairs = zip(whole[::2], whole[1::2], strict=True)
    drawn = ["".join(map(BLOCKS.__getitem__, zip(*p, strict=True))) for p in pairs]
    return [f"{BLACK_ON_WHITE}{line}{AS_BEFORE}" if colours else line for line in drawn]


def show(text: str) -> None:
    """Draw a text's QR code on stderr, or explain why that is impossible."""
    if not sys.stderr.isatty():
        talk("note: no QR code, because stderr is not a terminal")
        return
    rows = modules(text)
    drawn = lines(rows, colours=wants_colours())
    needs = os.terminal_size((len(rows) + 2 * BORDER, len(drawn) + 1))
    has = os.get_terminal_size(sys.stderr.fileno())  # 0 if it does not know.
    if 0 < has.columns < needs.columns or 0 < has.lines < needs.lines:
        talk(
            f"note: no QR code, because it needs {needs.columns} columns and "
            f"{needs.lines} lines; this terminal has {has.columns} and {has.lines}:"
        )
        talk("      use a smaller font or a larger window")
        return
    for line in drawn:
        echo_styled(line, err=True)
