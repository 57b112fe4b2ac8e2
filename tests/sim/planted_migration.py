"""Bugs of gangs that move to better places, for `planted`."""

import math
from typing import Final

from shoal.core.scheduling.migrations import Migrations, MoveForecast
from shoal.model.ids import TaskId


def moved_to_any_place(self: MoveForecast, slow_here: float) -> float:
    """Take any other place for a better one."""
    return math.inf


def moved_though_it_may_not_be_stopped(self: Migrations, task: TaskId) -> bool:
    """Move gangs of all jobs."""
    record = self._book.tasks.get(task)
    return record is not None and not record.ended and bool(record.live)


MIGRATION_BUGS: Final = (
    ("moved to any place", MoveForecast, "slowdown_max", moved_to_any_place),
    (
        "moved though it may not be stopped",
        Migrations,
        "_may_move",
        moved_though_it_may_not_be_stopped,
    ),
)
