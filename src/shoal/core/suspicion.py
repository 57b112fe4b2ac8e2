"""Which task a node died of: one that it was handling in two deaths in a row.

A host notes what it handles where its own death does not wipe it out. In its next life
it tells what it finds there: these are suspects. Suspects are handled one at a time, so
that the next death names one of them; who passes is none any more. The job of a task
that was handled in two deaths is set aside, and the node lives.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, final

import msgspec

from shoal.model.ids import JobId, NodeId, TaskId

if TYPE_CHECKING:
    from collections.abc import Iterable

DEATHS_MAX: Final = 2
SUSPECTS_MAX: Final = 256
ASIDE_MAX: Final = 256
"""Suspects and jobs that are remembered; the oldest are forgotten first."""

Stage = Literal["start", "end"]


class Subject(msgspec.Struct, frozen=True, order=True):
    """A task, and what was being done with it: starting it, or taking what it left."""

    scheduler: NodeId
    task: TaskId
    stage: Stage = "start"

    @property
    def job(self) -> JobId:
        """The job that the task is of."""
        return JobId(self.task.partition(".")[0])


class Suspect(msgspec.Struct, frozen=True):
    """What was handled when the node died, this many times in a row."""

    subject: Subject
    deaths: int


class Aside(msgspec.Struct, frozen=True):
    """A job that the node does not handle any more, and why."""

    scheduler: NodeId
    job: JobId
    reason: str


class Memory(msgspec.Struct, frozen=True):
    """What outlives the node."""

    suspects: tuple[Suspect, ...] = ()
    aside: tuple[Aside, ...] = ()


@final
class Suspicion:
    """Decides what a node handles after it died, and in which order."""

    def __init__(self, memory: Memory, left: Iterable[Subject]) -> None:
        """Go on from an earlier life; `left` is what it was handling as it died."""
        self.set_aside_now: list[Aside] = []
        self._deaths = {each.subject: each.deaths for each in memory.suspects}
        self._aside = {(each.scheduler, each.job): each for each in memory.aside}
        self._on_trial: Subject | None = None
        for subject in dict.fromkeys(left):
            self._blame(subject)
        for old in list(self._deaths)[:-SUSPECTS_MAX]:
            del self._deaths[old]
        for key in list(self._aside)[:-ASIDE_MAX]:
            del self._aside[key]

    @property
    def memory(self) -> Memory:
        """What the next life must know."""
        suspects = (Suspect(each, n) for each, n in self._deaths.items())
        return Memory(tuple(suspects), tuple(self._aside.values()))

    def refusal(self, scheduler: NodeId, job: JobId) -> str:
        """Say why a job is not handled; nothing if it is."""
        found = self._aside.get((scheduler, job))
        return "" if found is None else found.reason

    def may_begin(self, subject: Subject) -> bool:
        """Whether it may be handled now: of suspects there is one at a time."""
        return subject not in self._deaths or self._on_trial in (None, subject)

    def began(self, subject: Subject) -> None:
        """Note that it is being handled."""
        if subject in self._deaths:
            self._on_trial = subject

    def passed(self, subject: Subject) -> bool:
        """Note that it did no harm; return whether it was suspected."""
        if self._on_trial == subject:
            self._on_trial = None
        return self._deaths.pop(subject, None) is not None

    def _blame(self, subject: Subject) -> None:
        deaths = self._deaths.get(subject, 0) + 1
        if deaths < DEATHS_MAX:
            self._deaths[subject] = deaths
            return
        for each in [each for each in self._deaths if each.job == subject.job]:
            del self._deaths[each]
        doing = "started" if subject.stage == "start" else "took what was left by"
        aside = Aside(
            subject.scheduler,
            subject.job,
            f"set aside: this node died {deaths} times in a row as it {doing} "
            f"{subject.task}; `shoal retry {subject.job}` runs it as a new job",
        )
        self._aside[subject.scheduler, subject.job] = aside
        self.set_aside_now.append(aside)
