"""How long to wait before the next try.

Every part that repeats something waits by a `Backoff` of its own: the first pause is
`first_s`, each further one `factor` times as long, and none longer than `most_s`.
The part counts its tries; a back-off is a value and keeps nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

if TYPE_CHECKING:
    from random import Random

EXPONENT_MAX: Final = 64
"""Beyond this many tries a pause grows no more: powers stay finite."""


class Backoff(msgspec.Struct, frozen=True):
    """Pauses that grow from `first_s` to `most_s`, spread out by chance if asked."""

    first_s: float
    most_s: float
    factor: float = 2.0
    spread: tuple[float, float] = (1.0, 1.0)  # a pause is scaled by one between these

    def pause_s(self, tries: int, rng: Random | None = None) -> float:
        """Return the pause after `tries` earlier ones; `rng` picks within `spread`."""
        growth = self.factor ** min(max(0, tries), EXPONENT_MAX)
        pause_s = min(self.most_s, self.first_s * growth)
        return pause_s if rng is None else pause_s * rng.uniform(*self.spread)
