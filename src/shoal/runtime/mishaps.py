"""What went wrong while the node did something for one task, and did not end it.

Each is told to people who watch, and its traceback goes into the node's log. Whoever
causes many cannot fill the log with them.
"""

from __future__ import annotations

import time
import traceback
from typing import TYPE_CHECKING, Final, final

from shoal.errors import ShoalError

if TYPE_CHECKING:
    from collections.abc import Callable

    from shoal.model.ids import TaskId
    from shoal.runtime.happenings import Happenings

TRACEBACKS_MAX: Final = 20
SPAN_S: Final = 60.0
"""At most so many tracebacks are written in this time; the others are counted."""


@final
class Mishaps:
    """Tells of errors that would otherwise have ended the node."""

    def __init__(
        self, happenings: Happenings, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.count = 0
        self._happenings = happenings
        self._clock = clock
        self._since = clock()
        self._written = 0

    def note(self, doing: str, task: TaskId, error: BaseException) -> str:
        """Tell of an error while `doing` something; return it as a reason."""
        self.count += 1
        reason = f"{doing} failed: {described(error)}"
        self._happenings.mishap(reason, task)
        now = self._clock()
        if now - self._since > SPAN_S:
            self._since, self._written = now, 0
        self._written += 1
        if self._written <= TRACEBACKS_MAX:
            traceback.print_exception(error)  # Into the node's log.
        return reason


def described(error: BaseException) -> str:
    """Return an error as one line for people, without the paths of the node's owner."""
    if isinstance(error, ShoalError):
        return str(error)
    kind = type(error).__name__
    why = error.strerror if isinstance(error, OSError) else None
    return f"{kind}: {why}" if why else f"{kind}, see the log of the worker"
