"""The replay engine: one loop over arrivals and ends, for every rule of who runs.

Time stands still while something is decided, and jumps to the next moment at which
something happens: a job arrives, or what runs changes by itself, mostly by ending. The
loop knows nothing but that. `Serving` holds the rest, and is put together from

- a cluster: counted slots, hosts, or a live scheduler's table (`clusters`);
- a queue: an order of the policies, or the live queue (`queues`);
- a rule for who starts, passes or is stopped: `run_to_completion`, `preemptive` for
  jobs that are stopped and resumed, `cluster_fill` for pods that never leave, and in
  `protocols` the rules of published simulators.

The loop ends when all jobs have arrived and none waits. Time may have any unit.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence


class Serving(Protocol):
    """Decides who runs; the engine tells it what happens, and when."""

    @property
    def arrivals_first(self) -> bool:
        """Whether events come one by one, and arrivals before ends at the same time.

        Otherwise everything that happens at one time is told before `serve`.
        """
        ...

    def is_done(self) -> bool:
        """Whether no job that has arrived needs the engine any more."""
        ...

    def next_change(self) -> float:
        """Return when the next job ends, or else changes by itself; `inf` if none."""
        ...

    def advance(self, now: float) -> None:
        """Let time pass until `now`, and end what ends by then.

        With `arrivals_first`, end only the first of these jobs.
        """
        ...

    def arrive(self, job: int, now: float) -> None:
        """Take in a job."""
        ...

    def serve(self) -> None:
        """Decide who runs from now on: something has just happened."""
        ...


def replay(submitted: Sequence[float], serving: Serving) -> None:
    """Let jobs arrive in the order given, until `serving` is done with all of them.

    A job whose submit lies before that of the one ahead of it arrives right after it.
    """
    coming, count = 0, len(submitted)
    now = submitted[0] if submitted else 0.0
    one_by_one = serving.arrivals_first
    next_change, serve = serving.next_change, serving.serve
    while coming < count or not serving.is_done():
        arrives = submitted[coming] if coming < count else inf
        changes = next_change()
        now = max(now, min(arrives, changes))
        assert now < inf, "a job is left that the cluster can never run"
        if not one_by_one:
            serving.advance(now)
            while coming < count and submitted[coming] <= now:
                serving.arrive(coming, now)
                coming += 1
        elif arrives <= changes:
            serving.arrive(coming, now)
            coming += 1
        else:
            serving.advance(now)
        serve()
