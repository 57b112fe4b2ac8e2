"""Minnow: small fish first, so that the mean slowdown is small.

One second of waiting costs a job of length t a slowdown of w = 1 / max(t, 10 s), and
serving it takes slots times t. Smith's rule then says: smallest size / w first. That is
`Minnow`, which needs to know nothing but the job; a live queue goes by it.

`MinnowForesight` knows more, and by that meets three things that spoil the simple rule:

- A job that does not fit lets room lie idle until it does. This is room that it takes,
  too: its size is slots x t plus the slot-seconds that would lie idle.
- Others come meanwhile. If a job keeps the cluster busy for D seconds, and waiting
  costs the jobs that come in a second L a second, it costs them L D^2 / 2. So large
  jobs are worse than in proportion: smallest D^2 / w first. L is the same for all.
- Users do not know how long jobs run. What those that requested about as much turned
  out to cost tells more: of all that ended, by doublings of the request, the means of
  length / requested, of its square and of the cost of waiting. The square counts by
  itself: of two jobs with the same mean, the less certain one costs others more.
  Without evidence a request is exact, which counts as one observation.

There is no other constant in it than the 10 s of the measure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

import numpy as np

from shoal.policy.queueing.queue_orders import SHORT_S

if TYPE_CHECKING:
    from shoal.policy.table.rows import Floats

CLASSES: Final = 64
"""Doublings of the requested time that are told apart."""


@final
class MinnowForesight:
    """Works out who is next, from what runs, what came, and what ended."""

    def __init__(self, capacity: int) -> None:
        """Order the queue of a cluster with so many slots."""
        self._capacity = capacity
        # Of jobs that ended, by class of request: how many, and sums over them.
        self._ended: Floats = np.ones(CLASSES)
        self._lengths: Floats = np.ones(CLASSES)  # length / requested
        self._squares: Floats = np.ones(CLASSES)  # the square of that
        self._costs: Floats = np.ones(CLASSES)  # cost of waiting, by that expected

    def ended(self, requested_s: float, run_s: float) -> None:
        """Take in how long a job ran."""
        class_ = _class_of(requested_s)
        counted_s = max(requested_s, SHORT_S)
        self._ended[class_] += 1
        self._lengths[class_] += run_s / counted_s
        self._squares[class_] += (run_s / counted_s) ** 2
        self._costs[class_] += counted_s / max(run_s, SHORT_S)

    def keys(self, slots: Floats, requested_s: Floats, idle_s: Floats) -> Floats:
        """Return a number for each waiting job, of which the smallest is first.

        `idle_s` is how long the whole cluster would have to idle to waste as much room
        as would lie idle until the job fits.
        """
        classes = _classes_of(requested_s)
        means = self._lengths / self._ended, self._squares / self._ended
        # In seconds of the whole cluster: the job if it ran as long as was requested.
        size_s = slots * np.maximum(requested_s, 0.0) / self._capacity
        mean_s, square = size_s * means[0][classes], size_s**2 * means[1][classes]
        costs = (self._costs / self._ended)[classes] / np.maximum(requested_s, SHORT_S)
        to_all: Floats = idle_s**2 + 2 * idle_s * mean_s + square
        return to_all / costs


def _class_of(requested_s: float) -> int:
    return int(_classes_of(np.array([requested_s]))[0])


def _classes_of(requested_s: Floats) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    doublings = np.log2(np.maximum(requested_s, SHORT_S)).astype(np.int64)
    return np.minimum(doublings, CLASSES - 1)
