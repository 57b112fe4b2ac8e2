"""Report errors in the node's own work for one task, without ending the node.

Each error is shown to users, and its traceback goes to the node's log. Tracebacks are
limited, so that a task cannot fill the log.
"""

from __future__ import annotations

import time
import traceback
from typing import TYPE_CHECKING, Final, final

from shoal.errors import ShoalError

if TYPE_CHECKING:
    from collections.abc import Callable

    from shoal.model.ids import TaskId
    from shoal.runtime.monitoring.event_log import EventLog

TRACEBACKS_MAX: Final = 20
SPAN_S: Final = 60.0
"""In this time a bounded number of tracebacks is written; the others are counted."""


@final
class TaskFaults:
    """Reports errors that would otherwise end the node."""

    def __init__(
        self, event_log: EventLog, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.count = 0
        self._event_log = event_log
        self._clock = clock
        self._since = clock()
        self._written = 0

    def note(self, doing: str, task: TaskId, error: BaseException) -> str:
        """Report an error while `doing` something; return it as a reason."""
        self.count += 1
        reason = f"{doing} failed: {described(error)}"
        self._event_log.mishap(reason, task)
        now = self._clock()
        if now - self._since > SPAN_S:
            self._since, self._written = now, 0
        self._written += 1
        if self._written <= TRACEBACKS_MAX:
            traceback.print_exception(error)  # to the node's log
        return reason


def described(error: BaseException) -> str:
    """Describe an error in one line, without local paths."""
    if isinstance(error, ShoalError):
        return str(error)
    kind = type(error).__name__
    why = error.strerror if isinstance(error, OSError) else None
    return f"{kind}: {why}" if why else f"{kind}, see the log of the worker"
