"""Inner steps per DiLoCo worker, so that unequal machines finish together.

A worker's part of a sync is computing and transfer: of its delta to the aggregator,
and of the outcome back. Both are measured, and both count for how long a sync may take.

A sync waits for each worker as long as is usual for it (`Patience`). One that is silent
for much longer than usual is not waited for, though it may still be alive and counts
again once it is heard. One that is heard has until it is expected, and a grace beyond:
what its lateness was so far, and how much it varied.
"""

from __future__ import annotations

import math
import statistics
from typing import TYPE_CHECKING, Final, NamedTuple, final

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from shoal.train.diloco.rules import RoundRules

NEWS_WEIGHT: Final = 0.5
"""How much the latest measurement counts against all before it."""

ALIKE: Final = 0.93
"""Workers at least this fast, compared to the fastest, count as equally fast."""

LEAST: Final = 0.25
"""A slow link takes at most the rest of a worker's steps: what travels so long must be
worth its way."""


NEWCOMER: Final = 0.7
"""A newcomer computes during this part of the time left: it has to load weights first,
and nobody knows yet how fast it is."""

WORTH: Final = 0.1
"""A part of a sync's steps that is worth sending a delta for."""

NARROW: Final = 4.0
NARROW_LEAST_S: Final = 1.0
"""Narrow is a link on which the files of a sync are so many times as long on their way
as on most, and so much longer at the least."""

SILENT_LEAST_S: Final = 3.0
"""Nobody is taken for silent earlier: a busy machine skips some heartbeats."""

SILENT_GAPS: Final = 3.0
"""Silent is who was not heard for this many times its longest usual pause."""

GAP_FADES: Final = 0.95
"""With each message, what counts of the longest pause before it."""

LATE_WEIGHT: Final = 0.25
"""How much the latest lateness counts against all before it."""

DEVIATIONS: Final = 4.0
"""How many times its usual deviation a worker may be later than usual."""

BACK_OFF: Final = 4.0
"""Whoever was left out has so many times the grace in the next sync."""

MISSES_MAX: Final = 4
"""Whoever was left out so often in a row is waited for no longer than others take,
until it contributes again: it may never mean to."""

FASTEST: Final = 10.0
"""Of three workers or more, none counts as more than so many times as fast as is usual:
what it says of its speed decides how much all others compute."""

GRACE_LEAST_S: Final = 0.5
GRACE_LEAST: Final = 0.1
"""The least grace, in seconds and of the time that was expected, together."""


class _Summary(NamedTuple):
    """What was measured of all workers together."""

    fastest: float  # steps per second
    usual: float
    nearest: float  # seconds of transfer


@final
class StepPace:
    """Measures the speed and the link of each worker that is there."""

    def __init__(self) -> None:
        self._speeds: dict[str, float] = {}
        self._transfers: dict[str, float] = {}
        self._known: _Summary | None = None  # until something is measured

    @property
    def speeds(self) -> Mapping[str, float]:
        """Steps per second of computing, by worker."""
        return self._speeds

    def measured(self, worker: str, steps: int, seconds: float) -> None:
        """Note how long a worker took for its steps."""
        if steps > 0 and seconds > 0:
            _note(self._speeds, worker, steps / seconds)
            self._known = None

    def transferred(self, worker: str, seconds: float) -> None:
        """Note how long the files of a sync were on their way, from it and to it."""
        _note(self._transfers, worker, seconds)
        self._known = None

    def forget(self, worker: str) -> None:
        """Forget a worker that is gone: its successor may be another machine."""
        self._speeds.pop(worker, None)
        self._transfers.pop(worker, None)
        self._known = None

    def steps(self, worker: str, most: int, *, overlaps: bool = False) -> int:
        """Return how many steps a worker does while the fastest does `most`.

        Who has not been measured yet does as many as the fastest. Unless transfer
        `overlaps` with computing, it takes from the time to compute.
        """
        own = self._speeds.get(worker)
        if own is None:
            return most
        fastest = self._summary().fastest
        own = min(own, fastest)
        alike = own >= ALIKE * fastest
        even = most if alike else max(1, round(most * own / fastest))
        if overlaps:
            return even
        nearest = self._summary().nearest
        later = self._transfers.get(worker, 0.0) - nearest
        seconds = even / own
        if later <= (1 - ALIKE) * seconds:
            return even
        return max(1, round(even * max(LEAST, 1 - later / seconds)))

    def seconds(self, worker: str, steps: int) -> float | None:
        """Return how long this many steps and their transfer take.

        Who was never measured is like most others; None if nobody was.
        """
        speed = self._speeds.get(worker) or self._usual_speed
        if speed is None:
            return None
        return steps / speed + self._transfers.get(worker, 0.0)

    def steps_within(self, seconds: float, most: int) -> int:
        """Return how many steps a newcomer can do and send in a time.

        It is taken to be like most others. 0 if that is too few for use.
        """
        transfer = statistics.median(self._transfers.values() or (0.0,))
        steps = int(NEWCOMER * (seconds - transfer) * (self._usual_speed or 0.0))
        return min(steps, most) if steps >= WORTH * most else 0

    def narrow(self) -> frozenset[str]:
        """Return the workers behind links that are much narrower than most."""
        usual = statistics.median(self._transfers.values() or (0.0,))
        most = max(NARROW * usual, usual + NARROW_LEAST_S)
        return frozenset(name for name, s in self._transfers.items() if s > most)

    def missed(self, worker: str) -> None:
        """Note that a worker was left out: it seems to be half as fast as thought."""
        speed = self._speeds.get(worker) or self._usual_speed
        if speed is not None:
            self._speeds[worker] = speed / 2
            self._known = None

    @property
    def _usual_speed(self) -> float | None:
        return self._summary().usual if self._speeds else None

    def _summary(self) -> _Summary:
        if self._known is None:
            speeds = self._speeds.values()
            transfers = (self._transfers.get(name, 0.0) for name in self._speeds)
            usual, fastest = statistics.median(speeds), max(speeds)
            if len(speeds) > 2:
                fastest = min(fastest, FASTEST * usual)
            self._known = _Summary(fastest, usual, min(transfers))
        return self._known


