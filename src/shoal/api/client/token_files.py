"""Reads secrets from files, because all users can see a command line.

A token or an invitation can come from a file or from standard input instead.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

from shoal.errors import UsageError

STDIN: Final = "-"
CHARS_MAX: Final = 65_536


def token_in(path: str) -> str:
    """Return the first word of a file, or of standard input for `-`."""
    try:
        if path == STDIN:
            text = sys.stdin.read(CHARS_MAX)
        else:
            with Path(path).open(encoding="ascii") as file:
                text = file.read(CHARS_MAX)
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(
            f"cannot read {'standard input' if path == STDIN else path}",
            because=getattr(error, "strerror", "") or str(error),
            hint="name a text file that you can read",
        ) from None
    words = text.split()
    if not words:
        where = "on standard input" if path == STDIN else f"in {path}"
        raise UsageError(
            f"there is nothing {where}",
            because="a token or an invitation was to be there",
            hint="`shoal token show` prints the token of a node; `shoal invite` an "
            "invitation",
        )
    return words[0]
