"""Find the task that kills its node: the one it was handling in two crashes in a row.

A host notes what it is handling in a place that survives its crash. After the restart
these tasks are suspects. Suspects are handled one at a time, so that the next crash
names one of them; a task that passes is cleared. The job of a task that was being
handled in two crashes is set aside, and the node lives on.
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
    """A task and the step in progress: starting it or collecting its results."""

    scheduler: NodeId
    task: TaskId
    stage: Stage = "start"

    @property
    def job(self) -> JobId:
        """The task's job."""
        return JobId(self.task.partition(".")[0])


class Suspect(msgspec.Struct, frozen=True):
    """A task in progress at this many crashes in a row."""

    subject: Subject
    deaths: int


class SetAside(msgspec.Struct, frozen=True):
    """A job that the node no longer handles, and why."""

    scheduler: NodeId
    job: JobId
    reason: str


class Memory(msgspec.Struct, frozen=True):
    """The state that survives a crash."""

    suspects: tuple[Suspect, ...] = ()
    aside: tuple[SetAside, ...] = ()


@final
class CrashSuspects:
    """Decides what a node handles after a crash, and in which order."""

    def __init__(self, memory: Memory, left: Iterable[Subject]) -> None:
        """Resume after a crash; `left` is what was being handled then."""
        self.set_aside_now: list[SetAside] = []
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
        """The state to keep for the next restart."""
        suspects = (Suspect(each, n) for each, n in self._deaths.items())
        return Memory(tuple(suspects), tuple(self._aside.values()))

    def refusal(self, scheduler: NodeId, job: JobId) -> str:
        """Return why a job is not handled; empty if it is."""
        found = self._aside.get((scheduler, job))
        return "" if found is None else found.reason

    def may_begin(self, subject: Subject) -> bool:
        """Whether a task may be handled now; suspects go one at a time."""
        return subject not in self._deaths or self._on_trial in (None, subject)

    def began(self, subject: Subject) -> None:
        """Note that a task is being handled."""
        if subject in self._deaths:
            self._on_trial = subject

    def passed(self, subject: Subject) -> bool:
        """Clear a task; return whether it was a suspect."""
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
        aside = SetAside(
            subject.scheduler,
            subject.job,
            f"set aside: this node died {deaths} times in a row as it {doing} "
            f"{subject.task}; `shoal retry {subject.job}` runs it as a new job",
        )
        self._aside[subject.scheduler, subject.job] = aside
        self.set_aside_now.append(aside)
