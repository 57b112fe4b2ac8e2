"""Running tasks on committed leases: assignments, their ends, and lost workers.

An attempt is live from its assignment until its end is journalled or a later attempt
supersedes it. Only live attempts change anything. A lost one is silent: it stays
live while its worker may come back with it, but its task already waits again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, final

from shoal.core import gangs
from shoal.core.deadlines import DeadlineHeap, Deadlines
from shoal.core.events import Effect, Record, Send
from shoal.core.holdings import Holding, Holdings, Shape
from shoal.core.journal import Entry, Place
from shoal.core.stragglers import stragglers
from shoal.core.timing import (
    DRIFT_MAX,
    KILL_S,
    LEASE_S,
    RESEND_MAX_S,
    RESEND_S,
    RETRY_FIRST_S,
    RETRY_MAX_S,
    STRAGGLER_CHECK_S,
)
from shoal.core.verdicts import Verdict, judge, judge_lost, judge_not_started
from shoal.model.ids import Attempt, GroupId, JobId, LeaseId, NodeId, RequestId, TaskId
from shoal.protocol.messages import (
    Acknowledgement,
    Assignment,
    Cancel,
    Refusal,
    Release,
    Renewed,
    Report,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from shoal.core.jobs import GroupRecord, JobBook, Run
    from shoal.model.job import Job, Task
    from shoal.model.resources import Allocation
    from shoal.policy.queue import Usage

LEASE_LOST: Final = frozenset({"preempted", "lost"})
"""Outcomes after which the worker keeps no lease for us."""


@final
class Dispatcher:
    """Brings tasks to workers and takes in what becomes of them.

    Groups whose need for slots changed are left in `changed`, leases that became
    free in `freed`; the scheduler empties both after every event.
    """

    def __init__(
        self,
        node: NodeId,
        book: JobBook,
        holdings: Holdings,
        usage: Usage,
        heap: DeadlineHeap,
        where: Callable[[NodeId], str],
    ) -> None:
        """Use `where` to tell the members of a gang how to reach each other."""
        self.changed: dict[GroupId, None] = {}
        self.freed: list[Holding] = []
        self._node = node
        self._book = book
        self._holdings = holdings
        self._usage = usage
        self._where = where
        self._sequence = 0
        self._tries: dict[Attempt, int] = {}
        self._stopping: dict[Attempt, Holding] = {}
        self._watched: dict[GroupId, None] = {}  # groups that may have stragglers
        self._resends: Deadlines[Attempt] = Deadlines(heap)
        self._give_ups: Deadlines[Attempt] = Deadlines(heap)
        self._back_offs: Deadlines[TaskId] = Deadlines(heap)
        self._chores: Deadlines[str] = Deadlines(heap)

    # Starting.

    def assign(
        self, pairs: Sequence[tuple[TaskId, Holding]], now: float
    ) -> list[Effect]:
        """Start tasks on committed leases; a gang is given as a whole."""
        effects: list[Effect] = []
        places: list[Place] = []
        for task, holding in pairs:
            effects += self._release_superseded(task)
            self._sequence += 1
            attempt = Attempt(self._node, self._book.generation, self._sequence)
            holding.attempt = attempt
            places.append(
                Place(task, attempt, holding.worker, holding.lease, holding.profile)
            )
        group = self._book.group_of(pairs[0][0])
        effects += _record(self._book.assign(tuple(places), now))
        for place in places:
            effects += self._send_assignment(place.attempt, now)
        if self._book.jobs[group.job].job.speculate:
            self._watched[group.id] = None
            self._chores.set_earlier("stragglers", now + STRAGGLER_CHECK_S)
        self.changed[group.id] = None
        return effects

    def recover(self, now: float) -> list[Effect]:
        """Go on with what an earlier life left running.

        It may have died while it put a gang back or ended it; that is done now.
        """
        effects: list[Effect] = []
        for group in list(self._book.groups.values()):
            if group.open == 0 or not group.is_gang:
                continue
            effects += _record(gangs.finish_begun(self._book, group, now))
            if gangs.is_broken(self._book, group):
                entries, _ = self._break_gang(group, "the scheduler restarted")
                effects += _record(entries)
            else:
                effects += self._settle_gang(group, now)
        for run in list(self._book.runs.values()):
            effects += self._adopt(run, now)
        return effects

    def _adopt(self, run: Run, now: float) -> list[Effect]:
        """Go on with an attempt of an earlier life, if its worker still has it."""
        if self._holdings.get(run.lease) is not None:
            # Its worker gave the lease up and out again, which no honest one does.
            return self._lose_run(run, "its lease went to another task", now)
        task = self._book.tasks[run.task].task
        job = self._book.jobs[task.job].job
        holding = Holding(
            lease=run.lease,
            worker=run.worker,
            request=RequestId(""),
            group=task.group,
            shape=shape_of(job, task, run.profile),
            profile=run.profile,
            state="committed",
            attempt=run.attempt,
            since=now,
        )
        self._holdings.add(holding, now)
        self._holdings.renew_soon(run.worker, now)
        if job.speculate:
            self._watched[task.group] = None
            self._chores.set_earlier("stragglers", now + STRAGGLER_CHECK_S)
        self._tries[run.attempt] = 1  # The earlier life may have sent it already.
        return self._send_assignment(run.attempt, now)

    def _send_assignment(self, attempt: Attempt, now: float) -> list[Effect]:
        run = self._book.runs[attempt]
        tries = self._tries[attempt] = self._tries.get(attempt, 0) + 1
        wait_s = min(RESEND_MAX_S, RESEND_S * 2 ** min(tries - 1, 8))
        self._resends.set(attempt, now + wait_s)
        assignment = Assignment(
            lease=run.lease,
            attempt=attempt,
            task=self._book.tasks[run.task].task,
            gang=run.gang,
            places=self._places_of(run.gang),
        )
        return [Send(run.worker, assignment)]

    def _places_of(self, gang: tuple[NodeId, ...]) -> tuple[str, ...]:
        """Return where a gang is, by rank; nothing unless all of it is known."""
        places = tuple(self._where(node) for node in gang)
        return places if all(places) else ()

    def _release_superseded(self, task: TaskId) -> list[Effect]:
        record = self._book.tasks[task]
        if task in self._book.group_of(task).seconds:
            return []
        for run in record.live.values():
            self._forget(run)
        return self._let_go(record.live.values())

    # What workers say.

    def on_started(
        self, peer: NodeId, attempt: Attempt, allocation: Allocation | None = None
    ) -> Task | None:
        """Note that an attempt runs; return its task if it is live."""
        run = self._book.runs.get(attempt)
        if run is None or run.worker != peer:
            return None
        run.started = True
        if allocation is not None:
            run.allocation = allocation
        self._resends.drop(attempt)
        if self._holdings.at(peer, run.lease) is not None:
            # Without its lease it is over: this was said before, and came late.
            self._found(run)
        return self._book.tasks[run.task].task

    def on_report(self, peer: NodeId, report: Report, now: float) -> list[Effect]:
        """Take in the end of an attempt; only the first end of a live one counts."""
        acknowledgement = Acknowledgement(attempts=(report.attempt,))
        run = self._book.runs.get(report.attempt)
        effects: list[Effect] = []
        if run is not None and run.worker == peer:
            record = self._book.tasks[run.task]
            job = self._book.jobs[record.task.job].job
            self._charge(job, run, now)
            ran_s = now - run.since
            failures = self._book.failures_of(run.task)
            verdict = judge(
                job, record, run, report.outcome, failures=failures, ran_s=ran_s
            )
            effects += self._execute(verdict, run, now, report)
        lease = report.lease if run is None else run.lease
        holding = self._holdings.at(peer, lease)
        if holding is not None and holding.attempt == report.attempt:
            self._free(holding, gone=report.outcome.kind in LEASE_LOST)
        return [*effects, Send(peer, acknowledgement)]

    def on_refusal(self, peer: NodeId, refusal: Refusal, now: float) -> list[Effect]:
        """Take a worker's no to an assignment."""
        run = self._book.runs.get(refusal.attempt) if refusal.attempt else None
        if run is None or run.worker != peer:
            return []
        record = self._book.tasks[run.task]
        job = self._book.jobs[record.task.job].job
        holding = self._holdings.at(peer, run.lease)
        effects: list[Effect] = []
        if refusal.reason in ("lease-unknown", "lease-ended"):
            verdict = Verdict("again", "the lease ended before it started")
            if refusal.reason == "lease-unknown":
                why = "the worker no longer knows of it"
                ran_s = now - run.since
                verdict = judge_lost(job, record, run, why, over=True, ran_s=ran_s)
            if holding is not None:
                self._holdings.drop(holding)
        else:
            failures = self._book.failures_of(run.task)
            verdict = judge_not_started(failures, refusal.reason)
            if holding is not None:
                effects += self._holdings.release([holding])
        return effects + self._execute(verdict, run, now)

    def on_renewed(self, peer: NodeId, renewed: Renewed, now: float) -> list[Effect]:
        """Compare what the worker says it has of ours with what we think."""
        self._holdings.heard(peer, now)
        effects: list[Effect] = []
        stray: list[LeaseId] = []
        for occupied in renewed.leases:
            holding = self._holdings.at(peer, occupied.lease)
            if holding is None:
                stray.append(occupied.lease)
            elif occupied.attempt is not None:
                self.on_started(peer, occupied.attempt)
            else:
                effects += self._on_found_empty(holding, now)
        for lease in renewed.gone:
            holding = self._holdings.at(peer, lease)
            if holding is not None and holding.state == "committed":
                effects += self._lose(holding, "the worker gave the lease up", now)
        if stray:
            effects.append(Send(peer, Release(leases=tuple(stray))))
        return effects

    def _on_found_empty(self, holding: Holding, now: float) -> list[Effect]:
        """Send a lost attempt again if its worker is back and never started it."""
        run = self._run_on(holding)
        if run is None or not run.lost or run.started:
            return []
        self._found(run)
        return self._send_assignment(run.attempt, now)

    def on_worker_lost(self, worker: NodeId, reason: str, now: float) -> list[Effect]:
        """Give up what has not started at a worker, and doubt what has."""
        effects: list[Effect] = []
        for holding in self._holdings.all_at(worker):
            run = self._run_on(holding)
            if run is None:
                self._holdings.drop(holding)
            elif not run.lost:
                effects += self._lose_run(run, reason, now)
        return effects

    # Stopping.

    def stop_all(self, runs: Iterable[Run], now: float) -> list[Effect]:
        """Stop attempts that are live no longer; their leases are used again."""
        effects: list[Effect] = []
        for run in runs:
            self._forget(run)
            holding = self._holdings.at(run.worker, run.lease)
            if holding is None or holding.attempt != run.attempt:
                continue
            self._stopping[run.attempt] = holding
            effects.append(self._cancel_message(run.attempt, holding))
            self._resends.set(run.attempt, now + RESEND_S)
        return effects

    def _cancel_message(self, attempt: Attempt, holding: Holding) -> Send:
        record = self._book.groups.get(holding.group)
        grace_s = record.group.tasks[0].grace_s if record else 0.0
        cancel = Cancel(attempt=attempt, lease=holding.lease, grace_s=grace_s)
        return Send(holding.worker, cancel)

    def cancel_job(self, job: JobId, reason: str, now: float) -> list[Effect]:
        """End a job, whatever its tasks are doing."""
        record = self._book.jobs[job]
        runs = [
            run
            for task in record.job.tasks()
            for run in self._book.tasks[task.id].live.values()
        ]
        for group in record.job.groups:
            self.changed[group.id] = None
        effects = _record(self._book.cancel(job, reason, now))
        return effects + self.stop_all(runs, now)

    # Deadlines.

    def due(self, now: float) -> list[Effect]:
        """Repeat what was not answered; end waits and doubts whose time is up."""
        effects: list[Effect] = []
        for attempt in self._resends.pop_due(now):
            effects += self._resend(attempt, now)
        for attempt in self._give_ups.pop_due(now):
            if run := self._book.runs.get(attempt):
                effects += self._give_up(run, now)
        for task in self._back_offs.pop_due(now):
            record = self._book.tasks.get(task)
            if record is not None and not record.ended and not record.live:
                self._book.wait_again(task)
                self.changed[record.task.group] = None
        for _ in self._chores.pop_due(now):
            self._look_for_stragglers(now)
        return effects

    def _resend(self, attempt: Attempt, now: float) -> list[Effect]:
        if attempt in self._book.runs:
            return self._send_assignment(attempt, now)
        holding = self._stopping.get(attempt)
        if holding is None or self._holdings.get(holding.lease) is not holding:
            self._stopping.pop(attempt, None)
            return []
        self._resends.set(attempt, now + RESEND_S)
        return [self._cancel_message(attempt, holding)]

    def _give_up(self, run: Run, now: float) -> list[Effect]:
        """End an attempt that stayed lost until it was surely over."""
        record = self._book.tasks[run.task]
        job = self._book.jobs[record.task.job].job
        why, ran_s = "its worker stayed away", now - run.since
        verdict = judge_lost(job, record, run, why, over=True, ran_s=ran_s)
        if run.crash_counted:
            verdict = Verdict("again", why, "crash")
        effects = self._let_go([run])
        return effects + self._execute(verdict, run, now)

    def _look_for_stragglers(self, now: float) -> None:
        for id_ in list(self._watched):
            group = self._book.groups.get(id_)
            if group is None or group.open == 0:
                del self._watched[id_]
                continue
            for task in stragglers(self._book, group, now):
                self._book.want_second(task)
                self.changed[id_] = None
        if self._watched:
            self._chores.set("stragglers", now + STRAGGLER_CHECK_S)

    # Ends.

    def _execute(
        self, verdict: Verdict, run: Run, now: float, report: Report | None = None
    ) -> list[Effect]:
        """Carry out what follows from the end of an attempt, journal first."""
        group = self._book.group_of(run.task)
        self.changed[group.id] = None
        self._forget(run)
        job = self._book.jobs[group.job].job
        if verdict.do == "again":
            if not (
                job.at_most_once and gangs.is_broken(self._book, group, without=run)
            ):
                return self._try_again(verdict, run, group, now)
            # The others have started, and must not start a second time.
            why = f"{verdict.reason}; the gang runs only once"
            return self._finish("failed", why, run, now, report)
        if verdict.do == "done" and group.is_gang and report is not None:
            entries = self._book.exit(run, report.outcome)
            return _record(entries) + self._settle_gang(group, now)
        return self._finish(verdict.do, verdict.reason, run, now, report)

    def _finish(
        self,
        state: Literal["done", "failed", "unknown"],
        reason: str,
        run: Run,
        now: float,
        report: Report | None,
    ) -> list[Effect]:
        """End a task, and with it the gang that cannot do without it."""
        record = self._book.tasks[run.task]
        group = self._book.group_of(run.task)
        siblings = [r for r in record.live.values() if r is not run]
        outcome = report.outcome if report else None
        entries = self._book.finish(
            run.task, state, now, attempt=run.attempt, outcome=outcome, reason=reason
        )
        if group.is_gang:
            siblings += self._book.live_in(group)
            why = f"{run.task} {state}: {reason}"
            entries += gangs.finish(self._book, group, "cancelled", why, now)
        self._note_unblocked(group)
        return _record(entries) + self.stop_all(siblings, now)

    def _try_again(
        self, verdict: Verdict, run: Run, group: GroupRecord, now: float
    ) -> list[Effect]:
        failed = verdict.counts == "failure"
        crashed = verdict.counts == "crash"
        entries = self._book.put_back(
            run, verdict.reason, failed=failed, crashed=crashed
        )
        if failed:
            self._back_off(run.task, now)
        if not group.is_gang:
            return _record(entries)
        if not gangs.is_broken(self._book, group):
            return _record(entries) + self._settle_gang(group, now)
        more, others = self._break_gang(group, f"{run.task} ended: {verdict.reason}")
        return _record(entries + more) + self.stop_all(others, now)

    def _break_gang(
        self, group: GroupRecord, why: str
    ) -> tuple[list[Entry], list[Run]]:
        """Put back all of a gang; return also the attempts that are to be stopped."""
        others = self._book.live_in(group)
        for other in others:
            self._forget(other)
        self.changed[group.id] = None
        return gangs.put_back(self._book, group, why), others

    def _settle_gang(self, group: GroupRecord, now: float) -> list[Effect]:
        """End a gang of which nothing runs any more, or let it start over."""
        lost = self._book.live_in(group)
        once = self._book.jobs[group.job].job.at_most_once
        if any(once or not run.lost for run in lost):
            return []
        if not gangs.is_complete(group):
            return self._start_over(group, now) if group.exited and not lost else []
        why = "not needed: the gang finished without it"
        entries = gangs.finish(self._book, group, "done", why, now)
        self._note_unblocked(group)
        for run in lost:
            self._forget(run)
        return _record(entries) + self._let_go(lost)

    def _start_over(self, group: GroupRecord, now: float) -> list[Effect]:
        """Run a gang anew of which too little has succeeded, if it may run again."""
        if not self._book.jobs[group.job].job.at_most_once:
            entries, _ = self._break_gang(group, "the rest of its gang did not finish")
            return _record(entries)
        why = "the rest of its gang has finished, and runs only once"
        entries = gangs.finish(self._book, group, "failed", why, now)
        self._note_unblocked(group)
        return _record(entries)

    def _note_unblocked(self, group: GroupRecord) -> None:
        if group.open == 0:
            for other in self._book.jobs[group.job].job.groups:
                self.changed[other.id] = None

    def _back_off(self, task: TaskId, now: float) -> None:
        """Let a task that failed wait before it wants a slot again."""
        record = self._book.tasks[task]
        self._book.stop_waiting(task)
        exponent = min(max(0, record.failures - 1), 10)
        wait_s = min(RETRY_MAX_S, RETRY_FIRST_S * 2**exponent)
        self._back_offs.set(task, now + wait_s)

    def _forget(self, run: Run) -> None:
        self._resends.drop(run.attempt)
        self._give_ups.drop(run.attempt)
        self._tries.pop(run.attempt, None)

    def _charge(self, job: Job, run: Run, now: float) -> None:
        profile = self._book.tasks[run.task].task.profiles[run.profile]
        self._usage.charge(job.owner, profile, max(0.0, now - run.since), now)

    # Losing and finding.

    def _lose(self, holding: Holding, reason: str, now: float) -> list[Effect]:
        run = self._run_on(holding)
        self._holdings.drop(holding)
        if run is None or run.lost:
            return []
        return self._lose_run(run, reason, now)

    def _lose_run(self, run: Run, reason: str, now: float) -> list[Effect]:
        """Doubt an attempt: try its task elsewhere, but listen if it comes back."""
        record = self._book.tasks[run.task]
        job = self._book.jobs[record.task.job].job
        group = self._book.group_of(run.task)
        run.lost = True
        self._resends.drop(run.attempt)
        doubt_s = LEASE_S * (1 + DRIFT_MAX) + record.task.grace_s + KILL_S
        self._give_ups.set(run.attempt, now + doubt_s)
        if job.at_most_once:
            return []
        ran_s = now - run.since
        verdict = judge_lost(job, record, run, reason, over=False, ran_s=ran_s)
        if verdict.do != "again":
            return []  # A report may be on its way: nothing fails before it is over.
        if gangs.is_broken(self._book, group):
            return self._let_go([run]) + self._execute(verdict, run, now)
        if verdict.counts == "crash":
            run.crash_counted = True
            record.crashes += 1
        record.reason = reason
        if not any(not other.lost for other in record.live.values()):
            self._book.wait_again(run.task)
            record.state = "waiting"
        self.changed[group.id] = None
        return []

    def _found(self, run: Run) -> None:
        """Take a lost attempt back: it runs on, and its worker did not crash."""
        if not run.lost:
            return
        record = self._book.tasks[run.task]
        run.lost = False
        self._give_ups.drop(run.attempt)
        if run.crash_counted:
            run.crash_counted = False
            record.crashes -= 1
        record.state = "running"
        group = self._book.group_of(run.task)
        if run.task not in group.seconds:
            self._book.stop_waiting(run.task)
            self.changed[group.id] = None

    def _let_go(self, runs: Iterable[Run]) -> list[Effect]:
        """Release the leases of attempts that no longer matter."""
        holdings = [
            holding
            for run in runs
            if (holding := self._holdings.at(run.worker, run.lease)) is not None
            and holding.attempt == run.attempt
        ]
        return self._holdings.release(holdings)

    def _run_on(self, holding: Holding) -> Run | None:
        return self._book.runs.get(holding.attempt) if holding.attempt else None

    def _free(self, holding: Holding, *, gone: bool) -> None:
        if holding.attempt is not None:
            self._stopping.pop(holding.attempt, None)
        if gone:
            self._holdings.drop(holding)
        else:
            self.freed.append(holding)


def shape_of(job: Job, task: Task, profile: int) -> Shape:
    """Return what decides whether a task can use a lease that is already there."""
    return Shape(
        profile=task.profiles[profile],
        driver=task.work.driver,
        owner=job.owner,
        priority=job.priority,
        preemptible=job.preemptible,
        preempt=job.preempt,
        rtt_max_us=None if job.max_rtt_s is None else round(job.max_rtt_s * 1e6),
        policy=job.policy,
        same_leaf=job.same_leaf,
    )


def _record(entries: Sequence[Entry]) -> list[Effect]:
    return [Record(entry) for entry in entries]
