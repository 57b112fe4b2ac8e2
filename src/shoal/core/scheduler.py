"""The scheduler machine: takes jobs, finds workers, brings every job to an end."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final, TypeAlias, TypeVar, final

import msgspec

from shoal.core.deadlines import DeadlineHeap, Deadlines
from shoal.core.discovery import Discovery
from shoal.core.dispatch import Dispatcher
from shoal.core.events import (
    AddressesChanged,
    Answer,
    Booted,
    CancelRequested,
    DeadlineReached,
    Effect,
    Event,
    JobSubmitted,
    LookedUp,
    MessageReceived,
    PathMeasured,
    PeerConnected,
    PeerLost,
    Record,
    Send,
    Show,
    Taker,
    WallClockRead,
)
from shoal.core.explaining import TaskExplanation, explain_task
from shoal.core.hearsay import Hearsay
from shoal.core.holdings import Holding, Holdings
from shoal.core.jobs import JobBook
from shoal.core.journal import Entry, Incarnated, Submitted
from shoal.core.matching import Matcher
from shoal.core.negotiation import Negotiator
from shoal.core.policies import Policies
from shoal.core.quotas import Quota, narrowed_job
from shoal.core.timing import HEARSAY_S, LINGER_S, TENURE_S
from shoal.core.verifying import Verifier
from shoal.core.vetting import flaw
from shoal.core.views import Views
from shoal.model.ids import GroupId, LeaseId, NodeId, TaskId
from shoal.policy.queue import Usage
from shoal.protocol.messages import (
    Checkpoint,
    Committed,
    Goodbye,
    Inquiry,
    Inventory,
    InventoryChanged,
    LoadDigest,
    LoadDigests,
    Offer,
    Output,
    Preemption,
    Progress,
    Refusal,
    Renewed,
    Report,
    Staging,
    Started,
    Withdrawal,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from random import Random

    from shoal.core.membership import Admission
    from shoal.core.roster import Roster
    from shoal.core.views import PathCost
    from shoal.model.job import Job
    from shoal.model.resources import Profile
    from shoal.protocol.messages import AnyMessage, Grant, Rumour


T = TypeVar("T")
Told: TypeAlias = Progress | Output | Staging | Checkpoint

KINDS_AT_ONCE: Final = 32  # kinds of groups that may wait before passes are spaced
REST_PER_KIND_S: Final = 1e-4  # between two passes, for each kind beyond those
ACQUAINTANCES_MAX: Final = 64  # workers that are asked what they have without need


@final
class Scheduler:
    """Decides what a scheduler does; the host does it, in the order returned."""

    def __init__(  # noqa: PLR0913 - each of these is a part that a host chooses
        self,
        node: NodeId,
        roster: Roster,
        *,
        journal: Iterable[Entry] = (),
        grant: Grant | None = None,
        policies: Policies | None = None,
        heard: Mapping[NodeId, Rumour] | None = None,
        path_cost: PathCost | None = None,
        rng: Random,
        now: float = 0.0,
    ) -> None:
        """Continue from `journal`, in the next generation; `Booted` sets it going.

        `heard` is what gossip says of workers, and changes; `path_cost` is asked
        about those whose distance nobody measured.
        """
        self.node = node
        self.counts: Counter[str] = Counter()
        self._roster = roster
        self._policies = policies or Policies()
        heap = self._heap = DeadlineHeap()
        self._views = Views(node, heap, path_cost)
        self._hearsay = Hearsay(node, {} if heard is None else heard, self._views.cost)
        book = self._book = JobBook(roster.wall_s(0.0))
        self._usage = Usage()
        table = self._views.table
        self._holdings = Holdings(table, self._heap)
        self._negotiator = Negotiator(node, self._holdings, table, self._heap)
        verifier = Verifier(book, roster.owner_of, rng)
        self._dispatcher = Dispatcher(
            node, book, self._holdings, self._usage, heap, self._views.address, verifier
        )
        self._discovery = Discovery(node, grant, rng, self._heap)
        self._matcher = Matcher(
            node,
            book=self._book,
            views=self._views,
            holdings=self._holdings,
            negotiator=self._negotiator,
            dispatcher=self._dispatcher,
            verifier=verifier,
            usage=self._usage,
            policies=self._policies,
            rng=rng,
            heap=self._heap,
        )
        self._lingering: Deadlines[LeaseId] = Deadlines(self._heap)
        self._match_wanted = False
        self._rests_until = float("-inf")
        self._chores: Deadlines[str] = Deadlines(self._heap)
        self._take = self._takers()
        for entry in journal:
            self._book.replay(entry, now, roster.wall_s(now))
        self._book.generation += 1

    # What others may read.

    @property
    def book(self) -> JobBook:
        """The jobs. Readers change nothing."""
        return self._book

    @property
    def holdings(self) -> Holdings:
        """The leases now."""
        return self._holdings

    @property
    def views(self) -> Views:
        """The workers as they are known now."""
        return self._views

    @property
    def matcher(self) -> Matcher:
        """What waits, and who refused it."""
        return self._matcher

    def explain(self, task: TaskId) -> TaskExplanation | None:
        """Say why a task runs where it runs, or why it waits; None if unknown."""
        return explain_task(
            task,
            book=self._book,
            views=self._views,
            holdings=self._holdings,
            matcher=self._matcher,
            negotiator=self._negotiator,
        )

    # The one door.

    def handle(self, event: Event, now: float) -> list[Effect]:
        """Take in one fact; return what to do about it. Raising is a bug."""
        match event:
            case MessageReceived():
                take = self._take.get(type(event.message), self._ignore)
                effects = take(event.peer, event.message, now)
            case DeadlineReached():
                effects = self._on_deadline(now)
            case JobSubmitted():
                effects = self._on_job_submitted(event, now)
            case CancelRequested():
                effects = self._on_cancel_requested(event, now)
            case PeerConnected():
                effects = self._on_peer_connected(event.peer, now)
            case PeerLost():
                effects = self._on_worker_lost(event.peer, "the worker was lost", now)
            case LookedUp():
                request = self._negotiator.next_request(self._book.generation)
                effects = self._discovery.on_looked_up(event, self._views, request)
            case PathMeasured():
                self._views.on_path_measured(event.peer, event.rtt_s)
                effects = []
            case AddressesChanged():
                self._discovery.addresses = event.addresses
                effects = []
            case Booted():
                effects = self._on_booted(now)
            case WallClockRead():
                self._book.wall_at_zero_s = event.wall_s - now
                effects = []
            case _:
                effects = []  # A fact for another role of this node.
        if (
            self._match_wanted
            or self._dispatcher.changed
            or self._dispatcher.freed
            or self._holdings.lines.opened
            or self._negotiator.has_news
        ):
            effects += self._follow_up(now)
        return effects

    def renew(self, grant: Grant) -> None:
        """Show this grant in announcements from now on."""
        self._discovery.grant = grant

    def next_deadline(self) -> float | None:
        """When to deliver `DeadlineReached`, if ever."""
        return self._heap.next()

    # Clients of this node.

    def _on_job_submitted(self, event: JobSubmitted, now: float) -> list[Effect]:
        job = event.job
        if job.id in self._book.jobs:
            return [Answer(event.token, job.id)]
        admission = self._submitter(event, now)
        if isinstance(admission, str):
            return [Answer(event.token, job.id, refused=admission)]
        if reason := flaw(job) or self._policies.refusal(job.policy):
            return [Answer(event.token, job.id, refused=reason)]
        entry = Submitted(
            _clamped(job, admission),
            self._roster.wall_s(now),
            admission.quota_gpus,
            admission.quota_cpu_milli,
        )
        entries = self._book.submit(entry, now)
        for group in job.groups:
            self._dispatcher.changed[group.id] = None
        return [*map(Record, entries), Answer(event.token, job.id)]

    def _submitter(self, event: JobSubmitted, now: float) -> Admission | str:
        if event.grant is not None:
            return self._roster.verify(event.grant.node, event.grant, now)
        return self._roster.recall(self.node, now)

    def _on_cancel_requested(self, event: CancelRequested, now: float) -> list[Effect]:
        job = self._book.jobs.get(event.job)
        if job is None:
            why = f"no job {event.job} here"
            return [Answer(event.token, event.job, refused=why)]
        if job.state != "active":
            return [Answer(event.token, event.job)]
        effects = self._dispatcher.cancel_job(event.job, event.reason, now)
        for group in job.job.groups:
            effects += self._negotiator.abandon(group.id)
        return [*effects, Answer(event.token, event.job)]

    # Life.

    def _on_booted(self, now: float) -> list[Effect]:
        """Take up what an earlier life left: its generation first, then its runs."""
        effects: list[Effect] = [self._incarnate()]
        effects += self._dispatcher.recover(now)
        for group in self._book.groups:
            self._dispatcher.changed[group] = None
        return effects

    def _incarnate(self) -> Effect:
        return Record(Incarnated(self._book.generation))

    def _on_peer_connected(self, peer: NodeId, now: float) -> list[Effect]:
        self._holdings.renew_soon(peer, now)
        admission = self._roster.get(peer, now)
        is_worker = admission is not None and "worker" in admission.roles
        if not is_worker or peer in self._views:
            return []
        # In a small shoal people want to see what there is before they need it; in a
        # large one nobody looks at everybody, and those with room answer a demand.
        if self._discovery.wants or len(self._views) < ACQUAINTANCES_MAX:
            return [self._inquire(peer)]
        return []

    def _on_worker_lost(self, worker: NodeId, reason: str, now: float) -> list[Effect]:
        self._views.forget(worker)
        effects = self._negotiator.on_worker_lost(worker, now)
        return effects + self._dispatcher.on_worker_lost(worker, reason, now)

    # Messages.

    def _takers(self) -> dict[type, Taker]:
        """Say who takes in which message: a table, as a node hears many a second."""
        return {
            InventoryChanged: self._on_load,
            LoadDigest: self._on_load,
            LoadDigests: self._on_rumours,
            Inventory: self._on_inventory,
            Offer: self._negotiator.on_offer,
            Committed: self._negotiator.on_committed,
            Withdrawal: self._on_withdrawal,
            Renewed: self._on_renewed,
            Started: self._on_started,
            Report: self._dispatcher.on_report,
            Refusal: self._on_refusal,
            Preemption: self._on_preemption,
            Goodbye: self._on_goodbye,
            **dict.fromkeys((Progress, Output, Staging, Checkpoint), self._on_told),
        }

    def _ignore(self, _peer: NodeId, message: AnyMessage, _now: float) -> list[Effect]:
        self.counts[f"ignored:{type(message).__name__}"] += 1
        return []

    def _on_rumours(
        self, _peer: NodeId, _digests: LoadDigests, now: float
    ) -> list[Effect]:
        return self._ask_around(now)

    def _on_renewed(self, peer: NodeId, renewed: Renewed, now: float) -> list[Effect]:
        effects = self._negotiator.on_gone(peer, renewed.gone, now)
        return effects + self._dispatcher.on_renewed(peer, renewed, now)

    def _on_withdrawal(
        self, peer: NodeId, withdrawal: Withdrawal, now: float
    ) -> list[Effect]:
        return self._negotiator.on_gone(peer, withdrawal.leases, now)

    def _on_started(self, peer: NodeId, started: Started, now: float) -> list[Effect]:
        self._dispatcher.on_started(peer, started.attempt, now, started.allocation)
        return []

    def _on_told(self, peer: NodeId, message: Told, now: float) -> list[Effect]:
        task = self._dispatcher.on_started(peer, message.attempt, now)
        return [Show(task, message)] if task else []

    def _on_refusal(self, peer: NodeId, refusal: Refusal, now: float) -> list[Effect]:
        part = self._negotiator if refusal.attempt is None else self._dispatcher
        return part.on_refusal(peer, refusal, now)

    def _on_goodbye(self, peer: NodeId, _goodbye: Goodbye, now: float) -> list[Effect]:
        return self._on_worker_lost(peer, "the worker left", now)

    def _on_inventory(
        self, peer: NodeId, inventory: Inventory, now: float
    ) -> list[Effect]:
        epoch = self._views.epoch(peer)
        if self._views.on_inventory(peer, inventory, now):
            self._matcher.on_load_changed(peer)
            self._match_wanted = True
            if epoch != inventory.epoch:
                # A new life has none of our leases: hear it from the worker itself.
                self._holdings.renew_soon(peer, now)
        return []

    def _on_load(
        self, peer: NodeId, message: InventoryChanged | LoadDigest, now: float
    ) -> list[Effect]:
        if type(message) is LoadDigest and message.node != peer:
            self.counts["digest of another node"] += 1
            return []
        news = self._views.on_load(peer, message, now)
        if news is None:
            asked = isinstance(message, InventoryChanged) or self._discovery.wants
            return [self._inquire(peer)] if asked else []
        if news:
            self._matcher.on_load_changed(peer)
            self._match_wanted = True
        return []

    def _on_preemption(
        self, peer: NodeId, message: Preemption, now: float
    ) -> list[Effect]:
        holding = self._holdings.at(peer, message.lease)
        if holding is None:
            return []
        if holding.attempt is None:
            effects = self._negotiator.on_gone(peer, (message.lease,), now)
            self._holdings.drop(holding)
            return effects
        if run := self._book.runs.get(holding.attempt):
            self._book.tasks[run.task].reason = f"being preempted: {message.reason}"
        return []

    def _inquire(self, peer: NodeId) -> Send:
        request = self._negotiator.next_request(self._book.generation)
        return Send(peer, Inquiry(request=request))

    # Deadlines.

    def _on_deadline(self, now: float) -> list[Effect]:
        self._views.expire(now)
        effects = self._negotiator.due(now)
        effects += self._dispatcher.due(now)
        renewals, silent = self._holdings.due(now)
        effects += renewals
        for worker in silent:
            effects += self._on_worker_lost(worker, "the worker is silent", now)
        if self._matcher.due(now):
            self._match_wanted = True
        effects += self._discovery.due(self._book.generation, now)
        if self._chores.pop_due(now):
            self._match_wanted = True
        return effects + self._release_idle(now)

    def _release_idle(self, now: float) -> list[Effect]:
        """Return slots to their workers that waited for a task long enough."""
        due = self._lingering.pop_due(now)
        if not due:
            return []
        held = [self._holdings.get(lease) for lease in due]
        idle = [h for h in held if h is not None and self._holdings.is_idle(h)]
        return self._holdings.release(idle)

    # What follows.

    def _follow_up(self, now: float) -> list[Effect]:
        """Use what the parts have left: won slots, freed ones, changed needs."""
        effects = self._use_winnings(now) if self._negotiator.has_news else []
        if self._dispatcher.freed:
            effects += self._reuse_freed(now)
        for group, worker in _drained(self._dispatcher.not_started):
            self._matcher.suiting.on_not_started(group, worker, now)
        if self._dispatcher.changed:
            for group in self._dispatcher.changed:
                self._matcher.note(group)
            self._dispatcher.changed.clear()
            self._match_wanted = True
        if self._holdings.lines.opened:
            self._holdings.lines.opened = False
            self._match_wanted = True
        if self._match_wanted:
            effects += self._match_or_rest(now)
        return effects

    def _reuse_freed(self, now: float) -> list[Effect]:
        """Let the next task have a slot whose task has ended, but not for ever."""
        effects: list[Effect] = []
        for holding in _drained(self._dispatcher.freed):
            if now - holding.since > TENURE_S:
                effects += self._holdings.release([holding])
            else:
                self._offer_idle(holding, now)
        return effects

    def _use_winnings(self, now: float) -> list[Effect]:
        """Take what became of the negotiations."""
        effects: list[Effect] = []
        for round_ in _drained(self._negotiator.whole):
            effects += self._start_gang(round_.wish.group, list(round_.leases), now)
        for holding in _drained(self._negotiator.secured):
            self._offer_idle(holding, now)
            self._matcher.note(holding.group)
        for worker, wish, reason in _drained(self._negotiator.refused):
            self._matcher.on_refused(worker, wish, reason, now)
            self._match_wanted = True
        for group in _drained(self._negotiator.missed):
            self._matcher.note(group)
            self._match_wanted = True
        for round_ in _drained(self._negotiator.failed):
            self._matcher.on_round_failed(round_, now)
            self._match_wanted = True
        return effects

    def _match_or_rest(self, now: float) -> list[Effect]:
        """Match now; but if many kinds wait, each tried in a pass, not every time."""
        if now < self._rests_until:
            self._chores.set_earlier("match", self._rests_until)
            return []
        kinds = self._matcher.kinds
        if kinds == 0 and not self._negotiator.rounds and not self._discovery.wants:
            self._match_wanted = False
            return []  # Nobody waits, so there is nothing to say to anybody.
        if kinds > KINDS_AT_ONCE:
            self._rests_until = now + REST_PER_KIND_S * (kinds - KINDS_AT_ONCE)
        return self._match(now)

    def _match(self, now: float) -> list[Effect]:
        effects: list[Effect] = []
        for round_ in list(self._negotiator.rounds.values()):
            effects += self._matcher.refill(round_, now)
        effects += self._matcher.match(now)
        self._dispatcher.changed.clear()
        self._holdings.lines.opened = False
        self._match_wanted = self._matcher.cut_short
        asked = self._ask_around(now, self._matcher.unmet)
        wait_s = HEARSAY_S if asked else 0.0
        self._discovery.want(self._matcher.unmet, now, wait_s=wait_s)
        return effects + asked

    def _ask_around(
        self, now: float, unmet: Mapping[Profile, int] | None = None
    ) -> list[Effect]:
        """Ask workers that gossip says have room for what is unmet."""
        wants = self._discovery.wants if unmet is None else unmet
        if not wants:
            return []
        asked = self._hearsay.whom_to_ask(wants, self._views, now)
        return [self._inquire(peer) for peer in asked]

    def _offer_idle(self, holding: Holding, now: float) -> None:
        """Let waiting tasks use a slot; it goes back to its worker if none comes."""
        self._holdings.make_idle(holding)
        self._lingering.set(holding.lease, now + LINGER_S)
        self._match_wanted = True

    def _start_gang(
        self, group_id: GroupId, leases: list[LeaseId], now: float
    ) -> list[Effect]:
        """Start a gang on leases that are all committed, or let them all go."""
        group = self._book.groups.get(group_id)
        held = [h for lease in leases if (h := self._holdings.get(lease))]
        held.sort(key=lambda holding: (holding.worker, holding.lease))
        tasks = sorted(
            group.waiting if group else (),
            key=lambda task: self._book.tasks[task].task.index,
        )
        least = min(group.group.gang_min, group.open) if group else 0
        if group is None or least == 0 or min(len(held), len(tasks)) < least:
            return self._holdings.release(held)
        effects = self._dispatcher.assign(list(zip(tasks, held, strict=False)), now)
        return effects + self._holdings.release(held[len(tasks) :])


def _clamped(job: Job, admission: Admission) -> Job:
    """Return a job with no more than its submitter may ask for."""
    quota = Quota(admission.quota_gpus, admission.quota_cpu_milli)
    clamped = msgspec.structs.replace(
        job, owner=admission.owner, priority=admission.clamp(job.priority)
    )
    return narrowed_job(clamped, quota)


def _drained(items: list[T]) -> list[T]:
    if not items:
        return []
    taken = items[:]
    items.clear()
    return taken
