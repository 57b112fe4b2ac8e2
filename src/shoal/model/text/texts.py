"""Clean texts that people will read, whatever their origin."""

from __future__ import annotations

import re
from typing import Final

from shoal.model.text.bounds import UNSEEN

REPLACEMENT: Final = "?"

_UNNAMED: Final = re.compile(rf"[{UNSEEN}\ud800-\udfff]")
_UNSEEN: Final = re.compile(rf"(?![\n\t])[{UNSEEN}\ud800-\udfff]")


def cleaned(text: str) -> str:
    """Return `text` with what steers a terminal replaced; lines and tabs stay."""
    return text if text.isprintable() else _UNSEEN.sub(REPLACEMENT, text)


def one_line(text: str) -> str:
    """Return the same without lines and tabs, as names are."""
    return text if text.isprintable() else _UNNAMED.sub(REPLACEMENT, text)


def is_utf8(text: str) -> bool:
    """Whether a text can be sent: names of files may hold bytes that are no UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
