"""What an aggregator knows of one worker: what it said, and what it was told."""

from __future__ import annotations

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

    def must_repeat(self, epoch: int, now: float) -> bool:
        """Whether a directive seems lost; it may also have met the status midway."""
        if self.told is None:
            return True
        is_heard = self.status.heard == (epoch, self.told.seq)
        return not is_heard and now >= self.told_at + REPEAT_S
