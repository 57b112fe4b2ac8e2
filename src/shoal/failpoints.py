"""Failpoints: named places where a node kills itself, for crash tests.

    SHOAL_FAILPOINT=kept.submitted:kill shoal up        # the first time it gets there
    SHOAL_FAILPOINT=send.report:3:stop shoal up         # the third time
    SHOAL_FAILPOINT=journal.commit:linger shoal up      # a second later
    SHOAL_FAILPOINT=libp2p.turn:9:raise shoal up        # an error, not a signal

A place costs one look at a constant while the variable is not set, as it never is in
use. What `kill` leaves behind is what SIGKILL leaves: nothing is flushed, nothing is
said. `linger` holds up the thread that got there for a second, and kills then: what
other threads do too early is seen. `docs/reliability.md` lists the places.
"""

from __future__ import annotations

import os
import signal
import time
from typing import TYPE_CHECKING, Final, final

from shoal.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

VARIABLE: Final = "SHOAL_FAILPOINT"

NAMES: Final[Mapping[str, str]] = {
    "boot.epoch": "the worker's new epoch is on disk, and nobody knows it",
    "boot.replayed": "the journal is read, and nothing is done about it",
    "boot.cleared": "processes of an earlier life are killed, their marks not removed",
    "boot.opened": "drivers are open, and the machine is not started",
    "record.incarnated": "a generation is chosen, and not written",
    "kept.incarnated": "the generation is on disk, and not used",
    "record.submitted": "a job was handed in, and is not written",
    "kept.submitted": "the job is on disk, and not acknowledged",
    "record.assigned": "a lease is won for a task, and that is not written",
    "kept.assigned": "the assignment is on disk, and not sent",
    "record.exited": "a member of a gang succeeded, and that is not written",
    "kept.exited": "that is on disk, and not acknowledged",
    "record.returned": "an attempt failed, and that is not written",
    "kept.returned": "that is on disk, and its task not tried again",
    "record.finished": "a result has come, and is not written",
    "kept.finished": "the result is on disk, and not acknowledged",
    "record.cancelled": "a job is to be cancelled, and that is not written",
    "kept.cancelled": "that is on disk, and nobody is told",
    "record.revoked": "a node is revoked, and that is not written",
    "kept.revoked": "that is on disk, and nobody is told",
    "journal.commit": "a transaction is written, and not synced",
    "journal.synced": "a transaction is synced, and the host not told",
    "journal.swap": "a snapshot is written, and does not count yet",
    "journal.swapped": "the snapshot counts, and what it replaces is not removed",
    "send.demand": "a scheduler is about to ask a worker for room",
    "send.offer": "a worker holds room, and does not say so",
    "send.commit": "a scheduler has an offer, and does not take it",
    "sent.commit": "a scheduler took an offer, and has no answer",
    "send.committed": "a lease is committed, and its scheduler not told",
    "send.assignment": "a task is about to go to its worker",
    "sent.assignment": "a task went to its worker, and has no answer",
    "send.started": "a task is started, and its scheduler not told",
    "send.report": "a task is over, and its scheduler not told",
    "sent.report": "the report is sent, and not acknowledged",
    "send.acknowledgement": "a report is taken in, and its worker not told",
    "sent.acknowledgement": "the worker has been told",
    "send.cancel": "a worker is about to be told to stop a task",
    "send.renew": "a scheduler is about to renew its leases",
    "send.release": "a scheduler needs a lease no more, and does not say so",
    "task.start": "the order to run a task is taken, and nothing runs",
    "task.spawned": "the order is with the supervisor",
    "task.ended": "nothing is left of the task, and the machine does not know",
    "task.stop": "a task is about to be told to stop",
    "blob.served": "a piece of a blob is read for a member, and not sent",
    "blob.written": "pieces of a blob are written, and those who fetch it not told",
    "libp2p.turn": "the thread of libp2p looks after its connections, once a second",
}
"""Every place, and what is true there."""

LINGER_S: Final = 1.0

_SIGNALS: Final = {
    "kill": signal.SIGKILL,
    "stop": signal.SIGSTOP,
    "linger": signal.SIGKILL,
}
_ACTIONS: Final = (*_SIGNALS, "raise")


@final
class Failpoint:
    """One place that strikes when it has been passed a given number of times."""

    def __init__(self, name: str, passing: int, action: str) -> None:
        self.name = name
        self._left = passing
        self._action = action

    def reach(self, name: str) -> None:
        """Pass a place."""
        if name != self.name:
            return
        self._left -= 1
        if self._left == 0:
            os.write(2, f"failpoint {name}: {self._action}\n".encode())
            if self._action == "raise":
                raise RuntimeError(f"failpoint {name}")
            if self._action == "linger":
                time.sleep(LINGER_S)
            os.kill(os.getpid(), _SIGNALS[self._action])


def parsed(text: str) -> Failpoint | None:
    """Return the failpoint that a text means; none if it is empty."""
    if not text:
        return None
    name, *number, action = text.split(":") if ":" in text else (text, "")
    passing = number[0] if number else "1"
    if name not in NAMES or action not in _ACTIONS or len(number) > 1:
        raise _unknown(text)
    if not passing.isdecimal() or int(passing) < 1:
        raise _unknown(text)
    return Failpoint(name, int(passing), action)


def _unknown(text: str) -> UsageError:
    return UsageError(
        f"{VARIABLE}={text} is no failpoint",
        because=f"it is NAME:ACTION or NAME:TIMES:ACTION, with {', '.join(_ACTIONS)}",
        hint="docs/reliability.md lists the names; unset the variable for real use",
    )


ARMED: Final = parsed(os.environ.get(VARIABLE, ""))
"""What strikes in this process; None in all but tests."""


def reach(name: str) -> None:
    """Pass a place; returns at once unless the environment says otherwise."""
    if ARMED is not None:
        ARMED.reach(name)
