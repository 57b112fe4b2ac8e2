"""The worker machine: offers room, keeps leases, runs tasks, reports their ends."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final, final

import msgspec

from shoal.core.answering import answers
from shoal.core.deadlines import Deadlines
from shoal.core.events import (
    Booted,
    DeadlineReached,
    DrainRequested,
    Effect,
    Event,
    MessageReceived,
    OwnerActive,
    PeerConnected,
    PeerLost,
    Provide,
    Send,
    SizeEstimated,
    Spread,
    StartTask,
    StopTask,
    TaskEnded,
    TaskProgressed,
    TaskWrote,
)
from shoal.core.leases import Lease, LeaseBook, ids_of
from shoal.core.reports import Reports
from shoal.core.rules import Rules
from shoal.core.timing import (
    DIGEST_S,
    HOLD_S,
    INVENTORY_DELAY_S,
    INVENTORY_REFRESH_S,
    LEASE_MAX_S,
    PROVIDE_AGAIN_S,
)
from shoal.model.capability import capability_keys
from shoal.model.ids import Attempt, LeaseId, NodeId, RequestId
from shoal.model.resources import Capacity, Ledger
from shoal.protocol.messages import (
    Acknowledgement,
    Announcement,
    Assignment,
    Cancel,
    Commit,
    Committed,
    Demand,
    Goodbye,
    Inquiry,
    Inventory,
    InventoryChanged,
    Load,
    LoadDigest,
    Occupied,
    Offer,
    Outcome,
    Output,
    Preemption,
    Progress,
    Rank,
    Refusal,
    Release,
    Renew,
    Renewed,
    Report,
    Started,
    Withdrawal,
)

if TYPE_CHECKING:
    from random import Random

    from shoal.core.membership import Admission
    from shoal.core.roster import Roster
    from shoal.protocol.messages import AnyMessage

SUBSCRIBERS_MAX: Final = 1_024
REQUESTS_HELD_MAX: Final = 256  # leases that one scheduler may hold uncommitted


class _Run(msgspec.Struct):
    """A started attempt. `verdict` is how it ends, once we have begun to stop it."""

    task_grace_s: float
    lease: LeaseId
    verdict: Outcome | None = None
    progress_seq: int = 0


@final
class Worker:
    """Decides what a worker does; the host does it, in the order returned."""

    def __init__(
        self,
        node: NodeId,
        capacity: Capacity,
        roster: Roster,
        *,
        rules: Rules | None = None,
        epoch: int,
        rng: Random,
    ) -> None:
        """Start idle. `epoch` must be larger than in any earlier life of the node."""
        self.node = node
        self.capacity = capacity
        self.rules = rules or Rules()
        self.counts: Counter[str] = Counter()
        self._roster = roster
        self._epoch = epoch
        self._rng = rng
        self._book = LeaseBook(node, epoch, capacity)
        self._runs: dict[Attempt, _Run] = {}
        self._reports = Reports()
        self._subscribers: dict[NodeId, None] = {}  # an ordered set
        self._nodes_estimate = 1
        self._seq = 0
        self._booted = False
        self._owner_active = False
        self._draining = False
        self._load_shown: Load | None = None
        self._leases_due: Deadlines[LeaseId] = Deadlines()
        self._runs_due: Deadlines[Attempt] = Deadlines()
        self._chores: Deadlines[str] = Deadlines()

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
    def load(self) -> Load:
        """What is free now."""
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
        match event:
            case MessageReceived():
                effects = self._on_message(event.peer, event.message, now)
            case TaskEnded():
                effects = self._on_task_ended(event.attempt, event.outcome, now)
            case DeadlineReached():
                effects = self._on_deadline(now)
            case TaskProgressed():
                effects = self._on_task_progressed(event)
            case TaskWrote():
                effects = self._on_task_wrote(event)
            case PeerConnected():
                self._reports.hasten(event.peer, now)
                effects = []
            case PeerLost():
                self._subscribers.pop(event.peer, None)
                effects = []
            case Booted():
                effects = self._on_booted(now)
            case OwnerActive():
                effects = self._on_owner_active(event.active, now)
            case DrainRequested():
                effects = self._on_drain_requested(event.grace_s, now)
            case SizeEstimated():
                self._nodes_estimate = max(1, event.nodes)
                effects = []
            case _:
                effects = []  # A fact for another role of this node.
        self._note_load(now)
        return effects

    def next_deadline(self) -> float | None:
        """When to deliver `DeadlineReached`, if ever."""
        due = [
            at
            for at in (
                self._leases_due.next(),
                self._runs_due.next(),
                self._chores.next(),
                self._reports.next_deadline(),
            )
            if at is not None
        ]
        return min(due, default=None)

    # Messages.

    def _on_message(
        self, peer: NodeId, message: AnyMessage, now: float
    ) -> list[Effect]:
        match message:
            case Renew():
                return self._on_renew(peer, message, now)
            case Demand():
                return self._on_demand(peer, message, now)
            case Commit():
                return self._on_commit(peer, message, now)
            case Assignment():
                return self._on_assignment(peer, message, now)
            case Acknowledgement():
                self._reports.acknowledge(peer, message.attempts)
                return []
            case Release():
                return self._on_release(peer, message.leases, now)
            case Cancel():
                return self._on_cancel(peer, message, now)
            case Announcement():
                return self._on_announcement(message)
            case Inquiry():
                return self._show_inventory(peer)
            case Goodbye():
                self._subscribers.pop(peer, None)
                return self._on_release(peer, ids_of(self._book.of_peer(peer)), now)
            case _:
                self.counts[f"ignored:{type(message).__name__}"] += 1
                return []

    def _on_demand(self, peer: NodeId, demand: Demand, now: float) -> list[Effect]:
        standing = self._book.of_request(peer, demand.request)
        if standing:
            return self._repeat_offer(peer, demand.request, standing, now)
        admission = self._authority(peer, demand, now)
        if isinstance(admission, str):
            return [_refuse(peer, demand.request, admission)]
        if reason := self._unwilling(demand, admission):
            return [_refuse(peer, demand.request, reason)]
        priority = min(demand.rank.priority, admission.top_priority)
        rank = Rank(priority, demand.rank.age_s, peer, demand.request)
        held, withdrawn, reason = self._hold(peer, demand, rank, admission, now)
        effects = [*withdrawn]
        if held:
            effects.append(Send(peer, self._offer(demand.request, held, HOLD_S)))
        else:
            effects.append(_refuse(peer, demand.request, reason))
        return effects

    def _hold(
        self,
        peer: NodeId,
        demand: Demand,
        rank: Rank,
        admission: Admission,
        now: float,
    ) -> tuple[list[Lease], list[Effect], str]:
        held: list[Lease] = []
        withdrawn: list[Effect] = []
        reason = "0 tasks asked for"
        while len(held) < min(demand.count, REQUESTS_HELD_MAX):
            lease = self._hold_one(peer, demand, rank, admission, now, preempt=False)
            if isinstance(lease, str):
                worse = self._book.worse_offers(demand.profile, rank)
                if worse:
                    withdrawn += self._withdraw(worse, rank, now)
                    continue
                if demand.preempt:
                    lease = self._hold_one(peer, demand, rank, admission, now, preempt=True)
            if isinstance(lease, str):
                reason = lease
                break
            lease.expires_at = now + HOLD_S
            self._leases_due.set(lease.id, lease.expires_at)
            held.append(lease)
        return held, withdrawn, reason

    def _hold_one(
        self,
        peer: NodeId,
        demand: Demand,
        rank: Rank,
        admission: Admission,
        now: float,
        *,
        preempt: bool,
    ) -> Lease | str:
        return self._book.hold(
            peer=peer,
            profile=demand.profile,
            rank=rank,
            owner=admission.owner,
            preempt=preempt,
            preemptible=demand.preemptible,
            now=now,
        )

    def _repeat_offer(
        self, peer: NodeId, request: RequestId, standing: list[Lease], now: float
    ) -> list[Effect]:
        held = [lease for lease in standing if lease.state == "held"]
        if len(held) < len(standing):
            return []  # Some are committed: the offer was heard, this is an echo.
        valid_for_s = min(lease.expires_at for lease in held) - now
        return [Send(peer, self._offer(request, held, max(0.0, valid_for_s)))]

    def _offer(self, request: RequestId, held: list[Lease], valid_for_s: float) -> Offer:
        return Offer(
            request=request,
            leases=ids_of(held),
            valid_for_s=valid_for_s,
            displaces=sum(len(lease.victims) for lease in held),
        )

    def _withdraw(self, worse: list[Lease], rank: Rank, now: float) -> list[Effect]:
        """Take offers back in favour of a better rank; they were not committed."""
        effects: list[Effect] = []
        for lease in worse:
            reason = f"priority {rank.priority}, age {rank.age_s:.1f} s ranks before"
            withdrawal = Withdrawal(leases=(lease.id,), reason=reason)
            effects += [*self._close(lease, now), Send(lease.peer, withdrawal)]
        return effects

    def _on_commit(self, peer: NodeId, commit: Commit, now: float) -> list[Effect]:
        mine: list[LeaseId] = []
        gone: list[LeaseId] = []
        effects: list[Effect] = []
        for id_ in commit.leases:
            lease = self._book.of(peer, id_)
            if lease is None or lease.state == "ending":
                gone.append(id_)
                continue
            if lease.state == "held":
                effects += self._commit(lease, now)
            self._extend(lease, commit.lease_s, now)
            if lease.state == "committed":
                mine.append(id_)
        if mine:
            effects.append(
                Send(peer, Committed(request=commit.request, leases=tuple(mine)))
            )
        if gone:
            effects.append(
                _refuse(peer, commit.request, "the offer no longer stands", tuple(gone))
            )
        return effects

    def _commit(self, lease: Lease, now: float) -> list[Effect]:
        lease.state = "displacing" if lease.victims else "committed"
        effects: list[Effect] = []
        for victim_id in lease.victims:
            victim = self._book.get(victim_id)
            assert victim is not None, "closing a victim takes it off the list"
            reason = f"priority {lease.rank.priority} > {victim.rank.priority}"
            effects += self._preempt(victim, None, reason, now)
        return effects

    def _on_renew(self, peer: NodeId, renew: Renew, now: float) -> list[Effect]:
        alive: list[Occupied] = []
        gone: list[LeaseId] = []
        for id_ in renew.leases:
            lease = self._book.of(peer, id_)
            if lease is None or lease.state in ("held", "ending"):
                gone.append(id_)
                continue
            self._extend(lease, renew.lease_s, now)
            alive.append(Occupied(id_, lease.running))
        return [Send(peer, Renewed(leases=tuple(alive), gone=tuple(gone)))]

    def _on_release(
        self, peer: NodeId, ids: tuple[LeaseId, ...], now: float
    ) -> list[Effect]:
        effects: list[Effect] = []
        for id_ in ids:
            lease = self._book.of(peer, id_)
            if lease is not None and lease.state != "ending":
                verdict = Outcome("cancelled", reason="the lease was released")
                effects += self._end_lease(lease, verdict, None, now)
        return effects

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
            return [self._started(peer, attempt, run.lease)]
        lease = self._book.of(peer, assignment.lease)
        if lease is None:
            return [_refuse_attempt(peer, assignment, "lease-unknown")]
        if lease.fence is not None and attempt <= lease.fence:
            self.counts["stale attempt"] += 1
            return []
        lease.fence = attempt
        driver = assignment.task.work.driver
        if reason := self.rules.refusal(lease.owner, driver):
            return [_refuse_attempt(peer, assignment, reason)]
        if not lease.idle:
            return [_refuse_attempt(peer, assignment, f"the lease is {lease.state}")]
        return self._start(peer, lease, assignment, now)

    def _start(
        self, peer: NodeId, lease: Lease, assignment: Assignment, now: float
    ) -> list[Effect]:
        task, attempt = assignment.task, assignment.attempt
        lease.running = attempt
        lease.running_since = now
        self._runs[attempt] = _Run(task.grace_s, lease.id)
        if task.time_limit_s is not None:
            self._runs_due.set(attempt, now + task.time_limit_s)
        return [
            StartTask(attempt, lease.id, task, lease.allocation, assignment.gang),
            self._started(peer, attempt, lease.id),
        ]

    def _started(self, peer: NodeId, attempt: Attempt, lease: LeaseId) -> Send:
        known = self._book.get(lease)
        assert known is not None, "a run keeps its lease"
        started = Started(attempt=attempt, lease=lease, allocation=known.allocation)
        return Send(peer, started)

    def _on_cancel(self, peer: NodeId, cancel: Cancel, now: float) -> list[Effect]:
        attempt = cancel.attempt
        if attempt.scheduler != peer:
            self.counts["foreign attempt"] += 1
            return []
        if report := self._reports.get(attempt):
            return [Send(peer, report)]
        if attempt in self._runs:
            return self._stop(attempt, Outcome("cancelled"), cancel.grace_s)
        lease = self._book.of(peer, cancel.lease)
        if lease is None:
            # It runs no more, and whether it ever did is not known here.
            outcome = Outcome("lost", reason="lease-unknown")
        else:
            lease.fence = max(attempt, lease.fence or attempt)
            outcome = Outcome("not-started", reason="cancelled before it started")
        report = Report(attempt=attempt, lease=cancel.lease, outcome=outcome)
        return [Send(peer, report)]

    def _on_announcement(self, announcement: Announcement) -> list[Effect]:
        scheduler = announcement.scheduler
        if self._closed or scheduler in self._subscribers:
            return []  # Either no room, or it hears of our room anyway.
        wanted = sum(
            want.count
            for want in announcement.wants
            if not isinstance(self._book.ledger.fit(want.profile), str)
        )
        if wanted == 0:
            return []
        if not answers(wanted, self._nodes_estimate, announcement.seq, self._rng):
            return []
        return self._show_inventory(scheduler)

    # What the host tells.

    def _on_booted(self, now: float) -> list[Effect]:
        self._booted = True
        self._load_shown = self.load
        return self._provide(now)

    def _on_task_ended(
        self, attempt: Attempt, outcome: Outcome, now: float
    ) -> list[Effect]:
        run = self._runs.pop(attempt, None)
        if run is None:
            self.counts["end of an unknown task"] += 1
            return []
        self._runs_due.drop(attempt)
        lease = self._book.get(run.lease)
        assert lease is not None, "a run keeps its lease"
        lease.running = None
        final_outcome = _with_verdict(outcome, run.verdict)
        report = Report(attempt=attempt, lease=run.lease, outcome=final_outcome)
        self._reports.add(report, now)
        effects: list[Effect] = [Send(attempt.scheduler, report)]
        if lease.state == "ending":
            effects += self._close(lease, now)
        return effects

    def _on_task_progressed(self, event: TaskProgressed) -> list[Effect]:
        run = self._runs.get(event.attempt)
        if run is None:
            return []
        run.progress_seq += 1
        progress = Progress(
            attempt=event.attempt,
            seq=run.progress_seq,
            fraction=event.fraction,
            metrics=event.metrics,
        )
        return [Send(event.attempt.scheduler, progress)]

    def _on_task_wrote(self, event: TaskWrote) -> list[Effect]:
        output = Output(
            attempt=event.attempt,
            stream=event.stream,
            offset=event.offset,
            data=event.data,
        )
        return [Send(event.attempt.scheduler, output)]

    def _on_owner_active(self, active: bool, now: float) -> list[Effect]:
        self._owner_active = active
        if not (active and self.rules.yield_to_owner):
            return []
        reason = "the owner is using the machine"
        return self._preempt_all(self.rules.owner_grace_s, reason, now)

    def _on_drain_requested(self, grace_s: float, now: float) -> list[Effect]:
        self._draining = True
        self._chores.set("drained", now + grace_s)
        return []

    # Deadlines.

    def _on_deadline(self, now: float) -> list[Effect]:
        effects: list[Effect] = []
        for id_ in self._leases_due.pop_due(now):
            effects += self._on_lease_due(id_, now)
        for attempt in self._runs_due.pop_due(now):
            verdict = Outcome("timed-out", reason="its time limit passed")
            effects += self._stop(attempt, verdict, self._runs[attempt].task_grace_s)
        for report in self._reports.due(now):
            effects.append(Send(report.attempt.scheduler, report))
        for chore in self._chores.pop_due(now):
            effects += self._do_chore(chore, now)
        return effects

    def _on_lease_due(self, id_: LeaseId, now: float) -> list[Effect]:
        lease = self._book.get(id_)
        assert lease is not None, "closing a lease drops its deadline"
        verdict = Outcome("lost", reason="the lease expired")
        return self._end_lease(lease, verdict, None, now)

    def _do_chore(self, chore: str, now: float) -> list[Effect]:
        match chore:
            case "provide":
                return self._provide(now)
            case "tell":
                return self._tell_subscribers(now)
            case "digest":
                return self._spread_digest()
            case "drained":
                return self._preempt_all(None, "the worker drains", now)
            case _:
                raise AssertionError(chore)

    def _provide(self, now: float) -> list[Effect]:
        pause_s = PROVIDE_AGAIN_S * self._rng.uniform(0.8, 1.2)
        self._chores.set("provide", now + pause_s)
        return [Provide(capability_keys(self.capacity))]

    # Leases and runs.

    def _preempt_all(
        self, grace_s: float | None, reason: str, now: float
    ) -> list[Effect]:
        effects: list[Effect] = []
        for lease in list(self._book):
            if lease.state == "held":
                withdrawal = Withdrawal(leases=(lease.id,), reason=reason)
                effects += [*self._close(lease, now), Send(lease.peer, withdrawal)]
            elif lease.state != "ending":
                effects += self._preempt(lease, grace_s, reason, now)
        return effects

    def _preempt(
        self, lease: Lease, grace_s: float | None, reason: str, now: float
    ) -> list[Effect]:
        run = self._runs.get(lease.running) if lease.running else None
        grace_s = run.task_grace_s if grace_s is None and run else grace_s or 0.0
        notice = Preemption(lease=lease.id, grace_s=grace_s, reason=reason)
        verdict = Outcome("preempted", reason=reason)
        effects: list[Effect] = [Send(lease.peer, notice)]
        return effects + self._end_lease(lease, verdict, grace_s, now)

    def _end_lease(
        self, lease: Lease, verdict: Outcome, grace_s: float | None, now: float
    ) -> list[Effect]:
        """Close a lease, first stopping what runs on it: devices are freed last."""
        if lease.running is None:
            return self._close(lease, now)
        lease.state = "ending"
        self._leases_due.drop(lease.id)
        run = self._runs[lease.running]
        grace_s = run.task_grace_s if grace_s is None else grace_s
        return self._stop(lease.running, verdict, grace_s)

    def _stop(self, attempt: Attempt, verdict: Outcome, grace_s: float) -> list[Effect]:
        run = self._runs[attempt]
        if run.verdict is None:
            run.verdict = verdict
        return [StopTask(attempt, grace_s)]

    def _close(self, lease: Lease, now: float) -> list[Effect]:
        self._leases_due.drop(lease.id)
        effects: list[Effect] = []
        for winner in self._book.close(lease):
            if winner.state == "displacing":
                winner.state = "committed"
                self._extend(winner, winner.lease_s, now)
                committed = Committed(request=winner.request, leases=(winner.id,))
                effects.append(Send(winner.peer, committed))
        return effects

    def _extend(self, lease: Lease, lease_s: float, now: float) -> None:
        lease.lease_s = min(lease_s, LEASE_MAX_S)
        lease.expires_at = now + lease.lease_s
        self._leases_due.set(lease.id, lease.expires_at)

    # Who may, and whether we want to.

    @property
    def _closed(self) -> bool:
        return self._draining or self._owner_active or not self._booted

    def _authority(
        self, peer: NodeId, demand: Demand, now: float
    ) -> Admission | str:
        """Return whose grant the demand stands on: its own, or its scheduler's."""
        if demand.grant is not None:
            return self._roster.verify(demand.grant.node, demand.grant, now)
        return self._roster.get(peer, now) or "no grant was shown"

    def _unwilling(self, demand: Demand, admission: Admission) -> str | None:
        if not self._booted:
            return "the worker is starting"
        if self._draining:
            return "the worker drains"
        if self._owner_active:
            return "the owner is using the machine"
        return self.rules.refusal(admission.owner, demand.driver)

    # What others are told of our room.

    def _show_inventory(self, peer: NodeId) -> list[Effect]:
        if len(self._subscribers) >= SUBSCRIBERS_MAX:
            self._subscribers.pop(next(iter(self._subscribers)))
        self._subscribers[peer] = None
        self._seq += 1
        inventory = Inventory(
            epoch=self._epoch,
            seq=self._seq,
            capacity=self.capacity,
            load=self.load,
            drivers=self.rules.drivers,
        )
        return [Send(peer, inventory)]

    def _note_load(self, now: float) -> None:
        """Plan to tell a changed load soon, and an unchanged one now and then."""
        if self._subscribers:
            changed = self._load_shown is not None and self.load != self._load_shown
            delay_s = INVENTORY_DELAY_S if changed else INVENTORY_REFRESH_S
            self._chores.set_earlier("tell", now + delay_s)
        if self._booted and "digest" not in self._chores and self.load != self._load_shown:
            self._chores.set("digest", now + DIGEST_S)

    def _tell_subscribers(self, now: float) -> list[Effect]:
        self._load_shown = load = self.load
        self._seq += 1
        changed = InventoryChanged(epoch=self._epoch, seq=self._seq, load=load)
        if self._subscribers:
            self._chores.set("tell", now + INVENTORY_REFRESH_S)
        return [Send(peer, changed) for peer in self._subscribers]

    def _spread_digest(self) -> list[Effect]:
        self._seq += 1
        digest = LoadDigest(
            node=self.node, epoch=self._epoch, seq=self._seq, load=self.load
        )
        return [Spread(digest)]


def could_ever_serve(capacity: Capacity, demand: Demand) -> bool:
    """Whether an idle worker of this capacity would fit the demand."""
    return not isinstance(Ledger(capacity).fit(demand.profile), str)


def _with_verdict(outcome: Outcome, verdict: Outcome | None) -> Outcome:
    """Return how it ended: by our stop, if we stopped it, whatever its exit code.

    A program that is told to stop often exits with 0 after a check-point.
    """
    if verdict is None:
        return outcome
    return msgspec.structs.replace(
        verdict, exit_code=outcome.exit_code, outputs=outcome.outputs
    )


def _refuse(
    peer: NodeId,
    request: RequestId,
    reason: str,
    leases: tuple[LeaseId, ...] = (),
) -> Send:
    return Send(peer, Refusal(request=request, reason=reason, leases=leases))


def _refuse_attempt(peer: NodeId, assignment: Assignment, reason: str) -> Send:
    refusal = Refusal(
        attempt=assignment.attempt, leases=(assignment.lease,), reason=reason
    )
    return Send(peer, refusal)
