"""What an aggregator knows of one worker: what it said, and what it was told."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

import msgspec

if TYPE_CHECKING:
    from shoal.train.diloco.messages import Directive, Status

REPEAT_S: Final = 1.0
"""What was not heard of is repeated after this time."""


class EnrolledWorker(msgspec.Struct):
    """A worker that takes part, or is about to."""

    status: Status
    first: int = 0
    steps: dict[int, int] = msgspec.field(default_factory=dict[int, int])
    asked: dict[int, str] = msgspec.field(default_factory=dict[int, str])
    measured: int = -1  # the last sync to which it contributed too late
    refused: str = ""  # why its last contribution did not count
    refusals: int = 0
    told: Directive | None = None
    told_at: float = 0.0
    contributed_at: float = -math.inf  # the last time

    def must_repeat(self, epoch: int, now: float) -> bool:
        """Whether a directive seems lost; it may also have met the status midway."""
        if self.told is None:
            return True
        is_heard = self.status.heard == (epoch, self.told.seq)
        return not is_heard and now >= self.told_at + REPEAT_S

    def news(self, wanted: Directive, *, again: bool) -> Directive | None:
        """Return what to tell the worker, if it changed or must be repeated.

        A directive without a number was not sent before.
        """
        if self.told is None:
            return wanted
        told = msgspec.structs.replace(self.told, seq=0)
        # That it need not merge again what it has merged, it knows itself; and what it
        # may forget, it is told with something else.
        old = msgspec.structs.replace(told, updates=wanted.updates, safe=wanted.safe)
        is_known = old == wanted and set(wanted.updates) <= set(told.updates)
        if is_known and not again:
            return None
        return self.told if told == wanted else wanted
