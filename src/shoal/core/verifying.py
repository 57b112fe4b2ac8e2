"""Verified tasks: who may answer, how many are asked, and when one answer is enough.

Theory of operation. `replication` says what the answers of one task mean, `standing`
how far an owner is believed. This machine joins them to attempts.

A task of an owner that is not trusted yet is run `copies` times at once. One answer of
a trusted owner is *held*: the task has no further attempt, and has not ended either.
Of each owner one result in every three to seven is checked, by a second attempt
elsewhere; which one, chance decides after the answer has come, so nobody can know. A
held answer is accepted when a *later* answer of the same owner was compared and agreed.
If one is found wrong, all that is held of its owner gets a second opinion. So an owner
that begins to lie after it was trusted has nothing accepted: from its first lie on no
answer of it will agree. One that lies now and then may be lucky between two checks.

When nothing of a group is left but held answers, the last one of some owners is checked
to decide on all of them, as long as that is at most a sixth of the tasks. Beyond that,
and so in groups of under six tasks, the answers are believed; they count for the next
check of their owner. A job may say that all of its results are always compared.

What is held is not journalled: the answers are, and after a restart the same rules
hold them again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, final

import msgspec

from shoal.core.journal import Entry, Judged
from shoal.core.replication import is_answer, key_of, rule, succeeded, wanted
from shoal.core.verdicts import judge_answer
from shoal.model.ids import OwnerId

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from random import Random

    from shoal.core.jobs import GroupRecord, JobBook, Run, TaskRecord
    from shoal.core.journal import Answer
    from shoal.core.replication import Trusts
    from shoal.model.ids import GroupId, NodeId, TaskId
    from shoal.model.job import Verify
    from shoal.protocol.messages import Outcome

CHECKED_OF: Final = (3, 7)
"""One of so many results of a trusted owner is checked, the number drawn anew."""

TAIL_SHARE: Final = 6
"""Checks at the end of a group are at most one for so many of its tasks."""

FIRST_ANSWERS_MAX: Final = 10
"""Tasks that an owner who is not trusted may have begun and not seen judged."""


LET_DOWN_S: Final = 30.0
"""So long an owner is not asked again for a task that it lost or did not start."""

LET_DOWN_MAX: Final = 10_000
NOBODY: Final = OwnerId("")


class Settled(msgspec.Struct):
    """What follows from an answer, beside its entries.

    Attempts that are `over` are needed no longer; tasks that `failed` rest a little.
    """

    entries: list[Entry] = msgspec.field(default_factory=list[Entry])
    over: list[Run] = msgspec.field(default_factory=list["Run"])
    failed: list[TaskId] = msgspec.field(default_factory=list["TaskId"])


@final
class Verifier:
    """Decides about the attempts and answers of verified tasks.

    Groups whose need for slots changed are left in `changed`.
    """

    def __init__(
        self,
        book: JobBook,
        owner_of: Callable[[NodeId, float], OwnerId | None],
        rng: Random,
    ) -> None:
        """Ask `owner_of` whose a worker is, by the grant that it showed."""
        self.changed: dict[GroupId, None] = {}
        self._owner_of = owner_of
        self._book = book
        self._rng = rng
        self._held: dict[OwnerId, dict[TaskId, int]] = {}  # and number of the answer
        self._held_in: dict[GroupId, dict[TaskId, OwnerId]] = {}
        self._checked: dict[TaskId, None] = {}  # one answer is not enough for these
        self._tail_checks: dict[GroupId, int] = {}
        self._left: dict[OwnerId, int] = {}  # results until the next check
        self._let_down: dict[tuple[TaskId, OwnerId], float] = {}  # and until when

    # Where attempts may run.

    def owner_at(self, worker: NodeId, task: TaskId, now: float) -> OwnerId:
        """Return whose a worker is, if the task is verified; else nobody asks."""
        if self._book.group_of(task).group.verify is None:
            return NOBODY
        return self._owner_of(worker, now) or NOBODY

    def owners(self, nodes: Iterable[NodeId], now: float) -> dict[NodeId, OwnerId]:
        """Return whose workers these are, without those that nobody vouches for."""
        found = ((node, self._owner_of(node, now)) for node in nodes)
        return {node: owner for node, owner in found if owner is not None}

    def barred(
        self, group: GroupRecord, nodes: Iterable[NodeId], now: float
    ) -> list[NodeId]:
        """Return the workers on which none of a group's waiting tasks may run."""
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
        """Return the next waiting task that may run there, first those begun."""
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

    def let_down(self, run: Run, now: float) -> None:
        """Let others try a task first that an owner did not bring to an end.

        A task that was lost some times has failed: not by the doing of one owner.
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
        """Count the tasks that an owner has begun and that are not judged yet."""
        live = {run.task for run in self._book.runs.values() if run.owner == owner}
        return len(live) + len(self._held.get(owner, ()))

    # What becomes of attempts.

    def refresh(self, task: TaskId, now: float) -> None:
        """Let a task want another slot, or no more, as its answers and attempts are."""
        record, group = self._book.tasks[task], self._book.group_of(task)
        if record.ended or group.group.verify is None:
            return
        if self._wants(record, group, now) <= 0:
            if task in group.waiting:
                self._book.stop_waiting(task)
                record.state = "running"
                self.changed[group.id] = None
            return
        if record.live or record.answers:
            group.seconds[task] = None
        self._book.wait_again(task)
        self.changed[group.id] = None

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
        """Whether one answer is not enough, whoever gives it."""
        return task in self._checked or _verify_of(group).always

    def _trust(self, now: float) -> Trusts:
        wall_s, standings = self._book.wall_s(now), self._book.standings
        return lambda owner: standings.trust(owner, wall_s) == "trusted"

    # Answers.

    def takes(self, group: GroupRecord, outcome: Outcome) -> bool:
        """Whether the end of an attempt is an answer that is compared with others."""
        return group.group.verify is not None and is_answer(outcome)

    def on_answer(self, run: Run, outcome: Outcome, now: float) -> Settled:
        """Take in what an attempt ended with."""
        settled = Settled(self._book.answer(run, outcome))
        self._settle(run.task, now, settled)
        return settled

    def recover(self, now: float) -> Settled:
        """Go on with what an earlier life left."""
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
                self.refresh(record.task.id, now)
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
                self._hold(record, ruling.answer, now)
            case "ask":
                self.refresh(task, now)
            case "give-up":
                settled.over += record.live.values()
                settled.entries += self._book.finish(
                    task, "failed", now, reason=ruling.reason
                )
                self._ended(record)
        self._look_at_tail(group, now, settled)

    def _accept(
        self, record: TaskRecord, answer: Answer, now: float, settled: Settled
    ) -> None:
        """End a task by an answer, and judge all its answers by that."""
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
                self._doubt(each.owner, now)

    def _end(
        self, record: TaskRecord, answer: Answer, now: float, settled: Settled
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
        self._ended(record)
        return entries

    def _ended(self, record: TaskRecord) -> None:
        """Note that a task is over, which may let others of its job begin."""
        group = self._book.groups.get(record.task.group)
        self.changed[record.task.group] = None
        if group is not None and group.open == 0:
            self._tail_checks.pop(group.id, None)
            for other in self._book.jobs[group.job].job.groups:
                self.changed[other.id] = None

    # Answers of trusted owners.

    def _hold(self, record: TaskRecord, answer: Answer, now: float) -> None:
        """Keep one answer of a trusted owner until a later one is compared."""
        task, owner = record.task.id, answer.owner
        self._held.setdefault(owner, {})[task] = answer.number
        self._held_in.setdefault(record.task.group, {})[task] = owner
        self._book.stop_waiting(task)
        record.state = "running"
        self.changed[record.task.group] = None
        left = self._left.get(owner)
        if left is None:
            standing = self._book.standings.get(owner)
            left = self._draw() - (standing.believed if standing else 0)
        self._left[owner] = left - 1
        if left <= 1:
            self._check(task, now)

    def _draw(self) -> int:
        return self._rng.randint(*CHECKED_OF)

    def _check(self, task: TaskId, now: float) -> None:
        """Let a second owner run a task whose answer was held."""
        owner = self._book.tasks[task].answers[0].owner
        self._let_go(task)
        self._checked[task] = None
        self._left[owner] = self._draw()
        self.refresh(task, now)

    def _let_go(self, task: TaskId) -> None:
        """Hold the answer of a task no longer, if it was held."""
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
        """Forget tasks that ended in another way."""
        for task in tasks:
            self._let_go(task)
            self._checked.pop(task, None)

    def _vouch(self, agreed: Answer, now: float, settled: Settled) -> None:
        """Accept what an owner answered before an answer that was found right."""
        self._left[agreed.owner] = self._draw()
        held = self._held.get(agreed.owner, {})
        for task in [task for task, number in held.items() if number < agreed.number]:
            record = self._book.tasks[task]
            settled.entries += self._end(record, record.answers[0], now, settled)

    def _doubt(self, owner: OwnerId, now: float) -> None:
        """Let others answer, too, whatever is held of an owner."""
        self._left.pop(owner, None)
        for task in list(self._held.get(owner, ())):
            self._let_go(task)
            self.refresh(task, now)

    # Ends of groups.

    def _look_at_tail(self, group: GroupRecord, now: float, settled: Settled) -> None:
        """Decide on held answers when nothing else of a group is left."""
        held = self._held_in.get(group.id, {})
        if not held or len(held) < group.open:
            return
        last: dict[OwnerId, list[TaskId]] = {}
        for task, owner in held.items():
            last.setdefault(owner, []).append(task)
        so_far = self._tail_checks.get(group.id, 0)
        most = len(group.group.tasks) // TAIL_SHARE - so_far
        owners = sorted(last, key=lambda owner: (-len(last[owner]), owner))
        # The second opinion of an owner says as much of its own answers.
        checked = owners[: min(most, (len(owners) + 1) // 2)] if most > 0 else []
        self._tail_checks[group.id] = so_far + len(checked)
        for owner in checked:
            self._check(last[owner][-1], now)
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


def _compared(answer: Answer, key: str) -> Literal["agreed", "disagreed", "failed"]:
    if key_of(answer.outcome) == key:
        return "agreed"
    return "disagreed" if succeeded(answer.outcome) else "failed"


def _verify_of(group: GroupRecord) -> Verify:
    verify = group.group.verify
    assert verify is not None
    return verify
