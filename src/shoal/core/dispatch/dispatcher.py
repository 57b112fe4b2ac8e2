"""Running tasks on committed leases: assignments, their ends, and lost workers.

Theory of operation. An attempt is live from its assignment until its end is journalled
or a later attempt supersedes it. Only live attempts change anything; `run_states` has
their states. The dispatcher takes what workers say of them:

    Started, Progress, ...   the run has started; if it was lost, it is found
    Report                   the run is over: `verdicts` says what follows for its task
    Refusal                  the worker will not run it
    Renewed                  what the worker has of ours, and which leases are gone

A lost run stays live while its worker may come back with it, but its task already waits
for another slot. When the lease has surely expired and the task been killed, the run is
given up. A task that runs at most once is never tried again after it may have started.

A gang stands and falls together: when too few of it are left, the others are stopped
and all wait again (`gangs`). An elastic one goes on without members that failed. When
an attempt ends, the next in the line of its lease moves up; an empty line is told as
`Freed`. A failed task rests before it wants a slot again, longer each time.

Assignments and ends are journal entries, returned before any message that depends on
them. Resends, rests and doubts are not durable: `recover` begins them anew.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, final

from shoal.core.deadlines import DeadlineHeap, Deadlines
from shoal.core.dispatch import gangs
from shoal.core.dispatch.assignment_sender import AssignmentSender
from shoal.core.dispatch.early_stopping import EarlyStopping
from shoal.core.dispatch.stragglers import Stragglers
from shoal.core.dispatch.verdicts import (
    CRASH_SPAN_S,
    Verdict,
    judge,
    judge_lost,
    judge_refused,
    judge_waiting,
)
from shoal.core.durability.journal import AttemptPlace, Entry
from shoal.core.events import DoubtOutput, Effect, Record, Send
from shoal.core.housekeeping.past_needs import need_seen
from shoal.core.negotiation.held_leases import (
    HeldLease,
    HeldLeases,
    LeaseClaim,
    shape_of,
)
from shoal.core.scheduling.notices import (
    Consequence,
    Freed,
    NeedChanged,
    NotStarted,
    RoomChanged,
)
from shoal.core.timing import (
    DRIFT_MAX,
    ENDS_TOGETHER_S,
    KEPT_LEASE_S,
    KILL_S,
    LEASE_S,
    RETRY,
    START_AGAIN,
)
from shoal.model.ids import Attempt, JobId, LeaseId, NodeId, RequestId, TaskId
from shoal.protocol.messages import (
    Acknowledgement,
    Progress,
    Refusal,
    Release,
    Renewed,
    Report,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from shoal.core.artifacts.provisions import Provisions
    from shoal.core.dispatch.run_states import RunEvent, TaskRun
    from shoal.core.records.records import GroupRecord
    from shoal.core.scheduling.job_book import JobBook
    from shoal.core.verification.verifier import Settled, Verifier
    from shoal.model.backoff import Backoff
    from shoal.model.job import Job, Task
    from shoal.model.resources import Allocation
    from shoal.policy.queueing.queue import Usage

LEASE_LOST: Final = frozenset({"preempted", "lost"})
"""Outcomes after which the lease is gone, too."""


@final
class Dispatcher:
    """Brings tasks to workers, and deals with what becomes of them."""

    def __init__(
        self,
        node: NodeId,
        book: JobBook,
        holdings: HeldLeases,
        usage: Usage,
        heap: DeadlineHeap,
        where: Callable[[NodeId], str],
        verifier: Verifier,
        provisions: Provisions,
    ) -> None:
        """Ask `where` for the addresses that the members of a gang are told."""
        self._verifier = verifier
        self._node = node
        self._book = book
        self._holdings = holdings
        self._usage = usage
        self._sequence = 0
        self._sender = AssignmentSender(book, holdings, heap, where, provisions)
        self._stragglers = Stragglers(book, heap)
        self._early_stopping = EarlyStopping(book)
        self._give_ups: Deadlines[Attempt] = Deadlines(heap)
        self._back_offs: Deadlines[TaskId] = Deadlines(heap)

    # Starting.

    def assign(
        self, pairs: Sequence[tuple[TaskId, HeldLease]], now: float
    ) -> list[Effect]:
        """Start tasks of one group on committed leases; a gang is given as a whole.

        On a lease that is in use a task waits for the one before it. The caller knows
        that the group's need has changed: no notice says so.
        """
        effects: list[Effect] = []
        places: list[AttemptPlace] = []
        for task, holding in pairs:
            effects += self._release_superseded(task)
            self._sequence += 1
            attempt = Attempt(self._node, self._book.generation, self._sequence)
            holding.line.append(attempt)
            at, lease = holding.worker, holding.lease
            owner = self._verifier.owner_at(at, task, now)
            places.append(
                AttemptPlace(task, attempt, at, lease, holding.profile, owner)
            )
        group = self._book.group_of(pairs[0][0])
        effects += _record(self._book.assign(tuple(places), now))
        for (_, holding), place in zip(pairs, places, strict=True):
            run = self._book.runs[place.attempt]
            if place.attempt != holding.attempt:
                run.move("queue", now)
            self._holdings.prefetch.changed(holding, now)
            effects += self._sender.run(run, now)
        if group.group.verify is not None:
            for task, _ in pairs:
                self._verifier.refresh(task, now)
        elif self._book.jobs[group.job].job.speculate:
            self._stragglers.watch(group.id, now)
        return effects

    def recover(self, now: float) -> list[Consequence]:
        """Go on with the attempts of an earlier life.

        It may have died halfway through ending a gang or putting it back: do the rest.
        """
        follows = self._mend_gangs(list(self._book.groups.values()), now)
        for run in sorted(self._book.runs.values(), key=lambda run: run.attempt):
            follows += self._adopt(run, now)
        follows += self._settle(self._verifier.recover(now), now)
        return [*follows, *(NeedChanged(group) for group in self._book.groups)]

    def _mend_gangs(
        self, groups: Iterable[GroupRecord], now: float
    ) -> list[Consequence]:
        """Do the rest of what ended or broke gangs, if that was begun."""
        follows: list[Consequence] = []
        for group in groups:
            if group.open == 0 or not group.is_gang:
                continue
            follows += _record(gangs.finish_begun(self._book, group, now))
            if gangs.is_broken(self._book, group):
                entries, _ = self._break_gang(group, "the scheduler restarted")
                follows += _record(entries)
            else:
                follows += self._settle_gang(group, now)
        return follows

    def inherit(self, job: JobId, now: float) -> list[Consequence]:
        """Go on with the attempts of another scheduler, whose job this one took up.

        They get names of our own. Their workers are told, and say what they have.
        """
        record = self._book.jobs[job]
        groups = [self._book.groups[group.id] for group in record.job.groups]
        follows = self._mend_gangs(groups, now)
        runs = [run for group in groups for run in self._book.live_in(group)]
        names: dict[Attempt, Attempt] = {}
        for run in runs:
            self._sequence += 1
            mine = Attempt(self._node, self._book.generation, self._sequence)
            names[run.attempt] = mine
        follows += _record(self._book.adopt(job, names))
        was = {mine: theirs for theirs, mine in names.items()}
        for run in runs:
            if self._holdings.get(run.lease) is not None:
                follows += self._lose_run(run, "its lease went to another task", now)
                continue
            claim = LeaseClaim(job, record.term, was[run.attempt])
            self._hold_again(run, now, claim)
        return [*follows, *(NeedChanged(group.id) for group in groups)]

    def release(self, job: JobId) -> list[Consequence]:
        """Forget the attempts of a job that another scheduler has."""
        record = self._book.jobs[job]
        for group in record.job.groups:
            for run in self._book.live_in(self._book.groups[group.id]):
                self._forget(run)
                if holding := self._holdings.at(run.worker, run.lease):
                    self._holdings.drop(holding)
            for each in self._book.records_in(self._book.groups[group.id]):
                self._back_offs.drop(each.task.id)
        self._book.cede(job)
        return [NeedChanged(group.id) for group in record.job.groups]

    def _adopt(self, run: TaskRun, now: float) -> list[Consequence]:
        """Go on with an attempt of an earlier life, on the lease it had."""
        if holding := self._holdings.get(run.lease):
            return self._adopt_behind(run, holding, now)
        self._hold_again(run, now)
        return [*self._sender.run_again(run, now)]

    def _hold_again(
        self, run: TaskRun, now: float, claim: LeaseClaim | None = None
    ) -> None:
        """Hold the lease of an attempt that an earlier life or scheduler began."""
        task = self._book.tasks[run.task].task
        job = self._book.jobs[task.job].job
        holding = HeldLease(
            lease=run.lease,
            worker=run.worker,
            request=RequestId(""),
            group=task.group,
            shape=shape_of(job, task, run.profile),
            profile=run.profile,
            state="committed",
            line=[run.attempt],
            since=now,
            claim=claim,
        )
        self._holdings.add(holding, now)
        self._holdings.renew_soon(run.worker, now)
        if job.speculate and not run.owner:
            self._stragglers.watch(task.group, now)

    def _adopt_behind(
        self, run: TaskRun, holding: HeldLease, now: float
    ) -> list[Consequence]:
        """Go on with an attempt whose lease another one has already."""
        if holding.worker != run.worker or run.gang:
            # Its worker gave the lease away twice, as no honest one does.
            return self._lose_run(run, "its lease went to another task", now)
        run.move("queue", now)
        holding.line.append(run.attempt)
        self._holdings.prefetch.changed(holding, now)
        return [*self._sender.run_again(run, now)]

    def _release_superseded(self, task: TaskId) -> list[Effect]:
        record = self._book.tasks[task]
        if task in self._book.group_of(task).seconds:
            return []
        for run in record.live.values():
            self._forget(run)
        return self._holdings.release_of(record.live.values())

    # What workers say.

    def task_of(self, peer: NodeId, attempt: Attempt) -> Task | None:
        """Return the task of an attempt, if it is live at this worker."""
        run = self._book.runs.get(attempt)
        live = run is not None and run.worker == peer
        return self._book.tasks[run.task].task if run and live else None

    def on_started(
        self,
        peer: NodeId,
        attempt: Attempt,
        now: float,
        allocation: Allocation | None = None,
    ) -> list[Consequence]:
        """Note that an attempt has started, if it is live."""
        run = self._book.runs.get(attempt)
        if run is None or run.worker != peer:
            return []
        if allocation is not None:
            run.allocation = allocation
        self._sender.started(attempt)
        # Without its lease it is over: this message came late.
        held = self._holdings.at(peer, run.lease) is not None
        return self._move(run, "start" if held else "hear", now)

    def on_report(self, peer: NodeId, report: Report, now: float) -> list[Consequence]:
        """Take the end of an attempt; only the first report of a live one counts."""
        acknowledgement = Acknowledgement(attempts=(report.attempt,), job=report.job)
        run = self._book.runs.get(report.attempt)
        follows: list[Consequence] = []
        if run is not None and run.worker == peer:
            record = self._book.tasks[run.task]
            job = self._book.jobs[record.task.job].job
            self._charge(job, run, now)
            ran_s = self._span(run, now)
            failures = self._book.failures_of(run.task)
            verdict = judge(
                job, record, run, report.outcome, failures=failures, ran_s=ran_s
            )
            if verdict.do == "done":
                group = self._book.group_of(run.task).group
                follows += need_seen(group, job.owner, peer, report.outcome)
            follows += self._execute(verdict, run, now, report)
        lease = report.lease if run is None else run.lease
        holding = self._holdings.at(peer, lease)
        if holding is not None and report.attempt in holding.line:
            follows += self._step(holding, report, run, now)
        return [*follows, Send(peer, acknowledgement)]

    def _step(
        self, holding: HeldLease, report: Report, run: TaskRun | None, now: float
    ) -> list[Consequence]:
        """Move the line of a lease up when an attempt on it is over."""
        self._sender.stopped(report.attempt)
        was_first = holding.attempt == report.attempt
        holding.line.remove(report.attempt)
        if was_first and report.outcome.kind in LEASE_LOST:
            why = "its lease ended before it started"
            sent_back = self._send_back(holding, why, now)
            self._holdings.drop(holding)
            return sent_back
        if was_first and run is not None and report.outcome.kind == "exited":
            self._holdings.prefetch.measured(holding, now - run.since)
        follows: list[Consequence] = []
        if not holding.line:
            follows.append(Freed(holding))
        elif was_first:
            follows += self._promote(holding, report, run, now)
        if self._holdings.prefetch.changed(holding, now):
            follows.append(RoomChanged())
        return follows

    def _promote(
        self, holding: HeldLease, report: Report, ended: TaskRun | None, now: float
    ) -> list[Consequence]:
        """Note that the next attempt in line is at the front now, or has started."""
        run = self._run_on(holding)
        if run is None:
            return []
        run.move("front", now)
        if report.next != run.attempt:
            return []
        allocation = None if ended is None else ended.allocation
        return self.on_started(holding.worker, run.attempt, now, allocation)

    def _send_back(
        self,
        holding: HeldLease,
        reason: str,
        now: float,
        *,
        doubt: bool = False,
        but: TaskRun | None = None,
    ) -> list[Consequence]:
        """Put back the tasks that are queued at a lease, apart from one.

        While the report of the first is on its way, a later one may have started. It
        is lost with the lease.
        """
        follows: list[Consequence] = []
        for run in map(self._book.runs.get, tuple(holding.line)):
            if run is None or run is but or run.lost:
                continue
            if run.queued:
                follows += self._execute(judge_waiting(reason, doubt=doubt), run, now)
            else:
                follows += self._lose_run(run, reason, now)
        return follows

    def on_refusal(
        self, peer: NodeId, refusal: Refusal, now: float
    ) -> list[Consequence]:
        """Take the refusal of an assignment."""
        run = self._book.runs.get(refusal.attempt) if refusal.attempt else None
        if run is None or run.worker != peer:
            return []
        record = self._book.tasks[run.task]
        job = self._book.jobs[record.task.job].job
        holding = self._holdings.at(peer, run.lease)
        doubt = refusal.reason == "lease-unknown"
        if run.queued:
            if holding is not None and run.attempt in holding.line:
                holding.line.remove(run.attempt)
                self._holdings.prefetch.close(holding)  # One refusal is enough.
            verdict = judge_waiting(refusal.reason, doubt=doubt)
            return self._execute(verdict, run, now)
        failures, ran_s = self._book.failures_of(run.task), self._span(run, now)
        verdict = judge_refused(
            job, record, run, refusal.reason, failures=failures, ran_s=ran_s
        )
        follows: list[Consequence] = []
        if holding is not None:
            why = verdict.reason
            follows += self._send_back(holding, why, now, doubt=doubt, but=run)
            if refusal.reason in ("lease-unknown", "lease-ended"):
                self._holdings.drop(holding)
            else:
                follows += self._holdings.release([holding])
        return follows + self._execute(verdict, run, now)

    def on_renewed(
        self, peer: NodeId, renewed: Renewed, now: float
    ) -> list[Consequence]:
        """Compare what a worker holds of ours with what we think it holds."""
        self._holdings.heard(peer, now)
        follows: list[Consequence] = []
        stray: list[LeaseId] = []
        for occupied in renewed.leases:
            holding = self._holdings.at(peer, occupied.lease)
            if holding is None:
                stray.append(occupied.lease)
            elif occupied.attempt is not None:
                holding.claim = None
                follows += self.on_started(peer, occupied.attempt, now)
            else:
                follows += self._on_found_empty(holding, now)
        for lease in renewed.gone:
            holding = self._holdings.at(peer, lease)
            if holding is not None and holding.state == "committed":
                follows += self._lose(holding, "the worker gave the lease up", now)
        if stray:
            follows.append(Send(peer, Release(leases=tuple(stray))))
        return follows

    def _on_found_empty(self, holding: HeldLease, now: float) -> list[Consequence]:
        """Send a lost attempt again if its worker is back and never got it."""
        run = self._run_on(holding)
        if run is None or not run.may("return"):
            return []
        return [*self._move(run, "return", now), *self._sender.run(run, now)]

    def on_worker_lost(
        self, worker: NodeId, reason: str, now: float
    ) -> list[Consequence]:
        """Put back what is queued at a worker, and take the rest for lost."""
        follows: list[Consequence] = []
        for holding in self._holdings.all_at(worker):
            follows += self._call_off(holding, reason, now)
            run = self._run_on(holding)
            if run is None:
                self._holdings.drop(holding)
            elif not run.lost:
                follows += self._lose_run(run, reason, now)
        return follows

    # Stopping.

    def stop_all(self, runs: Iterable[TaskRun], now: float) -> list[Effect]:
        """Stop attempts that are no longer live; their leases stay ours."""
        effects: list[Effect] = []
        for run in runs:
            self._forget(run)
            holding = self._holdings.at(run.worker, run.lease)
            if holding is None or run.attempt not in holding.line:
                continue
            effects += self._sender.stop(run.attempt, holding, now)
        return effects

    def _call_off(
        self, holding: HeldLease, reason: str, now: float
    ) -> list[Consequence]:
        """Put back what is queued at a lost worker's lease, and cancel it there."""
        waiting = self._book.queued(holding.line)
        self._holdings.prefetch.close(holding)
        first = self._run_on(holding)
        follows = self._send_back(holding, reason, now, doubt=True, but=first)
        return [*follows, *self.stop_all(waiting, now)]

    def on_progress(self, progress: Progress, now: float) -> list[Consequence]:
        """End a task for good that is worse than others of its sweep."""
        run = self._book.runs.get(progress.attempt)
        reason = "" if run is None else self._early_stopping.on_progress(run, progress)
        if run is None or not reason:
            return []
        group = self._book.group_of(run.task)
        runs = list(self._book.tasks[run.task].live.values())
        follows = _record(self._book.finish(run.task, "done", now, reason=reason))
        stopped = self.stop_all(runs, now)
        return [*follows, *stopped, NeedChanged(group.id), *self._unblocked(group)]

    def cancel_job(self, job: JobId, reason: str, now: float) -> list[Consequence]:
        """Cancel a job, and stop its attempts."""
        record = self._book.jobs[job]
        groups = (self._book.groups[group.id] for group in record.job.groups)
        runs = [run for group in groups for run in self._book.live_in(group)]
        for group in record.job.groups:
            if group.verify is not None:
                self._verifier.forget(task.id for task in group.tasks)
        follows = _record(self._book.cancel(job, reason, now))
        follows += self.stop_all(runs, now)
        return [*follows, *(NeedChanged(group.id) for group in record.job.groups)]

    def cancel_task(self, task: TaskId, reason: str, now: float) -> list[Consequence]:
        """Cancel one task of a job, and stop its attempts; it is in no gang."""
        record, group = self._book.tasks[task], self._book.group_of(task)
        if record.ended:
            return []
        runs = list(record.live.values())
        if group.group.verify is not None:
            self._verifier.forget([task])
        why = reason or "cancelled"
        follows = _record(self._book.finish(task, "cancelled", now, reason=why))
        stopped = self.stop_all(runs, now)
        return [*follows, *stopped, NeedChanged(group.id), *self._unblocked(group)]

    # Deadlines.

    def due(self, now: float) -> list[Consequence]:
        """Repeat what was not answered; end rests and doubts whose time is up."""
        follows: list[Consequence] = [*self._sender.due(now)]
        for attempt in self._give_ups.pop_due(now):
            if run := self._book.runs.get(attempt):
                follows += self._give_up(run, now)
        for task in self._back_offs.pop_due(now):
            record = self._book.tasks.get(task)
            if record is not None and not record.ended and not record.live:
                self._book.wait_again(task)
                self._verifier.refresh(task, now)
                follows.append(NeedChanged(record.task.group))
        for holding in self._holdings.prefetch.overdue(now):
            follows += self._sender.recall(holding)
        follows += [NeedChanged(group) for group in self._stragglers.due(now)]
        return follows

    def _give_up(self, run: TaskRun, now: float) -> list[Consequence]:
        """End a lost attempt, now that nothing of it can be running."""
        record = self._book.tasks[run.task]
        job = self._book.jobs[record.task.job].job
        why, ran_s = "its worker stayed away", now - run.since
        verdict = judge_lost(job, record, run, why, over=True, ran_s=ran_s)
        if run.blamed:
            verdict = Verdict("again", why, "crash")
        released = self._holdings.release_of([run])
        return [*released, *self._execute(verdict, run, now)]

    # Ends.

    def _execute(
        self, verdict: Verdict, run: TaskRun, now: float, report: Report | None = None
    ) -> list[Consequence]:
        """Carry out the verdict on an attempt, journal first."""
        group = self._book.group_of(run.task)
        follows: list[Consequence] = []
        if verdict.soon:
            follows.append(NotStarted(group.id, run.worker))
        if verdict.do != "done" or group.is_gang or run.task in group.waiting:
            # Otherwise the group needs as many slots as before.
            follows.append(NeedChanged(group.id))
        self._forget(run)
        return follows + self._end(verdict, run, group, now, report)

    def _end(
        self,
        verdict: Verdict,
        run: TaskRun,
        group: GroupRecord,
        now: float,
        report: Report | None,
    ) -> list[Consequence]:
        """End the task of an attempt, or let it run again."""
        job = self._book.jobs[group.job].job
        if report is not None and self._verifier.takes(group, report.outcome):
            return self._settle(self._verifier.on_answer(run, report.outcome, now), now)
        if verdict.do == "again":
            if not (
                job.at_most_once and gangs.is_broken(self._book, group, without=run)
            ):
                return self._try_again(verdict, run, group, now)
            # Its siblings have started, and must not start twice.
            why = f"{verdict.reason}; the gang runs only once"
            return self._finish("failed", why, run, now, report)
        if verdict.do == "done" and group.is_gang and report is not None:
            entries = self._book.exit(run, report.outcome)
            return [*_record(entries), *self._settle_gang(group, now)]
        return self._finish(verdict.do, verdict.reason, run, now, report)

    def _settle(self, settled: Settled, now: float) -> list[Consequence]:
        """Carry out what the verifier decided, journal first."""
        for task in settled.failed:
            self._back_off(task, now, RETRY)
        stopped = self.stop_all(settled.over, now)
        return [*_record(settled.entries), *stopped, *settled.changed]

    def _finish(
        self,
        state: Literal["done", "failed", "unknown"],
        reason: str,
        run: TaskRun,
        now: float,
        report: Report | None,
    ) -> list[Consequence]:
        """End a task; if it is one of a gang that cannot spare it, end the gang."""
        record = self._book.tasks[run.task]
        group = self._book.group_of(run.task)
        siblings = [r for r in record.live.values() if r is not run]
        outcome = report.outcome if report else None
        entries = self._book.finish(
            run.task, state, now, attempt=run.attempt, outcome=outcome, reason=reason
        )
        why = f"{run.task} {state}: {reason}"
        if group.is_gang and state == "failed" and gangs.can_spare(self._book, group):
            stopped = self.stop_all(siblings, now)
            return [*_record(entries), *stopped, *self._go_on(group, why, now)]
        if group.is_gang:
            siblings += self._book.live_in(group)
            entries += gangs.finish(self._book, group, "cancelled", why, now)
        stopped = self.stop_all(siblings, now)
        follows = _record(entries)
        if report is not None and report.next is not None and len(entries) == 1:
            # The next one runs already, so nobody waits for this.
            follows = [Record(entries[0], within_s=ENDS_TOGETHER_S)]
        return [*follows, *stopped, *self._unblocked(group)]

    def _try_again(
        self, verdict: Verdict, run: TaskRun, group: GroupRecord, now: float
    ) -> list[Consequence]:
        failed = verdict.counts == "failure"
        crashed = verdict.counts == "crash"
        entries = self._book.put_back(
            run, verdict.reason, failed=failed, crashed=crashed
        )
        if failed:
            pauses = START_AGAIN if verdict.soon else RETRY
            is_fresh = now - run.since >= pauses.most_s  # What it ran for, it earned.
            self._back_off(run.task, now, pauses, is_fresh=is_fresh)
        else:
            self._verifier.refresh(run.task, now)
        if failed or crashed:
            self._verifier.let_down(run, now)
        if not group.is_gang:
            return [*_record(entries)]
        why = f"{run.task} ended: {verdict.reason}"
        return [*_record(entries), *self._go_on(group, why, now)]

    def _go_on(self, group: GroupRecord, why: str, now: float) -> list[Consequence]:
        """Let a gang go on without a member, or wait again if too few are left."""
        if not gangs.is_broken(self._book, group):
            return self._settle_gang(group, now)
        entries, others = self._break_gang(group, why)
        return [*_record(entries), *self.stop_all(others, now)]

    def call_away(self, group: GroupRecord, why: str, now: float) -> list[Effect]:
        """Stop a running gang, which waits again: it has leases in a better place."""
        entries, runs = self._break_gang(group, why, moved=True)
        return [*_record(entries), *self.stop_all(runs, now)]

    def _break_gang(
        self, group: GroupRecord, why: str, *, moved: bool = False
    ) -> tuple[list[Entry], list[TaskRun]]:
        """Put back a whole gang; return the entries, and the attempts to stop."""
        others = self._book.live_in(group)
        for other in others:
            self._forget(other)
        return gangs.put_back(self._book, group, why, moved=moved), others

    def _settle_gang(self, group: GroupRecord, now: float) -> list[Consequence]:
        """End a gang that has no live attempt left, or let it start over."""
        lost = self._book.live_in(group)
        once = self._book.jobs[group.job].job.at_most_once
        if any(once or not run.lost for run in lost):
            return []
        if not gangs.is_complete(group):
            return self._start_over(group, now) if group.exited and not lost else []
        why = "not needed: the gang finished without it"
        entries = gangs.finish(self._book, group, "done", why, now)
        for run in lost:
            self._forget(run)
        released = self._holdings.release_of(lost)
        return [*_record(entries), *released, *self._unblocked(group)]

    def _start_over(self, group: GroupRecord, now: float) -> list[Consequence]:
        """Run a gang again of which too few members succeeded, if it may."""
        if not self._book.jobs[group.job].job.at_most_once:
            entries, _ = self._break_gang(group, "the rest of its gang did not finish")
            return [*_record(entries)]
        why = "the rest of its gang has finished, and runs only once"
        entries = gangs.finish(self._book, group, "failed", why, now)
        return [*_record(entries), *self._unblocked(group)]

    def _unblocked(self, group: GroupRecord) -> list[NeedChanged]:
        """Tell that all groups of the job may have changed, if this one has ended."""
        if group.open:
            return []
        groups = self._book.jobs[group.job].job.groups
        return [NeedChanged(other.id) for other in groups]

    def rest_s(self, task: TaskId) -> float:
        """Return how long a task rests at most before its next attempt, if it does."""
        if task not in self._back_offs:
            return 0.0
        return RETRY.pause_s(self._book.tasks[task].failures - 1)

    def _back_off(
        self, task: TaskId, now: float, backoff: Backoff, *, is_fresh: bool = False
    ) -> None:
        """Let a failed task rest before it wants a slot again.

        Pauses grow with its failures; one that ran for long begins with the first.
        """
        record = self._book.tasks[task]
        self._book.stop_waiting(task)
        tries = 0 if is_fresh else record.failures - 1
        self._back_offs.set(task, now + backoff.pause_s(tries))

    def _forget(self, run: TaskRun) -> None:
        self._sender.forget(run.attempt)
        self._give_ups.drop(run.attempt)

    def _charge(self, job: Job, run: TaskRun, now: float) -> None:
        profile = self._book.tasks[run.task].task.profiles[run.profile]
        self._usage.charge(job.owner, profile, max(0.0, now - run.since), now)
        if not run.has_begun and not run.queued:
            run.metered_at = run.since  # The word that it started was overtaken.

    # Losing and finding.

    def _lose(self, holding: HeldLease, reason: str, now: float) -> list[Consequence]:
        run = self._run_on(holding)
        follows = self._send_back(holding, reason, now, doubt=True, but=run)
        self._holdings.drop(holding)
        if run is None or run.lost:
            return follows
        return follows + self._lose_run(run, reason, now)

    def _lose_run(self, run: TaskRun, reason: str, now: float) -> list[Consequence]:
        """Take an attempt for lost: try its task elsewhere, but let it come back."""
        record = self._book.tasks[run.task]
        job = self._book.jobs[record.task.job].job
        group = self._book.group_of(run.task)
        run.move("lose", now)
        self._sender.started(run.attempt)
        lease_s = KEPT_LEASE_S if job.keepers else LEASE_S
        doubt_s = lease_s * (1 + DRIFT_MAX) + record.task.grace_s + KILL_S
        self._give_ups.set(run.attempt, now + doubt_s)
        doubted: list[Consequence] = [DoubtOutput(run.task, run.attempt, reason)]
        if job.at_most_once:
            return doubted
        ran_s = self._span(run, now)
        verdict = judge_lost(job, record, run, reason, over=False, ran_s=ran_s)
        if verdict.do != "again":
            return doubted  # A report may be on its way: it fails when it is over.
        if gangs.is_broken(self._book, group):
            released = self._holdings.release_of([run])
            return [*doubted, *released, *self._execute(verdict, run, now)]
        if verdict.counts == "crash":
            run.move("blame", now)
            record.crashes += 1
        record.reason = reason
        if not any(not other.lost for other in record.live.values()):
            self._book.wait_again(run.task)
            record.state = "waiting"
        self._verifier.refresh(run.task, now)
        return [*doubted, NeedChanged(group.id)]

    def _span(self, run: TaskRun, now: float) -> float:
        """Return how long an attempt ran; a long one says that its task is harmless."""
        ran_s = now - run.since
        if ran_s > CRASH_SPAN_S:
            self._book.acquit(run)
        return ran_s

    def _move(self, run: TaskRun, event: RunEvent, now: float) -> list[Consequence]:
        """Change a run by what its worker said; a lost one may be found by that."""
        was_lost, was_blamed = run.lost, run.blamed
        run.move(event, now)
        if not was_lost or run.lost:
            return []
        record = self._book.tasks[run.task]
        self._give_ups.drop(run.attempt)
        record.crashes -= was_blamed  # Its worker is back, so it did not crash.
        record.state = "running"
        group = self._book.group_of(run.task)
        if run.task not in group.seconds:
            self._book.stop_waiting(run.task)
        whole = DoubtOutput(run.task, run.attempt)
        refreshed = self._verifier.refresh(run.task, now)
        return [whole, *refreshed, NeedChanged(group.id)]

    def _run_on(self, holding: HeldLease) -> TaskRun | None:
        return self._book.runs.get(holding.attempt) if holding.attempt else None


def _record(entries: Sequence[Entry]) -> list[Effect]:
    return [Record(entry) for entry in entries]
