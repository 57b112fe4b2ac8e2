"""Workers that lie about results, each in its own way and without colluding.

The right result of each task is known here. A cheat answers something of its own
instead, or, if it is lazy, the empty answer, which other cheats may give too. Only
cheats of the kind `same` agree on a wrong result.
"""

from __future__ import annotations

from random import Random
from typing import Literal, final

import msgspec

from shoal.model.ids import TaskId
from shoal.protocol.messages import Outcome

Kind = Literal["always", "sometimes", "sleeper", "lazy", "failing", "same"]
"""A `sleeper` is honest for its first results. `same` models workers that collude, or
run the same wrong program, and so give the same wrong result."""


class Cheat(msgspec.Struct, frozen=True):
    """How one worker lies: in which share of results, after how many honest ones."""

    kind: Kind
    share: float = 1.0
    patience: int = 0


def right(task: TaskId) -> str:
    """Return the digest of a task's right result."""
    return f"right {task}"


@final
class CheatAnswers:
    """One worker's answers, across restarts."""

    def __init__(self, cheat: Cheat | None, rng: Random) -> None:
        self.lies = 0
        self._cheat = cheat
        self._rng = rng
        self._given = 0

    def outcome(self, task: TaskId, exit_code: int | None) -> Outcome:
        """Return the outcome that the worker reports for a process."""
        honest = Outcome("exited", exit_code=exit_code)
        if exit_code != 0:
            return honest
        cheat = self._cheat
        self._given += 1
        if cheat is None or self._given <= cheat.patience:
            return msgspec.structs.replace(honest, digest=right(task))
        if cheat.share < 1.0 and self._rng.random() >= cheat.share:
            return msgspec.structs.replace(honest, digest=right(task))
        self.lies += 1
        if cheat.kind == "failing":
            return Outcome("exited", exit_code=1)
        return msgspec.structs.replace(honest, digest=self._lie(cheat.kind, task))

    def _lie(self, kind: Kind, task: TaskId) -> str:
        if kind == "lazy":
            return ""
        if kind == "same":
            return f"wrong {task}"
        return f"wrong {self._rng.getrandbits(64):x}"