class WaitLimit(NamedTuple):
    """Until when an open sync waits for those who are missing."""

    is_up_at: float = 0.0
    all_silent_at: float = math.inf  # not before this


@final
class Patience:
    """Knows how regularly each worker is heard, and how late it usually is."""

    def __init__(self) -> None:
        self._heard_at: dict[str, float] = {}
        self._gaps: dict[str, float] = {}
        self._late: dict[str, tuple[float, float]] = {}  # usually, and its deviation
        self._missed: dict[str, int] = {}  # how many syncs in a row
        self._silent: set[str] = set()

    def heard(self, worker: str, now: float) -> None:
        """Note a sign of life."""
        self._silent.discard(worker)
        gap = now - self._heard_at.get(worker, now)
        self._heard_at[worker] = now
        self._gaps[worker] = max(gap, GAP_FADES * self._gaps.get(worker, 0.0))

    def silent_at(self, worker: str) -> float:
        """Say from when on a worker is silent, if it is not heard until then."""
        usual = SILENT_GAPS * self._gaps.get(worker, 0.0)
        return self._heard_at.get(worker, 0.0) + max(SILENT_LEAST_S, usual)

    def listen(self, now: float) -> None:
        """Note silent workers; call it only when the inbox is empty."""
        self._silent.update(w for w in self._heard_at if self.silent_at(w) <= now)

    def is_silent(self, worker: str) -> bool:
        """Whether a worker was silent when it was last listened for."""
        return worker in self._silent

    def came(self, worker: str, late_s: float, *, counts: bool) -> None:
        """Note how much later than expected a contribution was here, if it counts.

        What comes too late is only announced: nobody knows whether it is there.
        """
        late_s = max(0.0, late_s)
        if counts:
            self._missed.pop(worker, None)
        usual, deviation = self._late.get(worker, (late_s, late_s / 2))
        off = abs(late_s - usual)
        self._late[worker] = (
            usual + LATE_WEIGHT * (late_s - usual),
            deviation + LATE_WEIGHT * (off - deviation),
        )

    def missed(self, worker: str) -> None:
        """Note that a sync was closed without a worker."""
        self._missed[worker] = self._missed.get(worker, 0) + 1

    def wait_limit(
        self,
        rules: RoundRules,
        opened_at: float,
        expected: Mapping[str, float | None],
        missing: Collection[str],
        *,
        is_past: bool,
    ) -> WaitLimit:
        """Say when a sync closes without the missing workers.

        `expected` are the seconds that each should take, if known. Of a sync of the
        past, which is closed again, all are awaited, and silence says nothing.
        """
        heard = [] if is_past else [n for n in missing if not self.is_silent(n)]
        silent_at = max(map(self.silent_at, heard), default=math.inf)
        known = {n: s for n, s in expected.items() if s is not None}
        if len(known) < len(expected):
            return WaitLimit(opened_at + rules.timeout_s, silent_at)
        in_a_row = 1 + rules.in_flight
        given_up = [n for n in missing if self._missed.get(n, 0) >= MISSES_MAX]
        present = [s for name, s in known.items() if name not in given_up]
        longest_s = in_a_row * max(present, default=max(known.values(), default=0.0))
        limit_s = max(rules.timeout_least_s, rules.slack * longest_s)
        awaited = {n: known[n] * in_a_row for n in missing if n not in given_up}
        if given_up and not awaited:
            limit_s = longest_s + GRACE_LEAST_S + GRACE_LEAST * longest_s
        elif not is_past:
            limit_s = self.limit(awaited, limit_s)
        return WaitLimit(opened_at + limit_s, silent_at)

    def limit(self, expected: Mapping[str, float], most: float) -> float:
        """Return how many seconds to wait for workers, `most` at the most.

        `expected` says by when each should come.
        """
        graced = [s + self._grace(name, s, most) for name, s in expected.items()]
        return min(most, max(graced, default=most))

    def _grace(self, worker: str, expected_s: float, unknown: float) -> float:
        known = self._late.get(worker)
        if known is None:
            return unknown
        usual, deviation = known
        least = GRACE_LEAST_S + GRACE_LEAST * expected_s
        grace = max(least, usual + DEVIATIONS * deviation)
        return min(unknown, grace * BACK_OFF ** self._missed.get(worker, 0))

    def forget(self, worker: str) -> None:
        """Forget a worker that is gone."""
        self._silent.discard(worker)
        for known in (self._heard_at, self._gaps, self._late, self._missed):
            known.pop(worker, None)


def _note(known: dict[str, float], worker: str, news: float) -> None:
    before = known.get(worker, news)
    known[worker] = before + NEWS_WEIGHT * (news - before)
