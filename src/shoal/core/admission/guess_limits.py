"""Rate limit for wrong invitation secrets, by where they come from.

Secrets have 128 bits, so nobody guesses one, but every try costs work. This is pure:
time is passed in.
"""

from __future__ import annotations

from typing import Final, final

import msgspec

WRONG_BURST: Final = 10.0
WRONG_PER_S: Final = 0.1
ORIGINS_MAX: Final = 1_024


class _Allowance(msgspec.Struct):
    left: float
    since: float


@final
class GuessLimits:
    """Counts wrong secrets by origin; right ones cost nothing."""

    def __init__(self) -> None:
        # The one that guessed first goes first; at most ORIGINS_MAX.
        self._origins: dict[str, _Allowance] = {}

    def may(self, origin: str, now: float) -> bool:
        """Whether this origin may try now."""
        known = self._origins.get(origin)
        return known is None or self._grown(known, now) >= 1.0

    def wrong(self, origin: str, now: float) -> None:
        """Count a wrong secret from this origin."""
        known = self._origins.pop(origin, None) or _Allowance(WRONG_BURST, now)
        known.left, known.since = max(0.0, self._grown(known, now) - 1.0), now
        if len(self._origins) >= ORIGINS_MAX:
            del self._origins[next(iter(self._origins))]
        self._origins[origin] = known

    def _grown(self, known: _Allowance, now: float) -> float:
        grown = known.left + (now - known.since) * WRONG_PER_S
        return min(WRONG_BURST, grown)
