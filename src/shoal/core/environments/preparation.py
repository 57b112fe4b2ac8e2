"""What comes before an attempt starts: its environments, then its files, in turn."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, final

import msgspec

from shoal.core.environments.events import NeededEnvironment
from shoal.core.environments.words import AWAITING, MAKING, told_of
from shoal.core.events import MakeEnvironment, Send, StageTask, StartTask

if TYPE_CHECKING:
    from shoal.core.environments.shelf import EnvironmentShelf
    from shoal.core.events import Effect
    from shoal.core.leasing.owner_rules import OwnerRules
    from shoal.model.ids import Attempt


class Prelude(msgspec.Struct, kw_only=True):
    """How far an attempt is before it starts. `start` is what follows in the end."""

    start: StartTask | None = None
    phase: Literal["making", "waiting", "staging", "started"] = "started"
    needs: list[NeededEnvironment] = []  # that it does not have yet
    progress_seq: int = 0


@final
class Preparation:
    """Decides the next step of attempts that have not started."""

    def __init__(self, shelf: EnvironmentShelf, rules: OwnerRules) -> None:
        self._shelf = shelf
        self._rules = rules

    def go_on(self, run: Prelude, start: StartTask) -> list[Effect]:
        """Do the next of what comes before an attempt starts, or start it."""
        run.start = start
        while run.needs:
            need = run.needs[0]
            match self._shelf.want(start.attempt, need, start.owners):
                case "ready":
                    run.needs.pop(0)
                case "make":
                    run.phase = "making"
                    return self._make(run, start, need)
                case "wait":
                    run.phase = "waiting"
                    return [self.note(start.attempt, run, AWAITING[need.kind])]
        if start.is_staged:
            run.phase = "staging"
            return [StageTask(start)]
        run.phase, run.start = "started", None
        return [start]

    def _make(
        self, run: Prelude, start: StartTask, need: NeededEnvironment
    ) -> list[Effect]:
        """Make an environment for an attempt: packages always come by a network."""
        network = start.network
        if need.kind == "python":
            network = self._rules.network(start.owners, wanted=True)
        make = MakeEnvironment(need, start, network)
        note = MAKING[need.kind]
        return [make, self.note(start.attempt, run, note)] if note else [make]

    def note(
        self, attempt: Attempt, run: Prelude, note: str = "", made: str = ""
    ) -> Send:
        """Say what an attempt waits for, or that it was made."""
        run.progress_seq += 1
        return Send(attempt.scheduler, told_of(attempt, run.progress_seq, note, made))
