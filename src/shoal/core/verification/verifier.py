"""Verified tasks: who may answer, how many are asked, and when one answer is enough.

Theory of operation. `replication` says what the answers to one task amount to,
`standings` how far an owner is trusted. This part applies both to attempts.

With owners that are not trusted, a task runs `copies` times at once. One answer of a
trusted owner is *held*: the task gets no further attempt, but has not ended either. Of
each trusted owner one result in three to seven is *checked* by a second attempt
elsewhere. Chance picks it after the answer has come, so no worker can know. A held
answer is accepted once a *later* answer of the same owner was compared and agreed. If
one proves wrong, every held answer of its owner gets a second opinion. So an owner that
starts to lie after it was trusted gets nothing accepted: from its first lie on, none of
its answers agrees. An owner that lies now and then may be lucky between two checks.

When only held answers are left of a group, the last one of some owners is checked and
decides on all of theirs, within a budget of one check per `TAIL_SHARE` tasks. Beyond
that, and so in groups of under six tasks, the answers are believed; they count towards
the next check of their owner. A job may demand that all its results are compared.

What is held is not journalled. The answers are, and after a restart the same rules hold
them again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, final

import msgspec

from shoal.core.dispatch.verdicts import judge_answer
from shoal.core.durability.journal import Entry, Judged
from shoal.core.scheduling.notices import NeedChanged
from shoal.core.verification.replication import (
    is_answer,
    key_of,
    rule,
    succeeded,
    wanted,
)
from shoal.model.ids import OwnerId

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from random import Random

    from shoal.core.dispatch.run_states import TaskRun
    from shoal.core.durability.journal import AnswerKept
    from shoal.core.records.records import GroupRecord, TaskRecord
    from shoal.core.scheduling.job_book import JobBook
    from shoal.core.verification.replication import Trusts
    from shoal.model.ids import GroupId, NodeId, TaskId
    from shoal.model.job import Verify
    from shoal.protocol.messages import Outcome

CHECKED_OF: Final = (3, 7)
"""One result in 3 to 7 of a trusted owner is checked; the number is drawn anew."""

TAIL_SHARE: Final = 6
"""Tasks of a group per check at its end."""

FIRST_ANSWERS_MAX: Final = 10
"""Tasks that an owner who is not trusted may have begun and not had judged."""


LET_DOWN_S: Final = 30.0
"""How long an owner does not get a task again that it lost or did not start."""

LET_DOWN_MAX: Final = 10_000
NOBODY: Final = OwnerId("")


class Settled(msgspec.Struct):
    """What follows from an answer: entries first, then the rest.

    Runs that are `over` are no longer needed; tasks that `failed` rest before they run
    again; the groups in `changed` need more or fewer slots than before.
    """

    entries: list[Entry] = msgspec.field(default_factory=list[Entry])
    over: list[TaskRun] = msgspec.field(default_factory=list["TaskRun"])
    failed: list[TaskId] = msgspec.field(default_factory=list["TaskId"])
    changed: list[NeedChanged] = msgspec.field(default_factory=list[NeedChanged])


@final
class Verifier:
    """Decides about the attempts and answers of verified tasks."""

    def __init__(
        self,
        book: JobBook,
        owner_of: Callable[[NodeId, float], OwnerId | None],
        rng: Random,
    ) -> None:
        """Ask `owner_of` who owns a worker, by the grant it showed."""
        self._owner_of = owner_of
        self._book = book
        self._rng = rng
        self._held: dict[OwnerId, dict[TaskId, int]] = {}  # and the answer's number
        self._held_in: dict[GroupId, dict[TaskId, OwnerId]] = {}
        self._checked: dict[TaskId, None] = {}  # tasks that need more than one answer
        self._tail_checks: dict[GroupId, int] = {}
        self._left: dict[OwnerId, int] = {}  # results until the next check
        self._let_down: dict[tuple[TaskId, OwnerId], float] = {}  # and until when

    # Where attempts may run.

    def owner_at(self, worker: NodeId, task: TaskId, now: float) -> OwnerId:
        """Return the owner of a worker, if the task is verified."""
        if self._book.group_of(task).group.verify is None:
            return NOBODY
        return self._owner_of(worker, now) or NOBODY

    def owners(self, nodes: Iterable[NodeId], now: float) -> dict[NodeId, OwnerId]:
        """Return the owners of these workers, as far as they are known."""
        found = ((node, self._owner_of(node, now)) for node in nodes)
        return {node: owner for node, owner in found if owner is not None}

    def barred(
        self, group: GroupRecord, nodes: Iterable[NodeId], now: float
    ) -> list[NodeId]:
        """Return the workers on which no waiting task of a group may run."""
        nodes = list(nodes)
        owners = self.owners(nodes, now)
        verdicts: dict[tuple[OwnerId, NodeId | None], bool] = {}
        alone = group.group.verify is not None and group.group.verify.owners == "any"
        barred: list[NodeId] = []
        for node in nodes:
            owner = owners.get(node)
            if owner is None:
                barred.append(node)
                continue
            key = (owner, node if alone else None)
            if key not in verdicts:
                verdicts[key] = self.task_for(group, node, now) is None
            if verdicts[key]:
                barred.append(node)
        return barred

    def task_for(self, group: GroupRecord, worker: NodeId, now: float) -> TaskId | None:
        """Return the next waiting task that may run there; tasks begun come first."""
        owner = self._owner_of(worker, now)
        if owner is None:
            return None
        own = owner == self._book.jobs[group.job].job.owner
        trust = self._book.standings.trust(owner, self._book.wall_s(now))
        if trust == "shunned" and not own:
            return None
        for task in group.seconds:
            if self._has_let_down(task, owner, now):
                continue
            if task in group.waiting and self._is_new_to(task, owner, worker):
                return task
        if not own and trust != "trusted" and self._begun(owner) >= FIRST_ANSWERS_MAX:
            return None
        fresh = (task for task in group.waiting if task not in group.seconds)
        spared = (t for t in fresh if not self._has_let_down(t, owner, now))
        return next(spared, None)

    def let_down(self, run: TaskRun, now: float) -> None:
        """Let other owners try a task first that this one did not bring to an end.

        A task that is lost several times fails: one owner alone must not cause that.
        """
        if run.owner:
            if len(self._let_down) >= LET_DOWN_MAX:
                self._let_down.clear()
            self._let_down[run.task, run.owner] = now + LET_DOWN_S

    def _has_let_down(self, task: TaskId, owner: OwnerId, now: float) -> bool:
        return self._let_down.get((task, owner), now) > now

    def _is_new_to(self, task: TaskId, owner: OwnerId, worker: NodeId) -> bool:
        record = self._book.tasks[task]
        runs, answers = record.live.values(), record.answers
        if _verify_of(self._book.group_of(task)).owners == "any":
            workers = [*(r.worker for r in runs), *(a.worker for a in answers)]
            return worker not in workers
        return owner not in [*(r.owner for r in runs), *(a.owner for a in answers)]

    def _begun(self, owner: OwnerId) -> int:
        """Count the tasks of an owner that have begun and are not judged yet."""
        live = {run.task for run in self._book.runs.values() if run.owner == owner}
        return len(live) + len(self._held.get(owner, ()))

    # What becomes of attempts.

    def refresh(self, task: TaskId, now: float) -> list[NeedChanged]:
        """Let a task want another slot or none, by its answers and attempts."""
        record, group = self._book.tasks[task], self._book.group_of(task)
        if record.ended or group.group.verify is None:
            return []
        if self._wants(record, group, now) <= 0:
            if task not in group.waiting:
                return []
            self._book.stop_waiting(task)
            record.state = "running"
            return [NeedChanged(group.id)]
        if record.live or record.answers:
            group.seconds[task] = None
        self._book.wait_again(task)
        return [NeedChanged(group.id)]

    def _wants(self, record: TaskRecord, group: GroupRecord, now: float) -> int:
        task = record.task.id
        if task in self._held_in.get(group.id, ()):
            return 0
        live = [run.owner for run in record.live.values() if not run.lost]
        own = self._book.jobs[group.job].job.owner
        return wanted(
            record.answers,
            live,
            _verify_of(group),
            own,
            self._trust(now),
            checked=self._is_checked(task, group),
        )

    def _is_checked(self, task: TaskId, group: GroupRecord) -> bool:
        """Whether one answer is not enough, even of a trusted owner."""
        return task in self._checked or _verify_of(group).always

    def _trust(self, now: float) -> Trusts:
        wall_s, standings = self._book.wall_s(now), self._book.standings
        return lambda owner: standings.trust(owner, wall_s) == "trusted"

    # Answers.

    def takes(self, group: GroupRecord, outcome: Outcome) -> bool:
        """Whether the end of an attempt is an answer to a verified task."""
        return group.group.verify is not None and is_answer(outcome)

    def on_answer(self, run: TaskRun, outcome: Outcome, now: float) -> Settled:
        """Take the answer of an attempt."""
        settled = Settled(self._book.answer(run, outcome))
        self._settle(run.task, now, settled)
        return settled

    def recover(self, now: float) -> Settled:
        """Apply the rules to the answers and attempts of an earlier life."""
        settled = Settled()
        open_ = [
            record
            for record in self._book.tasks.values()
            if not record.ended
            and self._book.group_of(record.task.id).group.verify is not None
        ]
        answered = [record for record in open_ if record.answers]
        answered.sort(key=lambda record: record.answers[-1].number)
        for record in answered:
            if not record.ended:
                self._settle(record.task.id, now, settled)
        for record in open_:
            if record.live and not record.ended:
                settled.changed += self.refresh(record.task.id, now)
        return settled

    def _settle(self, task: TaskId, now: float, settled: Settled) -> None:
        record, group = self._book.tasks[task], self._book.group_of(task)
        own, trusts = self._book.jobs[group.job].job.owner, self._trust(now)
        verify, checked = _verify_of(group), self._is_checked(task, group)
        ruling = rule(record.answers, verify, own, trusts, checked=checked)
        match ruling.do:
            case "accept":
                assert ruling.answer is not None
                self._accept(record, ruling.answer, now, settled)
            case "trust":
                assert ruling.answer is not None
                self._hold(record, ruling.answer, now, settled)
            case "ask":
                settled.changed += self.refresh(task, now)
            case "give-up":
                settled.over += record.live.values()
                settled.entries += self._book.finish(
                    task, "failed", now, reason=ruling.reason
                )
                self._ended(record, settled)
        self._look_at_tail(group, now, settled)

    def _accept(
        self, record: TaskRecord, answer: AnswerKept, now: float, settled: Settled
    ) -> None:
        """End a task with an answer, and judge all its answers by it."""
        answers, own = record.answers, self._book.jobs[record.task.job].job.owner
        settled.entries += self._end(record, answer, now, settled)
        key, wall_s = key_of(answer.outcome), self._book.wall_s(now)
        for each in answers:
            if each.owner == own or len(answers) == 1:
                continue
            verdict = _compared(each, key)
            judged = Judged(record.task.id, each.owner, each.worker, verdict, wall_s)
            settled.entries += self._book.judge(judged)
            if verdict == "agreed":
                self._vouch(each, now, settled)
            else:
                self._doubt(each.owner, now, settled)

    def _end(
        self, record: TaskRecord, answer: AnswerKept, now: float, settled: Settled
    ) -> list[Entry]:
        task = record.task.id
        job = self._book.jobs[record.task.job].job
        self._let_go(task)
        self._checked.pop(task, None)
        settled.over += record.live.values()
        verdict = judge_answer(job, record.failures, answer.outcome)
        if verdict.do == "again":
            settled.failed.append(task)
            return self._book.ask_anew(task, verdict.reason)
        entries = self._book.finish(
            task,
            verdict.do,
            now,
            attempt=answer.attempt,
            outcome=answer.outcome,
            reason=verdict.reason,
        )
        self._ended(record, settled)
        return entries

    def _ended(self, record: TaskRecord, settled: Settled) -> None:
        """Note that a task has ended, which may let others of its job begin."""
        group = self._book.groups.get(record.task.group)
        settled.changed.append(NeedChanged(record.task.group))
        if group is not None and group.open == 0:
            self._tail_checks.pop(group.id, None)
            others = self._book.jobs[group.job].job.groups
            settled.changed += [NeedChanged(other.id) for other in others]

    # Answers of trusted owners.

    def _hold(
        self, record: TaskRecord, answer: AnswerKept, now: float, settled: Settled
    ) -> None:
        """Hold an answer of a trusted owner until a later one is compared."""
        task, owner = record.task.id, answer.owner
        self._held.setdefault(owner, {})[task] = answer.number
        self._held_in.setdefault(record.task.group, {})[task] = owner
        self._book.stop_waiting(task)
        record.state = "running"
        settled.changed.append(NeedChanged(record.task.group))
        left = self._left.get(owner)
        if left is None:
            standing = self._book.standings.get(owner)
            left = self._draw() - (standing.believed if standing else 0)
        self._left[owner] = left - 1
        if left <= 1:
            self._check(task, now, settled)

    def _draw(self) -> int:
        return self._rng.randint(*CHECKED_OF)

    def _check(self, task: TaskId, now: float, settled: Settled) -> None:
        """Let another owner run a task whose answer was held."""
        owner = self._book.tasks[task].answers[0].owner
        self._let_go(task)
        self._checked[task] = None
        self._left[owner] = self._draw()
        settled.changed += self.refresh(task, now)

    def _let_go(self, task: TaskId) -> None:
        """Stop holding the answer to a task."""
        group = self._book.tasks[task].task.group
        owner = self._held_in.get(group, {}).pop(task, None)
        if owner is None:
            return
        del self._held[owner][task]
        if not self._held[owner]:
            del self._held[owner]
        if not self._held_in[group]:
            del self._held_in[group]

    def forget(self, tasks: Iterable[TaskId]) -> None:
        """Forget tasks that ended otherwise."""
        for task in tasks:
            self._let_go(task)
            self._checked.pop(task, None)

    def _vouch(self, agreed: AnswerKept, now: float, settled: Settled) -> None:
        """Accept what an owner answered before an answer that proved right."""
        self._left[agreed.owner] = self._draw()
        held = self._held.get(agreed.owner, {})
        for task in [task for task, number in held.items() if number < agreed.number]:
            record = self._book.tasks[task]
            settled.entries += self._end(record, record.answers[0], now, settled)

    def _doubt(self, owner: OwnerId, now: float, settled: Settled) -> None:
        """Get a second opinion on all held answers of an owner."""
        self._left.pop(owner, None)
        for task in list(self._held.get(owner, ())):
            self._let_go(task)
            settled.changed += self.refresh(task, now)

    # Ends of groups.

    def _look_at_tail(self, group: GroupRecord, now: float, settled: Settled) -> None:
        """Decide on held answers when nothing else is left of a group."""
        held = self._held_in.get(group.id, {})
        if not held or len(held) < group.open:
            return
        last: dict[OwnerId, list[TaskId]] = {}
        for task, owner in held.items():
            last.setdefault(owner, []).append(task)
        so_far = self._tail_checks.get(group.id, 0)
        most = len(group.group.tasks) // TAIL_SHARE - so_far
        owners = sorted(last, key=lambda owner: (-len(last[owner]), owner))
        # A second opinion also tests the owner that gives it.
        checked = owners[: min(most, (len(owners) + 1) // 2)] if most > 0 else []
        self._tail_checks[group.id] = so_far + len(checked)
        for owner in checked:
            self._check(last[owner][-1], now, settled)
        if not checked:
            for task, owner in list(held.items()):
                self._believe(task, owner, now, settled)

    def _believe(
        self, task: TaskId, owner: OwnerId, now: float, settled: Settled
    ) -> None:
        record = self._book.tasks[task]
        answer, wall_s = record.answers[0], self._book.wall_s(now)
        settled.entries += self._end(record, answer, now, settled)
        judged = Judged(task, owner, answer.worker, "believed", wall_s)
        settled.entries += self._book.judge(judged)


def _compared(answer: AnswerKept, key: str) -> Literal["agreed", "disagreed", "failed"]:
    if key_of(answer.outcome) == key:
        return "agreed"
    return "disagreed" if succeeded(answer.outcome) else "failed"


def _verify_of(group: GroupRecord) -> Verify:
    verify = group.group.verify
    assert verify is not None
    return verify
