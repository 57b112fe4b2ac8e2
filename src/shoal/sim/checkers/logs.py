"""Check promises about the output of tasks: W1 and W2.

- W1: when a journal records the exit of an attempt, the log at that scheduler has all
  that the attempt wrote, unless it was said that lines may be missing.
- W2: a log grows in order and without holes, and in one life of the scheduler no piece
  is added twice.
"""

from __future__ import annotations

from typing import final

from shoal.core.durability.journal import Entry, Exited, Finished
from shoal.core.events import DoubtOutput, TaskWrote
from shoal.model.ids import Attempt
from shoal.protocol.messages import Outcome, Output
from shoal.sim.checkers.violations import Violations
from shoal.sim.node.host import SimHost


@final
class Logs:
    """Compares what schedulers have of tasks' output with what those wrote."""

    def __init__(self, violations: Violations) -> None:
        self.whole = 0  # logs of ended attempts that had something to say
        self._violations = violations
        self._written: dict[Attempt, bytes] = {}
        self._logs: dict[Attempt, bytes] = {}  # at their schedulers, on disk
        self._shown: dict[tuple[Attempt, int], int] = {}  # pieces, by the last life
        self._doubted: dict[Attempt, None] = {}

    def wrote(self, piece: TaskWrote) -> None:
        """Note what a process wrote."""
        self._written[piece.attempt] = (
            self._written.get(piece.attempt, b"") + piece.data
        )

    def shown(self, host: SimHost, output: Output) -> None:
        """Check a piece that is added to a log."""
        attempt, offset, data = output.attempt, output.offset, output.data
        log = self._logs.get(attempt, b"")
        if offset > len(log) and attempt not in self._doubted:
            what = f"{attempt} has a hole in its log at {len(log)}, before {offset}"
            self._violations.report("W2", what)
        if self._shown.get((attempt, offset)) == host.life:
            self._violations.report("W2", f"{attempt} has {offset} twice in its log")
        self._shown[attempt, offset] = host.life
        self._logs[attempt] = log[:offset] + data + log[offset + len(data) :]

    def doubted(self, effect: DoubtOutput) -> None:
        """Note whether lines of an attempt may be missing."""
        self._doubted.pop(effect.attempt, None)
        if effect.reason:
            self._doubted[effect.attempt] = None

    def safe(self, entry: Entry) -> None:
        """Check the log of an attempt whose exit is now on disk."""
        match entry:
            case Finished(attempt=Attempt() as attempt, outcome=Outcome("exited")):
                self._check(attempt)
            case Exited(attempt=attempt):
                self._check(attempt)
            case _:
                pass

    def _check(self, attempt: Attempt) -> None:
        written = self._written.get(attempt)
        if written is None or attempt in self._doubted:
            return
        self.whole += 1
        found = self._logs.get(attempt, b"")
        if found != written:
            what = f"{attempt} wrote {written!r}, its log has {found!r}"
            self._violations.report("W1", what)
