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
from shoal.core.holdings import Holding, Holdings, shape_of
from shoal.core.journal import Entry, Place
from shoal.core.orders import Orders
from shoal.core.stragglers import Stragglers
from shoal.core.timing import (
    DRIFT_MAX,
    KILL_S,
    LEASE_S,
    RETRY_FIRST_S,
    RETRY_MAX_S,
    START_AGAIN_S,
)
from shoal.core.verdicts import (
    Verdict,
    judge,
    judge_lost,
    judge_refused,
    judge_waiting,
)
from shoal.model.ids import Attempt, GroupId, JobId, LeaseId, NodeId, RequestId, TaskId
from shoal.protocol.messages import (
    Acknowledgement,
    Refusal,
    Release,
    Renewed,
    Report,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from shoal.core.jobs import GroupRecord, JobBook, Run
    from shoal.core.verifying import Settled, Verifier
    from shoal.model.job import Job, Task
    from shoal.model.resources import Allocation
    from shoal.policy.queue import Usage

LEASE_LOST: Final = frozenset({"preempted", "lost"})
"""Outcomes after which the worker keeps no lease for us."""


@final
class Dispatcher:
    """Brings tasks to workers and takes in what becomes of them.

    Groups whose need for slots changed are left in `changed`, leases that became
    free in `freed`; the scheduler empties all lists after every event.
    """

    def __init__(
        self,
        node: NodeId,
        book: JobBook,
        holdings: Holdings,
        usage: Usage,
        heap: DeadlineHeap,
        where: Callable[[NodeId], str],
        verifier: Verifier,
    ) -> None:
        """Use `where` to tell the members of a gang how to reach each other."""
        self.changed = verifier.changed
        self.freed: list[Holding] = []
        self.not_started: list[tuple[GroupId, NodeId]] = []  # tasks, and where
        self._verifier = verifier
        self._node = node
        self._book = book
        self._holdings = holdings
        self._usage = usage
        self._sequence = 0
        self._orders = Orders(book, holdings, heap, where)
        self._stragglers = Stragglers(book, heap)
        self._give_ups: Deadlines[Attempt] = Deadlines(heap)
        self._back_offs: Deadlines[TaskId] = Deadlines(heap)

    # Starting.

    def assign(
        self, pairs: Sequence[tuple[TaskId, Holding]], now: float
    ) -> list[Effect]:
        """Start tasks on committed leases; a gang is given as a whole.

        A task on a lease that has one already waits for the end of that.
        """
        effects: list[Effect] = []
        places: list[Place] = []
        for task, holding in pairs:
            effects += self._release_superseded(task)
            self._sequence += 1
            attempt = Attempt(self._node, self._book.generation, self._sequence)
            holding.line.append(attempt)
            at, lease = holding.worker, holding.lease
            owner = self._verifier.owner_at(at, task, now)
            places.append(Place(task, attempt, at, lease, holding.profile, owner))
        group = self._book.group_of(pairs[0][0])
        effects += _record(self._book.assign(tuple(places), now))
        for (_, holding), place in zip(pairs, places, strict=True):
            self._book.runs[place.attempt].queued = place.attempt != holding.attempt
            self._holdings.lines.changed(holding, now)
            effects += self._orders.run(self._book.runs[place.attempt], now)
        if group.group.verify is not None:
            for task, _ in pairs:
                self._verifier.refresh(task, now)
        elif self._book.jobs[group.job].job.speculate:
            self._stragglers.watch(group.id, now)
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
        for run in sorted(self._book.runs.values(), key=lambda run: run.attempt):
            effects += self._adopt(run, now)
        return effects + self._settle(self._verifier.recover(now), now)

    def _adopt(self, run: Run, now: float) -> list[Effect]:
        """Go on with an attempt of an earlier life, if its worker still has it."""
        if holding := self._holdings.get(run.lease):
            return self._adopt_behind(run, holding, now)
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
            line=[run.attempt],
            since=now,
        )
        self._holdings.add(holding, now)
        self._holdings.renew_soon(run.worker, now)
        if job.speculate and not run.owner:
            self._stragglers.watch(task.group, now)
        return self._orders.run_again(run, now)

    def _adopt_behind(self, run: Run, holding: Holding, now: float) -> list[Effect]:
        """Go on with an attempt that was sent ahead to a lease in use."""
        if holding.worker != run.worker or run.gang:
            # Its worker gave the lease up and out again, which no honest one does.
            return self._lose_run(run, "its lease went to another task", now)
        run.queued = True
        holding.line.append(run.attempt)
        self._holdings.lines.changed(holding, now)
        return self._orders.run_again(run, now)

    def _release_superseded(self, task: TaskId) -> list[Effect]:
        record = self._book.tasks[task]
        if task in self._book.group_of(task).seconds:
            return []
        for run in record.live.values():
            self._forget(run)
        return self._holdings.release_of(record.live.values())

    # What workers say.

    def on_started(
        self,
        peer: NodeId,
        attempt: Attempt,
        now: float,
        allocation: Allocation | None = None,
    ) -> Task | None:
        """Note that an attempt runs; return its task if it is live."""
        run = self._book.runs.get(attempt)
        if run is None or run.worker != peer:
            return None
        run.started = True
        run.to_front(now)
        if allocation is not None:
            run.allocation = allocation
        self._orders.started(attempt)
        if self._holdings.at(peer, run.lease) is not None:
            # Without its lease it is over: this was said before, and came late.
            self._found(run, now)
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
        if holding is not None and report.attempt in holding.line:
            effects += self._step(holding, report, run, now)
        return [*effects, Send(peer, acknowledgement)]

    def _step(
        self, holding: Holding, report: Report, run: Run | None, now: float
    ) -> list[Effect]:
        """Let the next in line have a lease when an attempt on it is over."""
        self._orders.stopped(report.attempt)
        was_first = holding.attempt == report.attempt
        holding.line.remove(report.attempt)
        if was_first and report.outcome.kind in LEASE_LOST:
            effects = self._send_back(holding, "its lease ended before it started", now)
            self._holdings.drop(holding)
            return effects
        if was_first and run is not None and report.outcome.kind == "exited":
            self._holdings.lines.measured(holding, now - run.since)
        if not holding.line:
            self.freed.append(holding)
        elif was_first:
            self._promote(holding, report, run, now)
        self._holdings.lines.changed(holding, now)
        return []

    def _promote(
        self, holding: Holding, report: Report, ended: Run | None, now: float
    ) -> None:
        """Note that what waited first at a lease runs now, or soon."""
        run = self._run_on(holding)
        if run is None:
            return
        run.to_front(now)
        if report.next == run.attempt:
            allocation = None if ended is None else ended.allocation
            self.on_started(holding.worker, run.attempt, now, allocation)

    def _send_back(
        self, holding: Holding, reason: str, now: float, *, doubt: bool = False
    ) -> list[Effect]:
        """Let all that waits at a lease wait for another one instead."""
        effects: list[Effect] = []
        for run in self._book.queued(holding.line):
            effects += self._execute(judge_waiting(reason, doubt=doubt), run, now)
        return effects

    def on_refusal(self, peer: NodeId, refusal: Refusal, now: float) -> list[Effect]:
        """Take a worker's no to an assignment."""
        run = self._book.runs.get(refusal.attempt) if refusal.attempt else None
        if run is None or run.worker != peer:
            return []
        record = self._book.tasks[run.task]
        job = self._book.jobs[record.task.job].job
        holding = self._holdings.at(peer, run.lease)
        doubt = refusal.reason == "lease-unknown"
        effects: list[Effect] = []
        if run.queued:
            if holding is not None and run.attempt in holding.line:
                holding.line.remove(run.attempt)
                self._holdings.lines.close(holding)  # A no is no reason to ask again.
            verdict = judge_waiting(refusal.reason, doubt=doubt)
            return self._execute(verdict, run, now)
        failures, ran_s = self._book.failures_of(run.task), now - run.since
        verdict = judge_refused(
            job, record, run, refusal.reason, failures=failures, ran_s=ran_s
        )
        if holding is not None:
            effects += self._send_back(holding, verdict.reason, now, doubt=doubt)
            if refusal.reason in ("lease-unknown", "lease-ended"):
                self._holdings.drop(holding)
            else:
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
                self.on_started(peer, occupied.attempt, now)
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
        self._found(run, now)
        return self._orders.run(run, now)

    def on_worker_lost(self, worker: NodeId, reason: str, now: float) -> list[Effect]:
        """Give up what has not started at a worker, and doubt what has."""
        effects: list[Effect] = []
        for holding in self._holdings.all_at(worker):
            effects += self._call_off(holding, reason, now)
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
            if holding is None or run.attempt not in holding.line:
                continue
            effects += self._orders.stop(run.attempt, holding, now)
        return effects

    def _call_off(self, holding: Holding, reason: str, now: float) -> list[Effect]:
        """Send back what waits at a worker that is silent, and stop it there."""
        waiting = self._book.queued(holding.line)
        self._holdings.lines.close(holding)
        effects = self._send_back(holding, reason, now, doubt=True)
        return effects + self.stop_all(waiting, now)

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
            if group.verify is not None:
                self._verifier.forget(task.id for task in group.tasks)
        effects = _record(self._book.cancel(job, reason, now))
        return effects + self.stop_all(runs, now)

    # Deadlines.

    def due(self, now: float) -> list[Effect]:
        """Repeat what was not answered; end waits and doubts whose time is up."""
        effects = self._orders.due(now)
        for attempt in self._give_ups.pop_due(now):
            if run := self._book.runs.get(attempt):
                effects += self._give_up(run, now)
        for task in self._back_offs.pop_due(now):
            record = self._book.tasks.get(task)
            if record is not None and not record.ended and not record.live:
                self._book.wait_again(task)
                self._verifier.refresh(task, now)
                self.changed[record.task.group] = None
        for holding in self._holdings.lines.overdue(now):
            effects += self._orders.recall(holding)
        for group in self._stragglers.due(now):
            self.changed[group] = None
        return effects

    def _give_up(self, run: Run, now: float) -> list[Effect]:
        """End an attempt that stayed lost until it was surely over."""
        record = self._book.tasks[run.task]
        job = self._book.jobs[record.task.job].job
        why, ran_s = "its worker stayed away", now - run.since
        verdict = judge_lost(job, record, run, why, over=True, ran_s=ran_s)
        if run.crash_counted:
            verdict = Verdict("again", why, "crash")
        effects = self._holdings.release_of([run])
        return effects + self._execute(verdict, run, now)

    # Ends.

    def _execute(
        self, verdict: Verdict, run: Run, now: float, report: Report | None = None
    ) -> list[Effect]:
        """Carry out what follows from the end of an attempt, journal first."""
        group = self._book.group_of(run.task)
        if verdict.do != "done" or group.is_gang or run.task in group.waiting:
            self.changed[group.id] = None  # Else it wants as many slots as before.
        if verdict.soon:
            self.not_started.append((group.id, run.worker))
        self._forget(run)
        job = self._book.jobs[group.job].job
        if report is not None and self._verifier.takes(group, report.outcome):
            return self._settle(self._verifier.on_answer(run, report.outcome, now), now)
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

    def _settle(self, settled: Settled, now: float) -> list[Effect]:
        """Carry out what follows from an answer of a verified task, journal first."""
        for task in settled.failed:
            self._back_off(task, now, RETRY_FIRST_S)
        return _record(settled.entries) + self.stop_all(settled.over, now)

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
            self._back_off(
                run.task, now, START_AGAIN_S if verdict.soon else RETRY_FIRST_S
            )
        else:
            self._verifier.refresh(run.task, now)
        if failed or crashed:
            self._verifier.let_down(run, now)
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
        return _record(entries) + self._holdings.release_of(lost)

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

    def _back_off(self, task: TaskId, now: float, first_s: float) -> None:
        """Let a task that failed wait before it wants a slot again."""
        record = self._book.tasks[task]
        self._book.stop_waiting(task)
        exponent = min(max(0, record.failures - 1), 10)
        wait_s = min(RETRY_MAX_S, first_s * 2**exponent)
        self._back_offs.set(task, now + wait_s)

    def _forget(self, run: Run) -> None:
        self._orders.forget(run.attempt)
        self._give_ups.drop(run.attempt)

    def _charge(self, job: Job, run: Run, now: float) -> None:
        profile = self._book.tasks[run.task].task.profiles[run.profile]
        self._usage.charge(job.owner, profile, max(0.0, now - run.since), now)

    # Losing and finding.

    def _lose(self, holding: Holding, reason: str, now: float) -> list[Effect]:
        run = self._run_on(holding)
        effects = self._send_back(holding, reason, now, doubt=True)
        self._holdings.drop(holding)
        if run is None or run.lost:
            return effects
        return effects + self._lose_run(run, reason, now)

    def _lose_run(self, run: Run, reason: str, now: float) -> list[Effect]:
        """Doubt an attempt: try its task elsewhere, but listen if it comes back."""
        record = self._book.tasks[run.task]
        job = self._book.jobs[record.task.job].job
        group = self._book.group_of(run.task)
        run.lost = True
        self._orders.started(run.attempt)
        doubt_s = LEASE_S * (1 + DRIFT_MAX) + record.task.grace_s + KILL_S
        self._give_ups.set(run.attempt, now + doubt_s)
        if job.at_most_once:
            return []
        ran_s = now - run.since
        verdict = judge_lost(job, record, run, reason, over=False, ran_s=ran_s)
        if verdict.do != "again":
            return []  # A report may be on its way: nothing fails before it is over.
        if gangs.is_broken(self._book, group):
            return self._holdings.release_of([run]) + self._execute(verdict, run, now)
        if verdict.counts == "crash":
            run.crash_counted = True
            record.crashes += 1
        record.reason = reason
        if not any(not other.lost for other in record.live.values()):
            self._book.wait_again(run.task)
            record.state = "waiting"
        self._verifier.refresh(run.task, now)
        self.changed[group.id] = None
        return []

    def _found(self, run: Run, now: float) -> None:
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
        self._verifier.refresh(run.task, now)

    def _run_on(self, holding: Holding) -> Run | None:
        return self._book.runs.get(holding.attempt) if holding.attempt else None


def _record(entries: Sequence[Entry]) -> list[Effect]:
    return [Record(entry) for entry in entries]
