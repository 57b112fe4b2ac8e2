"""How long a worker is there, if its machine is only allocated for a time.

Theory of operation. A machine of a cluster is allocated for some hours, and what still
runs at the end is killed. So a worker may be given a *lifetime*, which begins with
`Booted`. It is spent in three parts:

    open      tasks are taken whose own time limit ends before the last part begins.
              The longest that is taken gets less, in steps of about a sixteenth
              (`LongestTaskChanged`), and schedulers are told.
    last      nothing new is taken, and what still runs gets notice (`DrainRequested`):
              tasks without a time limit save a checkpoint, and go on elsewhere.
    over      once all has ended and is acknowledged, and at the end in any case, the
              node ends (`EndNode`).

A worker may also end when it was *idle* for a while: no lease, and nothing to report.
What it once gave notice of is not taken back: an idle worker drains before it ends, so
that no offer is on its way then.

Nothing is durable: the host says at each start how much is left.
"""

from __future__ import annotations

from math import ceil, frexp, ldexp
from typing import TYPE_CHECKING, Final, final

from shoal.core.deadlines import Deadlines
from shoal.core.events import Booted, DeadlineReached, DrainRequested, Effect, Tell
from shoal.core.lending.events import EndNode, LongestTaskChanged
from shoal.core.machine import Mount

if TYPE_CHECKING:
    from shoal.core.events import Event
    from shoal.core.leasing.worker import Worker

LAST_S: Final = 60.0
LAST_SHARE: Final = 0.1
"""The last part of a lifetime: so long, but no larger share of it."""

STEPS: Final = 16
"""What is left is told anew when this part of it has passed."""

LOOK_S: Final = 1.0
"""How often to look whether the worker is idle."""


@final
class Lifetime:
    """Ends a worker in time, and lets it take only what ends before."""

    mount = Mount()

    def __init__(
        self, worker: Worker, lifetime_s: float | None, idle_s: float | None = None
    ) -> None:
        """End `worker` after `lifetime_s`, or once it was idle for `idle_s`."""
        self._worker = worker
        self._lifetime_s, self._idle_s = lifetime_s, idle_s
        self.ends_at: float | None = None
        self._closes_at: float | None = None  # when the last part begins
        self._idle_since = 0.0
        self._ending = ""  # why, from when the worker takes nothing new
        self._over = False
        self._due: Deadlines[str] = Deadlines()

    def handle(self, event: Event, now: float) -> list[Effect]:
        """Take in one fact; return what to do about it. Raising is a bug."""
        if isinstance(event, Booted):
            return self._on_booted(now)
        effects: list[Effect] = []
        if isinstance(event, DeadlineReached):
            for chore in self._due.pop_due(now):
                effects += self._shorten(now) if chore == "shorten" else self._look(now)
        return effects

    def next_deadline(self) -> float | None:
        """When to deliver `DeadlineReached`, if ever."""
        return self._due.next()

    def _on_booted(self, now: float) -> list[Effect]:
        self._idle_since = now
        if self._idle_s is not None:
            self._due.set("look", now + min(LOOK_S, self._idle_s))
        if self._lifetime_s is None:
            return []
        self.ends_at = now + self._lifetime_s
        self._closes_at = self.ends_at - _last_s(self._lifetime_s)
        return self._shorten(now)

    def _shorten(self, now: float) -> list[Effect]:
        """Tell the longest task that is taken from now on; none in the last part."""
        assert self._closes_at is not None
        left_s = self._closes_at - now
        if left_s <= 0.0:
            return self._end("its allocation ends", now)
        told_s = rounded_down(left_s)
        # While it is still true, so that nobody is promised too much.
        self._due.set("shorten", self._closes_at - told_s)
        return [Tell(LongestTaskChanged(told_s))]

    def _look(self, now: float) -> list[Effect]:
        """End the node if nothing is left to do, or no time."""
        worker = self._worker
        idle = (
            not worker.running and not worker.unacknowledged and not len(worker.leases)
        )
        if self._ending:
            over = self.ends_at is not None and now >= self.ends_at
            if not self._over and (idle or over):
                self._over = True
                return [EndNode(self._ending)]
            if not self._over:
                self._due.set("look", now + LOOK_S)
            return []
        assert self._idle_s is not None
        self._due.set("look", now + min(LOOK_S, self._idle_s))
        if not idle:
            self._idle_since = now
        elif now - self._idle_since >= self._idle_s:
            return self._end("nobody needed it", now)
        return []

    def _end(self, reason: str, now: float) -> list[Effect]:
        """Take nothing new, give notice, and look for the end from now on."""
        self._ending = self._ending or reason
        self._due.set("look", now + LOOK_S)
        return [Tell(DrainRequested(grace_s=0.0))]


def longest_taken_s(lifetime_s: float) -> int:
    """Return the longest task that a worker takes at the begin of such a lifetime."""
    return rounded_down(lifetime_s - _last_s(lifetime_s))


def _last_s(lifetime_s: float) -> float:
    return min(LAST_S, LAST_SHARE * lifetime_s)


def rounded_down(left_s: float) -> int:
    """Return less than `left_s`, by a sixteenth of it or a second at most."""
    _, exponent = frexp(left_s)
    step_s = max(1, round(ldexp(1.0, exponent - 1)) // STEPS)
    return (ceil(left_s / step_s) - 1) * step_s
