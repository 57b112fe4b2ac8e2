"""Ids of jobs, as clients draw them."""

from __future__ import annotations

import secrets
from typing import Final

LETTERS: Final = "0123456789abcdefghjkmnpqrstvwxyz"  # none that look alike
LENGTH: Final = 6
DIGITS: Final = "0123456789"


def new_job_id() -> str:
    """Draw an id that is short and, for a while, nobody else's; it is no number."""
    rest = (secrets.choice(LETTERS) for _ in range(LENGTH - 1))
    return secrets.choice(LETTERS.lstrip(DIGITS)) + "".join(rest)
