"""Inner steps per DiLoCo worker, so that unequal machines finish together."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

if TYPE_CHECKING:
    from collections.abc import Mapping

NEWS_WEIGHT: Final = 0.5
"""How much the latest measurement counts against all before it."""

ALIKE: Final = 0.93
"""Workers at least this fast, compared to the fastest, count as equally fast."""


@final
class StepPace:
    """Measures the speed of each worker, in steps per second of computing."""

    def __init__(self) -> None:
        self._speeds: dict[str, float] = {}

    @property
    def speeds(self) -> Mapping[str, float]:
        """Steps per second, by worker."""
        return self._speeds

    def measured(self, worker: str, steps: int, seconds: float) -> None:
        """Note how long a worker took for its steps."""
        if steps <= 0 or seconds <= 0:
            return
        speed = steps / seconds
        known = self._speeds.get(worker, speed)
        self._speeds[worker] = known + NEWS_WEIGHT * (speed - known)

    def forget(self, worker: str) -> None:
        """Forget a worker that is gone: its successor may be another machine."""
        self._speeds.pop(worker, None)

    def steps(self, worker: str, most: int, present: Mapping[str, object]) -> int:
        """Return how many steps a worker does while the fastest does `most`.

        Who has not been measured yet does as many as the fastest.
        """
        fastest = max((self._speeds.get(each, 0.0) for each in present), default=0.0)
        own = self._speeds.get(worker)
        if own is None or fastest <= 0 or own >= ALIKE * fastest:
            return most
        return max(1, round(most * own / fastest))

    def seconds(self, worker: str, steps: int) -> float | None:
        """Return how long a worker takes for this many steps, if known."""
        speed = self._speeds.get(worker)
        return None if speed is None else steps / speed
