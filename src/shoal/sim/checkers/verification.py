"""Check promises about verified results: V1 to V4.

- V1: no wrong result is accepted from workers that lie without colluding.
- V2: an accepted result has enough agreeing answers of different owners, or comes from
  the job's own owner, or from an owner that has earned trust.
- V3: an owner never gets two attempts of one task, nor a task it has answered.
- V4: a lying worker is found by its twentieth lie.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, final

import msgspec

from shoal.core.durability.journal import (
    Answered,
    Assigned,
    Entry,
    Finished,
    Judged,
    Returned,
    Submitted,
)
from shoal.core.verification.replication import is_answer
from shoal.core.verification.standings import FAILURES_MAX, TRUSTED_AFTER
from shoal.model.ids import Attempt, GroupId, NodeId, OwnerId, TaskId
from shoal.model.job import Job, Verify
from shoal.protocol.messages import ALL_OUTPUTS, Outcome
from shoal.sim.checkers.violations import Violations
from shoal.sim.faults.cheats import right
from shoal.sim.node.host import SimHost

FOUND_WITHIN: Final = 20


class Seen(msgspec.Struct):
    """One verified task, according to the journal."""

    job: Job
    verify: Verify
    seats: dict[Attempt, OwnerId] = msgspec.field(
        default_factory=dict[Attempt, OwnerId]
    )
    answers: dict[Attempt, tuple[OwnerId, str]] = msgspec.field(
        default_factory=dict[Attempt, tuple[OwnerId, str]]
    )


@final
class Verification:
    """Reads schedulers' journals, knowing the right results and the liars."""

    def __init__(self, violations: Violations, hosts: Mapping[NodeId, SimHost]) -> None:
        self.answered: dict[TaskId, int] = {}
        self.accepted: dict[TaskId, bool] = {}  # and whether the result is right
        self.lies: dict[NodeId, int] = {}  # lies before the worker was found
        self.found: dict[NodeId, int] = {}  # answers given until found
        self.tolerant = False  # count V1 and V4 without reporting them
        self._violations = violations
        self._hosts = hosts
        self._tasks: dict[TaskId, Seen] = {}
        self._in_row: dict[OwnerId, int] = {}
        self._failed: dict[OwnerId, int] = {}  # consecutive failures
        self._gave: dict[NodeId, int] = {}

    def safe(self, host: SimHost, entry: Entry) -> None:
        """Check an entry that is now safe on disk."""
        match entry:
            case Submitted():
                self._on_submitted(entry.job)
            case Assigned():
                self._on_assigned(entry)
            case Answered():
                self._on_answered(host, entry)
            case Returned():
                self._on_returned(entry)
            case Finished():
                self._on_finished(host, entry)
            case Judged():
                self._on_judged(entry)
            case _:
                pass

    def _on_submitted(self, job: Job) -> None:
        for group in job.groups:
            for task in group.tasks if group.verify is not None else ():
                assert group.verify is not None
                self._tasks[task.id] = Seen(job, group.verify)

    def _on_assigned(self, entry: Assigned) -> None:
        for place in entry.places:
            seen = self._tasks.get(place.task)
            if seen is None:
                continue
            owner = self._hosts[place.worker].spec.owner
            taken = [*seen.seats.values(), *(one for one, _ in seen.answers.values())]
            if owner in taken and seen.verify.owners == "different":
                what = f"{place.task} goes to {owner} for the second time"
                self._violations.report("V3", what)
            seen.seats[place.attempt] = owner

    def _on_answered(self, host: SimHost, entry: Answered) -> None:
        seen, answer = self._tasks[entry.task], entry.answer
        owner = self._hosts[answer.worker].spec.owner
        seen.seats.pop(answer.attempt, None)
        digest = _inside(host, answer.outcome)
        seen.answers[answer.attempt] = (owner, digest)
        self.answered[entry.task] = self.answered.get(entry.task, 0) + 1
        self._gave[answer.worker] = self._gave.get(answer.worker, 0) + 1
        if digest in ("failed", right(entry.task)) or answer.worker in self.found:
            return
        self.lies[answer.worker] = lies = self.lies.get(answer.worker, 0) + 1
        if lies > FOUND_WITHIN and not self.tolerant:
            what = f"{answer.worker} has lied {lies} times and is not found out"
            self._violations.report("V4", what)

    def _on_returned(self, entry: Returned) -> None:
        seen = self._tasks.get(entry.task)
        if seen is None:
            return
        seen.seats.pop(entry.attempt, None)
        if entry.attempt in seen.answers:
            seen.answers.clear()  # All agree that it failed; it is retried.
            seen.seats.clear()

    def _on_judged(self, entry: Judged) -> None:
        if entry.verdict == "believed":
            return
        failed = self._failed.get(entry.owner, 0) + 1
        self._failed[entry.owner] = failed if entry.verdict == "failed" else 0
        in_row = self._in_row.get(entry.owner, 0) + 1
        self._in_row[entry.owner] = in_row if entry.verdict == "agreed" else 0
        if entry.verdict == "disagreed" or self._failed[entry.owner] >= FAILURES_MAX:
            self.found.setdefault(entry.worker, self._gave.get(entry.worker, 0))

    def _on_finished(self, host: SimHost, entry: Finished) -> None:
        seen = self._tasks.get(entry.task)
        if seen is None or entry.attempt is None or entry.outcome is None:
            return
        if not is_answer(entry.outcome):
            return  # Its attempts were lost too often.
        inside = _inside(host, entry.outcome)
        is_right = entry.state == "done" and inside == right(entry.task)
        self.accepted[entry.task] = is_right
        if not is_right and not self.tolerant:
            what = f"{entry.task} is {entry.state} by {entry.outcome}"
            self._violations.report("V1", what)
        if not self._justified(seen, entry.attempt):
            what = f"{entry.task} is accepted by {seen.answers}"
            self._violations.report("V2", what)

    def _justified(self, seen: Seen, attempt: Attempt) -> bool:
        owner, digest = seen.answers.get(attempt, (OwnerId(""), ""))
        same = {one for one, said in seen.answers.values() if said == digest}
        return (
            len(same) >= seen.verify.copies
            or owner == seen.job.owner
            or self._in_row.get(owner, 0) >= TRUSTED_AFTER
        )


def _inside(host: SimHost, outcome: Outcome) -> str:
    """Return the content of fetched outputs, not the worker's claim."""
    if outcome.exit_code != 0:
        return "failed"
    return host.staging.inside(outcome.outputs.get(ALL_OUTPUTS, ""))


def of_group(tasks: Mapping[TaskId, int], group: GroupId) -> dict[TaskId, int]:
    """Return the entries for the tasks of one group."""
    return {task: n for task, n in tasks.items() if task.rpartition(".")[0] == group}
