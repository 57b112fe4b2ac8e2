"""Job ids, which clients generate."""

from __future__ import annotations

from random import SystemRandom
from typing import Final

LETTERS: Final = "0123456789abcdefghjkmnpqrstvwxyz"  # no two that look alike
LENGTH: Final = 6
DIGITS: Final = "0123456789"


def new_job_id() -> str:
    """Generate a short random job id; it starts with a letter."""
    choice = SystemRandom().choice
    rest = (choice(LETTERS) for _ in range(LENGTH - 1))
    return choice(LETTERS.lstrip(DIGITS)) + "".join(rest)
