"""The worker machine: offers room, keeps leases, runs tasks, reports their ends.

Theory of operation. Schedulers speak, the worker answers:

- `Demand` -> `Offer` or `Refusal`. An offer holds room for a few seconds. Until it is
  committed, a better-ranked demand may take it back (`Withdrawal`).
- `Commit` -> `Committed`. The lease lives until it is released or no longer renewed, by
  the worker's own clock. Only preemption ends it earlier (`Preemption`, then a grace).
- `Assignment` -> `StartTask` or `Refusal`, then `Started`, `Progress`, `Output`. An
  attempt is bound to its lease and starts at most once; an older one changes nothing.
- What an attempt needs comes first: environments to run in (`MakeEnvironment`;
  `core/environments` decides who makes them), then files (`StageTask`).
- Standard input is sent by a channel (`core/channels`). A task whose input nobody sends
  is stopped after `INPUT_S`; one whose input is cut off is stopped and counts as lost,
  so that it never takes half of its input for the whole.
- `TaskEnded` (a fact of the host) -> `Report`, repeated until it is acknowledged, and
  so is `Output` (`output_outbox`).
- `Adoption` -> `Renewed`: another scheduler took a job up, and has its attempts and
  leases from now on (`core/succession/kinship`).
- `Announcement`, `Inquiry` -> `Inventory`, then `InventoryChanged` as the load changes.
- `MachineMeasured`, `OwnerObserved`, `LongestTaskChanged` (`core/lending`): what other
  programs take is not offered, nor time that is not left, nor the owner's machine.

A device is free only when no process of its task is left. Nothing is durable: a worker
that restarts is idle, under a new epoch. Leases, waiting attempts, unacknowledged
reports and output are bounded.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final, final, get_args

from shoal.core.artifacts.events import StagingEnded
from shoal.core.deadlines import DeadlineHeap, Deadlines
from shoal.core.discovery.announcement_log import AnnouncementLog
from shoal.core.discovery.announcement_sampling import (
    BUSY_FROM_SEQ,
    answers,
    servable,
)
from shoal.core.durability.journal import DrainSet
from shoal.core.environments.events import (
    EnvironmentEvent,
    EnvironmentGrown,
    EnvironmentMade,
    EnvironmentsFound,
    RemoveEnvironment,
)
from shoal.core.environments.preparation import Prelude, Preparation
from shoal.core.environments.shelf import (
    ENVIRONMENT_BYTES,
    EnvironmentShelf,
    needed_by,
)
from shoal.core.environments.words import made_in
from shoal.core.events import (
    AddressesChanged,
    Booted,
    CacheChanged,
    DeadlineReached,
    DrainEnded,
    DrainRequested,
    DriverOpened,
    Effect,
    Event,
    InputLost,
    InputTaken,
    MessageReceived,
    PeerConnected,
    PeerLost,
    Provide,
    Record,
    Send,
    SizeEstimated,
    StartTask,
    StopTask,
    Taker,
    TaskEnded,
    TaskProgressed,
    TaskSaved,
    TaskStaged,
    TaskWrote,
)
from shoal.core.leasing.adoptions import Adoptions
from shoal.core.leasing.attempt_bindings import AttemptBindings
from shoal.core.leasing.lease_lifecycle import (
    LeaseLifecycle,
    answer_stale,
    in_turn,
    refuse,
    refuse_attempt,
)
from shoal.core.leasing.leases import Lease, LeaseBook, owners_of
from shoal.core.leasing.lending_terms import LendingTerms
from shoal.core.leasing.lent_time import MeteredTask, lent
from shoal.core.leasing.load_publisher import LoadPublisher
from shoal.core.leasing.output_outbox import OutputOutbox
from shoal.core.leasing.owner_rules import OwnerRules
from shoal.core.leasing.report_outbox import ReportOutbox, with_verdict
from shoal.core.leasing.task_news import news_of
from shoal.core.lending.events import (
    LongestTaskChanged,
    MachineMeasured,
    OwnerObserved,
)
from shoal.core.lending.lender import Lender
from shoal.core.machine import Mount
from shoal.core.succession.kinship import Kinship
from shoal.core.timing import INPUT_S, METER_S, PROVIDE_AGAIN_S
from shoal.model.directory.capability import capability_keys
from shoal.model.ids import Attempt, EnvironmentId, JobId, LeaseId, NodeId
from shoal.model.kinds import foreign
from shoal.protocol.messages import (
    Acknowledgement,
    Announcement,
    Assignment,
    Cancel,
    Commit,
    Demand,
    Goodbye,
    Inquiry,
    Load,
    Outcome,
    OutputReceipt,
    Release,
    Renew,
    Report,
    Started,
    ToWorker,
)
from shoal.protocol.succession.messages import Adoption

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from random import Random

    from shoal.core.durability.journal import Entry
    from shoal.core.membership.members import Admission
    from shoal.core.membership.roster import Roster
    from shoal.model.resources import Capacity
    from shoal.protocol.messages import AnyMessage


DRAINS: Final = "the worker drains"
TAKEN_UP: Final = "another scheduler took the job up"


class _Run(Prelude):
    """A started attempt. `verdict` is its outcome once we have begun to stop it."""

    task_grace_s: float
    lease: LeaseId
    verdict: Outcome | None = None
    job: JobId = JobId("")
    metered_at: float | None = None  # its time was counted up to here, once it began


@final
class Worker:
    """Decides what a worker does; the host does it, in the order returned."""

    mount = Mount(
        takes=dict.fromkeys(get_args(ToWorker), "scheduler"),
        hears=(
            TaskEnded,
            TaskProgressed,
            TaskWrote,
            TaskStaged,
            StagingEnded,
            EnvironmentsFound,
            EnvironmentMade,
            EnvironmentGrown,
            TaskSaved,
            InputTaken,
            InputLost,
            CacheChanged,
            MachineMeasured,
            OwnerObserved,
            LongestTaskChanged,
            DriverOpened,
            DrainRequested,
            DrainEnded,
        ),
    )

    def __init__(
        self,
        node: NodeId,
        capacity: Capacity,
        roster: Roster,
        *,
        rules: OwnerRules | None = None,
        epoch: int,
        rng: Random,
        journal: Iterable[Entry] = (),
        environment_bytes: int = ENVIRONMENT_BYTES,
    ) -> None:
        """Start idle. `epoch` must be larger than in any earlier life of the node.

        Of the journal only the last `DrainSet` matters.
        """
        self.node = node
        self.capacity = capacity
        self.rules = rules or OwnerRules()
        self.counts: Counter[str] = Counter()
        self._roster = roster
        self._rng = rng
        heap = self._heap = DeadlineHeap()
        book = self._book = LeaseBook(node, epoch, capacity)
        self._runs: dict[Attempt, _Run] = {}
        self._kinship = Kinship()
        self._bindings = AttemptBindings(self._has_no_lease, self._book.is_guessed)
        self._outputs = OutputOutbox(node, epoch, heap)
        self._reports = ReportOutbox(heap, self._outputs)
        self._lease_lifecycle = LeaseLifecycle(book, self._stop, heap, self._reports)
        self._heard = AnnouncementLog()
        self._terms = LendingTerms(self.rules, roster, capacity.lends)
        self._shelf = EnvironmentShelf(environment_bytes)
        self._preparation = Preparation(self._shelf, self.rules)
        terms, ledger = self._terms, book.ledger
        told = self._shelf.marks_for, self._book.gangs, self._lease_lifecycle.waiting
        self._telling = LoadPublisher(node, epoch, ledger, terms, heap, *told)
        self.lender = Lender(
            self.rules,
            self._lease_lifecycle,
            self._terms,
            self._show_changes,
            self._heap,
        )
        self._nodes_estimate = 1
        self._booted = False
        self.drains = False  # until somebody says otherwise, also in later lives
        for entry in journal:
            if isinstance(entry, DrainSet):
                self.drains = entry.on
        self._draining = self.drains
        self._closed = True  # while any of these is in the way of new work
        self._runs_due: Deadlines[Attempt] = Deadlines(self._heap)
        self._inputs_due: Deadlines[Attempt] = Deadlines(self._heap)
        self._chores: Deadlines[str] = Deadlines(self._heap)
        shared = (self._lease_lifecycle, self._kinship, self._bindings)
        self._adoptions = Adoptions(*shared, self._outputs, self._reports, self._rename)
        self._take = self._takers()

    # What others may read.

    @property
    def leases(self) -> LeaseBook:
        """The leases now."""
        return self._book

    @property
    def running(self) -> tuple[Attempt, ...]:
        """The attempts whose end has not been told yet."""
        return tuple(self._runs)

    @property
    def unacknowledged(self) -> int:
        """How many reports wait for their scheduler."""
        return len(self._reports)

    @property
    def terms(self) -> LendingTerms:
        """The terms on which the worker accepts tasks."""
        return self._terms

    @property
    def load(self) -> Load:
        """What is free now."""
        return self._read_load()

    def _read_load(self) -> Load:
        ledger = self._book.ledger
        return Load(
            ledger.cpu_milli,
            ledger.memory_bytes,
            ledger.disk_bytes,
            tuple(ledger.milli.values()),
            tuple(ledger.gpu_memory.values()),
            len(self._runs),
            self._closed,
        )

    # The one door.

    def handle(self, event: Event, now: float) -> list[Effect]:
        """Take in one fact; return what to do about it. Raising is a bug."""
        event = self._kinship.told(event)
        match event:
            case MessageReceived():
                take = self._take.get(type(event.message), self._ignore)
                effects = take(event.peer, event.message, now)
            case TaskEnded():
                effects = self._on_task_ended(event.attempt, event.outcome, now)
            case (
                StagingEnded()
                | EnvironmentMade()
                | EnvironmentsFound()
                | EnvironmentGrown()
            ):
                effects = self._on_prepared(event, now)
            case DeadlineReached():
                effects = self._on_deadline(now)
            case TaskWrote():
                effects = self._outputs.wrote(event, now)
            case TaskProgressed() | TaskStaged() | TaskSaved():
                effects = self._on_task_told(event, now)
            case InputTaken() | InputLost():
                effects = self._on_input(event)
            case PeerConnected() | PeerLost():
                effects = self._on_link(event, now)
            case Booted():
                effects = self._on_booted(now)
            case MachineMeasured() | OwnerObserved() | LongestTaskChanged():
                effects = self.lender.handle(event, now)
            case DrainRequested() | DrainEnded():
                effects = self._on_drain(event, now)
            case AddressesChanged() | CacheChanged() | DriverOpened():
                effects = self._telling.learn(event, self.load, now)
            case SizeEstimated():
                self._nodes_estimate = max(1, event.nodes)
                effects = []
            case _:
                effects = []  # A fact for another role of this node.
        version = self._load_version
        if version != self._telling.planned:
            self._telling.note(version, now)
        return effects

    def next_deadline(self) -> float | None:
        """When to deliver `DeadlineReached`, if ever."""
        return self._heap.next()

    # Messages.

    def _takers(self) -> dict[type, Taker]:
        """Say who takes in which message: a table, as a node hears many a second."""
        return {
            Renew: self._lease_lifecycle.on_renew,
            Demand: self._on_demand,
            Commit: self._lease_lifecycle.on_commit,
            Assignment: self._on_assignment,
            Acknowledgement: self._on_acknowledgement,
            OutputReceipt: self._on_output_receipt,
            Release: self._on_release,
            Cancel: self._on_cancel,
            Announcement: self._on_announcement,
            Inquiry: self._on_inquiry,
            Goodbye: self._on_goodbye,
            Adoption: self._adoptions.on_adoption,
        }

    def _ignore(self, _peer: NodeId, message: AnyMessage, _now: float) -> list[Effect]:
        self.counts[f"ignored:{type(message).__name__}"] += 1
        return []

    def _on_acknowledgement(
        self, peer: NodeId, message: Acknowledgement, _now: float
    ) -> list[Effect]:
        self._kinship.forget(peer, message.attempts)
        return self._reports.acknowledge(peer, message.attempts)

    def _on_output_receipt(
        self, peer: NodeId, receipt: OutputReceipt, now: float
    ) -> list[Effect]:
        if receipt.gap:
            self._reports.hasten(peer, now)  # They come after what is sent again.
        return self._outputs.on_receipt(peer, receipt, now)

    def _on_release(self, peer: NodeId, release: Release, now: float) -> list[Effect]:
        self._lease_lifecycle.on_withdrawn(peer, release.requests)
        return self._lease_lifecycle.on_release(peer, release.leases, now)

    def _on_inquiry(self, peer: NodeId, _: Inquiry, now: float) -> list[Effect]:
        return self._telling.show(peer, self.load, now)

    def _on_goodbye(self, peer: NodeId, _: Goodbye, now: float) -> list[Effect]:
        self._telling.forget(peer)
        return self._lease_lifecycle.on_goodbye(peer, now, self._kinship.is_kept)

    def _on_demand(self, peer: NodeId, demand: Demand, now: float) -> list[Effect]:
        admission = self._authority(peer, demand, now)
        if isinstance(admission, str):
            return [refuse(peer, demand.request, admission)]
        if reason := self._unwilling(demand, admission):
            return [refuse(peer, demand.request, reason)]
        return self._lease_lifecycle.on_demand(peer, demand, admission, now)

    def _on_assignment(
        self, peer: NodeId, assignment: Assignment, now: float
    ) -> list[Effect]:
        attempt = assignment.attempt
        if attempt.scheduler != peer:
            self.counts["foreign attempt"] += 1
            return []
        if report := self._reports.get(attempt):
            return [Send(peer, report)]
        if run := self._runs.get(attempt):
            return [self._started(peer, attempt, self._lease_of(run))]
        if not self._bindings.admits(attempt, assignment.lease):
            return self._refuse_second_lease(peer, assignment)
        self._bindings.bind(attempt, assignment.lease)  # It never starts elsewhere.
        lease = self._book.of(peer, assignment.lease)
        if lease is None:
            return [refuse_attempt(peer, assignment, self._gone(assignment.lease))]
        if any(each.attempt == attempt for each in lease.line):
            return []  # It starts when its turn has come.
        if lease.fence is not None and attempt <= lease.fence:
            self.counts["stale attempt"] += 1
            return answer_stale(peer, assignment)
        if not in_turn(assignment, lease):
            self.counts["attempt before its turn"] += 1
            return []
        lease.fence = attempt
        if self._draining:
            return [refuse_attempt(peer, assignment, DRAINS)]
        if self._kinship.superseded(assignment):
            return [refuse_attempt(peer, assignment, TAKEN_UP)]
        task = assignment.task
        reason = self._terms.refusal_of(lease.owners, assignment) or foreign(task)
        if reason := reason or self._book.too_late(lease):
            return [refuse_attempt(peer, assignment, reason)]
        self._kinship.note(assignment)
        if lease.idle:
            started = self._started(peer, attempt, lease)
            return [*self._start(lease, assignment, now), started]
        if assignment.after is None or not lease.has_room:
            return [refuse_attempt(peer, assignment, f"the lease is {lease.state}")]
        lease.line.append(assignment)
        return []

    def _refuse_second_lease(
        self, peer: NodeId, assignment: Assignment
    ) -> list[Effect]:
        """Start an attempt of two leases on neither: it is called back if it waits."""
        self.counts["attempt of another lease"] += 1
        attempt = assignment.attempt
        lease = self._bound_lease(peer, attempt)
        if lease is None or not lease.call_back(attempt):
            return answer_stale(peer, assignment)
        reason = f"the attempt waited on lease {lease.id}; it starts on none now"
        return [refuse_attempt(peer, assignment, reason)]

    def _has_no_lease(self, peer: NodeId) -> bool:
        return not self._book.of_peer(peer)

    def _bound_lease(self, peer: NodeId, attempt: Attempt) -> Lease | None:
        bound = self._bindings.lease_of(attempt)
        return None if bound is None else self._book.of(peer, bound)

    def _gone(self, lease: LeaseId) -> str:
        """Say whether a lease that is not there was of this life of the worker.

        If so, whatever ran on it has a report that is kept until acknowledged: what
        has none never started.
        """
        known = self._reports.complete and self._book.is_of_this_life(lease)
        return "lease-ended" if known else "lease-unknown"

    def _start(self, lease: Lease, assignment: Assignment, now: float) -> list[Effect]:
        task, attempt = assignment.task, assignment.attempt
        lease.run(assignment, now)
        needs = needed_by(task, lease.owners)
        run = _Run(task.grace_s, lease.id, needs=[*needs], job=task.job)
        self._runs[attempt] = run
        self._outputs.begin(attempt, receipts=assignment.receipts)
        if task.time_limit_s is not None:
            self._runs_due.set(attempt, now + task.time_limit_s)
        start = StartTask(
            attempt,
            lease.id,
            task,
            lease.allocation,
            assignment.gang,
            assignment.places,
            assignment.checkpoint,
            assignment.checkpoint_path,
            assignment.secrets,
            lease.owners,
            self.rules.network(lease.owners, wanted=task.work.network),
            assignment.inputs,
            needs,
        )
        return self._go_on(run, start, now)

    def _go_on(self, run: _Run, start: StartTask, now: float) -> list[Effect]:
        """Take the next step of preparing an attempt, or start it."""
        effects = self._preparation.go_on(run, start)
        if run.phase == "started":
            self._on_begun(start, run, now)
        return effects

    def _on_prepared(
        self, event: StagingEnded | EnvironmentEvent, now: float
    ) -> list[Effect]:
        if isinstance(event, StagingEnded):
            return self._on_staging_ended(event, now)
        if isinstance(event, EnvironmentMade):
            return self._on_environment_made(event, now)
        if isinstance(event, EnvironmentsFound):
            return self._removed(self._shelf.found(event))
        return self._removed(self._shelf.grown(event))

    def _on_environment_made(self, event: EnvironmentMade, now: float) -> list[Effect]:
        """Let those go on that waited for an environment; end them if it failed."""
        going, gone = self._shelf.made(event)
        effects = self._removed(gone)
        if going and event.failure is None and not event.stopped:
            effects += self._show_changes(now)
        stopped = event.attempt if event.stopped else None
        for attempt in going:
            run = self._runs.get(attempt)
            if run is None or run.start is None:
                continue
            if event.failure is not None:
                effects += self._on_task_ended(attempt, event.failure, now)
            elif run.verdict is not None or attempt == stopped:
                effects += self._on_task_ended(attempt, _NOT_STARTED, now)
            else:
                made = made_in(run.needs[0].kind, event.took_s)
                if made and not event.stopped:
                    effects.append(self._preparation.note(attempt, run, made=made))
                effects += self._go_on(run, run.start, now)
        return effects

    def _show_changes(self, now: float) -> list[Effect]:
        return self._telling.show_changes(self.load, now)

    def _removed(self, gone: list[EnvironmentId]) -> list[Effect]:
        return [RemoveEnvironment(each) for each in gone]

    def _rename(self, was: Attempt, attempt: Attempt) -> bool:
        """Give a run that has started another name; False: there is none."""
        run = self._runs.get(was)
        if run is None or run.phase != "started":
            return False
        self._runs[attempt] = self._runs.pop(was)
        self._runs_due.rename(was, attempt)
        self._inputs_due.rename(was, attempt)
        return True

    def _started(self, peer: NodeId, attempt: Attempt, lease: Lease) -> Send:
        allocation = lease.allocation
        return Send(
            peer, Started(attempt=attempt, lease=lease.id, allocation=allocation)
        )

    def _lease_of(self, run: MeteredTask) -> Lease:
        lease = self._book.get(run.lease)
        assert lease is not None, "a run keeps its lease"
        return lease

    def _on_cancel(self, peer: NodeId, cancel: Cancel, now: float) -> list[Effect]:
        attempt = cancel.attempt
        if attempt.scheduler != peer:
            self.counts["foreign attempt"] += 1
            return []
        if report := self._reports.get(attempt):
            return [Send(peer, report)]
        if run := self._runs.get(attempt):
            if cancel.unless_started:
                return [self._started(peer, attempt, self._lease_of(run))]
            return self._stop(attempt, Outcome("cancelled"), cancel.grace_s)
        self._bindings.bind(attempt, cancel.lease)
        lease = self._bound_lease(peer, attempt)
        if lease is None:
            # It runs no more, and whether it ever did may not be known here.
            outcome = Outcome("lost", reason=self._gone(cancel.lease))
        else:
            lease.call_back(attempt)
            outcome = Outcome("not-started", reason="cancelled before it started")
        report = Report(attempt=attempt, lease=cancel.lease, outcome=outcome)
        return [Send(peer, report)]

    def _on_announcement(
        self, peer: NodeId, announcement: Announcement, now: float
    ) -> list[Effect]:
        scheduler = announcement.scheduler
        if scheduler != peer:
            self.counts["announcement of another node"] += 1
            return []
        if self._heard.repeats(announcement, now):
            return []
        if self._closed or scheduler in self._telling:
            return []  # Either no room, or it hears of our room anyway.
        seq = announcement.seq
        wanted = servable(announcement, self._book.ledger)
        if wanted == 0:
            # We are full, but may be waited for, if nobody with room has answered.
            seq -= BUSY_FROM_SEQ
            wanted = servable(announcement, self._book.idle) if seq >= 0 else 0
        if not answers(wanted, self._nodes_estimate, seq, self._rng):
            return []
        return self._telling.show(scheduler, self.load, now)

    # What the host tells.

    def _on_booted(self, now: float) -> list[Effect]:
        self._booted = True
        self._open_or_close()
        return self._provide(now)

    def _on_link(self, event: PeerConnected | PeerLost, now: float) -> list[Effect]:
        """Say again what may have been lost with the last link, output first."""
        peer = event.peer
        if isinstance(event, PeerLost):
            self._telling.forget(peer)
            self._lease_lifecycle.on_peer_lost(peer)
            return []
        self._reports.hasten(peer, now)
        return self._outputs.hasten(peer, now)

    def _on_task_ended(
        self, attempt: Attempt, outcome: Outcome, now: float
    ) -> list[Effect]:
        run = self._runs.pop(attempt, None)
        if run is None:
            self.counts["end of an unknown task"] += 1
            return []
        self._runs_due.drop(attempt)
        self._inputs_due.drop(attempt)
        lease = self._lease_of(run)
        lease.running = None
        lent = self._lent({attempt: run}, now)
        final_outcome = with_verdict(outcome, run.verdict)
        makers, gone = self._shelf.leave(self._kinship.name_of(attempt))
        left = self._removed(gone)
        for maker in makers:
            if (other := self._runs.get(maker)) and other.start is not None:
                left += self._go_on(other, other.start, now)
        if lease.state == "ending":
            ceded = self._lease_lifecycle.close(lease, now)
        else:
            ceded = self._lease_lifecycle.yield_idle(lease, now)
        if self._draining:
            ceded += self._lease_lifecycle.preempt_idle(DRAINS, now)
        started, next_ = self._start_next(lease, now)
        report = Report(
            attempt=attempt,
            lease=run.lease,
            outcome=final_outcome,
            next=next_,
            job=self._kinship.kept_job(attempt),
        )
        sent = self._reports.add(report, now)
        # What goes is gone before somebody wants it made again.
        return [*left, *started, *sent, *ceded, *lent]

    def _on_staging_ended(self, event: StagingEnded, now: float) -> list[Effect]:
        """Start an attempt that has all it needs, unless it is to stop."""
        run = self._runs.get(event.attempt)
        if run is None or run.start is None or run.phase != "staging":
            self.counts["staging of an unknown task"] += 1
            return []
        start, run.start, run.phase = run.start, None, "started"
        if not event.reason and run.verdict is None:
            self._on_begun(start, run, now)
            return [start]
        reason = event.reason or "stopped before it started"
        outcome = Outcome("not-started", reason=reason)
        return self._on_task_ended(event.attempt, outcome, now)

    def _start_next(
        self, lease: Lease, now: float
    ) -> tuple[list[Effect], Attempt | None]:
        """Start what waits first at a lease; return it too, if anything does."""
        if not lease.line:
            return [], None
        assignment = lease.line.pop(0)
        return self._start(lease, assignment, now), assignment.attempt

    def _on_task_told(
        self, event: TaskProgressed | TaskStaged | TaskSaved, now: float
    ) -> list[Effect]:
        run = self._runs.get(event.attempt)
        if run is None:
            return []
        run.progress_seq += 1
        if isinstance(event, TaskSaved):
            self._lease_of(run).saved(now)
        return [Send(event.attempt.scheduler, news_of(event, run.progress_seq))]

    def _on_input(self, event: InputTaken | InputLost) -> list[Effect]:
        self._inputs_due.drop(event.attempt)
        if isinstance(event, InputTaken) or event.attempt not in self._runs:
            return []
        reason = f"its standard input was cut off: {event.reason}"
        return self._stop(event.attempt, Outcome("lost", reason=reason))

    def _on_drain(self, event: DrainRequested | DrainEnded, now: float) -> list[Effect]:
        """Take no new work, not even on leases that are committed; or take it again."""
        drained, lasts = False, False
        if isinstance(event, DrainRequested):
            drained, lasts = True, self.drains or event.lasts
        self._draining = drained
        self._open_or_close()
        self._chores.drop("drained")
        if isinstance(event, DrainRequested) and event.grace_s is not None:
            self._chores.set("drained", now + event.grace_s)
        effects: list[Effect] = []
        if lasts != self.drains:
            self.drains = lasts
            effects.append(Record(DrainSet(on=lasts)))
        if drained:
            effects += self._lease_lifecycle.preempt_idle(DRAINS, now)
        return effects

    # Deadlines.

    def _on_deadline(self, now: float) -> list[Effect]:
        effects = self._lease_lifecycle.due(now) + self.lender.due(now)
        for attempt in self._runs_due.pop_due(now):
            run = self._runs[attempt]
            if run.phase == "waiting" and run.verdict is not None:
                effects += self._on_task_ended(attempt, _NOT_STARTED, now)
                continue
            verdict = Outcome("timed-out", reason="its time limit passed")
            effects += self._stop(attempt, verdict)
        for attempt in self._inputs_due.pop_due(now):
            reason = f"nobody sent its standard input within {INPUT_S:g} s"
            effects += self._stop(attempt, Outcome("timed-out", reason=reason))
        for outbox in (self._outputs, self._reports):
            effects += outbox.due(now, lambda peer: self._roster.is_out(peer, now))
        for chore in self._chores.pop_due(now):
            effects += self._do_chore(chore, now)
        return effects + self._telling.due(self._read_load, self._load_version, now)

    def _do_chore(self, chore: str, now: float) -> list[Effect]:
        match chore:
            case "provide":
                return self._provide(now)
            case "meter":
                if self._runs:
                    self._chores.set("meter", now + METER_S)
                return self._lent(self._runs, now)
            case "drained":
                return self._lease_lifecycle.preempt_all(None, DRAINS, now)
            case _:
                raise AssertionError(chore)

    def _on_begun(self, start: StartTask, run: _Run, now: float) -> None:
        if start.task.work.stdin != "none":
            self._inputs_due.set(start.attempt, now + INPUT_S)
        run.metered_at = now
        self._lease_of(run).begun(now)
        self._chores.set_earlier("meter", now + METER_S)

    def _lent(self, runs: Mapping[Attempt, _Run], now: float) -> list[Effect]:
        """Tell how long tasks of other nodes ran here since the last time."""
        return lent(runs, self.node, self._lease_of, now)

    def _provide(self, now: float) -> list[Effect]:
        pause_s = PROVIDE_AGAIN_S * self._rng.uniform(0.8, 1.2)
        self._chores.set("provide", now + pause_s)
        return [Provide(capability_keys(self.capacity))]

    def _stop(
        self, attempt: Attempt, verdict: Outcome, grace_s: float | None = None
    ) -> list[Effect]:
        run = self._runs[attempt]
        if run.verdict is None:
            run.verdict = verdict
        if run.phase == "waiting":
            self._runs_due.set(attempt, 0.0)  # Nothing of it runs: it ends at once.
            return []
        name = self._kinship.name_of(attempt)
        return [StopTask(name, run.task_grace_s if grace_s is None else grace_s)]

    # Who may, and whether we want to.

    @property
    def _load_version(self) -> tuple[int, int, bool]:
        return (self._book.ledger.version, len(self._runs), self._closed)

    def _open_or_close(self) -> None:
        self._closed = self._draining or not self._booted

    def _authority(self, peer: NodeId, demand: Demand, now: float) -> Admission | str:
        """Return what the sender may do, by the grant in hand or the one it showed.

        Only its own counts: others' grants are no secret, so they prove nothing.
        """
        if demand.grant is not None:
            return self._roster.verify(peer, demand.grant, now)
        return self._roster.recall(peer, now)

    def _unwilling(self, demand: Demand, admission: Admission) -> str | None:
        if not self._booted:
            return "the worker is starting"
        if self._draining:
            return DRAINS
        owners = owners_of(admission.owner, demand.owner)
        return self._terms.refusal(
            owners, demand.driver, network=demand.network, uses=demand.profile.uses
        )


_NOT_STARTED: Final = Outcome("not-started", reason="stopped before it started")
