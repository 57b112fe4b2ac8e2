"""Inner steps per DiLoCo worker, so that unequal machines finish together.

A worker's part of a sync is computing and transfer: of its delta to the aggregator,
and of the outcome back. Both are measured, and both count for how long a sync may take.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

if TYPE_CHECKING:
    from collections.abc import Mapping

NEWS_WEIGHT: Final = 0.5
"""How much the latest measurement counts against all before it."""

ALIKE: Final = 0.93
"""Workers at least this fast, compared to the fastest, count as equally fast."""

LEAST: Final = 0.25
"""A slow link takes at most the rest of a worker's steps: what travels so long must be
worth its way."""


@final
class StepPace:
    """Measures the speed and the link of each worker."""

    def __init__(self) -> None:
        self._speeds: dict[str, float] = {}
        self._transfers: dict[str, float] = {}

    @property
    def speeds(self) -> Mapping[str, float]:
        """Steps per second of computing, by worker."""
        return self._speeds

    @property
    def transfers(self) -> Mapping[str, float]:
        """Seconds of transfer in a sync, by worker."""
        return self._transfers

    def measured(self, worker: str, steps: int, seconds: float) -> None:
        """Note how long a worker took for its steps."""
        if steps > 0 and seconds > 0:
            _note(self._speeds, worker, steps / seconds)

    def transferred(self, worker: str, seconds: float) -> None:
        """Note how long the files of a sync were on their way, from it and to it."""
        _note(self._transfers, worker, seconds)

    def forget(self, worker: str) -> None:
        """Forget a worker that is gone: its successor may be another machine."""
        self._speeds.pop(worker, None)
        self._transfers.pop(worker, None)

    def steps(
        self,
        worker: str,
        most: int,
        present: Mapping[str, object],
        *,
        overlaps: bool = False,
    ) -> int:
        """Return how many steps a worker does while the fastest does `most`.

        Who has not been measured yet does as many as the fastest. Unless transfer
        `overlaps` with computing, it takes from the time to compute.
        """
        speeds = {name: self._speeds[name] for name in present if name in self._speeds}
        own = speeds.get(worker)
        if own is None:
            return most
        fastest = min(speeds, key=lambda name: (-speeds[name], name))
        alike = own >= ALIKE * speeds[fastest]
        even = most if alike else max(1, round(most * own / speeds[fastest]))
        if overlaps:
            return even
        nearest = min(self._transfers.get(name, 0.0) for name in speeds)
        later = self._transfers.get(worker, 0.0) - nearest
        seconds = even / own
        if later <= (1 - ALIKE) * seconds:
            return even
        return max(1, round(even * max(LEAST, 1 - later / seconds)))

    def seconds(self, worker: str, steps: int) -> float | None:
        """Return how long this many steps and their transfer take, if known."""
        speed = self._speeds.get(worker)
        if speed is None:
            return None
        return steps / speed + self._transfers.get(worker, 0.0)


def _note(known: dict[str, float], worker: str, news: float) -> None:
    before = known.get(worker, news)
    known[worker] = before + NEWS_WEIGHT * (news - before)
