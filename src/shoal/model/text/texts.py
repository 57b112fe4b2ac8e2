"""Clean texts that people will read, whatever their origin."""

from __future__ import annotations

import functools
import re
from typing import Final

from shoal.model.text.bounds import UNSEEN

REPLACEMENT: Final = "?"
BUT_LINES: Final = r"(?![\n\t])"


@functools.cache
def _unseen(but: str) -> re.Pattern[str]:
    """Return what finds unseen characters; to make it takes longer than most commands.

    Few texts hold any, so it is made only when one does.
    """
    return re.compile(rf"{but}[{UNSEEN}\ud800-\udfff]")


def cleaned(text: str) -> str:
    """Return `text` with what steers a terminal replaced; lines and tabs stay."""
    return text if text.isprintable() else _unseen(BUT_LINES).sub(REPLACEMENT, text)


def one_line(text: str) -> str:
    """Return the same without lines and tabs, as names are."""
    return text if text.isprintable() else _unseen("").sub(REPLACEMENT, text)


def is_utf8(text: str) -> bool:
    """Whether a text can be sent: names of files may hold bytes that are no UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
