"""The scheduler machine: takes jobs, finds workers, brings every job to an end.

Theory of operation. The scheduler owns the parts and joins them; each has one concern:

    JobBook          what became of jobs and tasks; every change is a journal entry
    GroupQueue       which groups need slots, and who is next
    Matcher          gives out leases at hand, and asks workers for more
    Migrations       moves running gangs to better places, when that pays
    Negotiator       `Demand`, `Offer`, `Commit`: wins leases, for gangs all or none
    HeldLeases       the leases we have, their renewal, and which are idle
    Dispatcher       `Assignment`, `Report`: runs tasks on leases, retries, gives up
    Verifier         how many answers a task needs whose workers are not trusted
    WorkerSearch     announces and looks up what no known worker can run
    Schedules        starts the next run of a job that runs again and again
    Children         what tasks may submit, and what ends with them
    Submissions      whether a new job is accepted, and with what rights
    Succession       keeps jobs at several nodes, and decides which of them goes on
    Forwarding       which whole jobs another scheduler should have

`handle` passes a fact to the part that it concerns. A part returns consequences:
effects, for the host, and notices, such as `Won` or `Freed`, for the other parts. The
scheduler applies notices until none is left; then, if any of them may let somebody be
served, it runs one pass of the matcher. While many kinds of groups wait, passes are
spaced, so that a flood of news costs no more than it should.

Durable are the journal entries, returned as `Record` before whatever depends on them
(`core.durability.barrier`): jobs, assignments, ends, cancellations, the generation.
All else is rebuilt after a restart: workers are found again, leases renewed by those
who still hold them, groups queued anew.

What peers send may be late, repeated or forged. A part ignores what does not fit its
state, and only what comes from the worker concerned counts.
"""

from __future__ import annotations

from collections import Counter
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, TypeAlias, assert_never, final, get_args

from shoal.core.artifacts.events import (
    CheckpointKept,
    CheckpointMissed,
    FetchCheckpoint,
    FetchEvent,
    KeptFetched,
    KeptMissed,
    OutputsFetched,
    OutputsLost,
)
from shoal.core.artifacts.provisions import Provisions, Seal, seal_nothing
from shoal.core.artifacts.result_intake import ResultIntake
from shoal.core.deadlines import DeadlineHeap, Deadlines
from shoal.core.discovery.gossip_candidates import GossipCandidates
from shoal.core.discovery.worker_search import WorkerSearch
from shoal.core.discovery.worker_views import WorkerViews
from shoal.core.dispatch.dispatcher import Dispatcher
from shoal.core.dispatch.output_intake import OutputIntake
from shoal.core.durability.journal import Entry, Incarnated
from shoal.core.events import (
    AddressesChanged,
    Answer,
    Booted,
    CancelRequested,
    DeadlineReached,
    DepartureNear,
    Effect,
    Event,
    GrantChanged,
    JobSubmitted,
    LookedUp,
    MessageReceived,
    PathMeasured,
    PeerConnected,
    PeerLost,
    Record,
    Send,
    Show,
    SizeEstimated,
    WallClockRead,
)
from shoal.core.housekeeping.events import EndCallEnded, JobMeasured, RemovalRequested
from shoal.core.housekeeping.retention import KeepRule
from shoal.core.housekeeping.upkeep import Upkeep
from shoal.core.machine import Mount
from shoal.core.negotiation.held_leases import HeldLease, HeldLeases
from shoal.core.negotiation.negotiator import GangRound, Negotiator
from shoal.core.proximity.events import SitesChanged
from shoal.core.scheduling.children import Children
from shoal.core.scheduling.explanations import (
    Prospects,
    TaskExplanation,
    explain_task,
    never,
    too_large,
)
from shoal.core.scheduling.group_queue import GroupQueue
from shoal.core.scheduling.job_book import JobBook
from shoal.core.scheduling.job_validation import Submissions, why_not_cancelled
from shoal.core.scheduling.matcher import Matcher
from shoal.core.scheduling.migrations import Migrations
from shoal.core.scheduling.notices import (
    Consequence,
    Freed,
    GangFailed,
    GangReady,
    NeedChanged,
    Notice,
    NotStarted,
    PartNotice,
    Refused,
    Released,
    RoomChanged,
    SavedElsewhere,
    TakenUp,
    Won,
)
from shoal.core.scheduling.policy_lookup import PolicyLookup
from shoal.core.scheduling.refusal_cache import RefusalCache
from shoal.core.scheduling.reservations import Reservations
from shoal.core.scheduling.schedules import Schedules
from shoal.core.scheduling.slot_placer import SlotPlacer
from shoal.core.scheduling.task_selection import TaskSelection
from shoal.core.succession.forwarding import STAY, Forwarding, ForwardRule
from shoal.core.succession.succession import Succession
from shoal.core.timing import HEARSAY_S, LINGER_S, TENURE_S
from shoal.core.verification.verifier import Verifier
from shoal.model.ids import JobId, LeaseId, NodeId, TaskId
from shoal.model.spec.schedules import ZoneLookup, utc_only
from shoal.policy.queueing.queue import Usage
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
    ToScheduler,
    Withdrawal,
)
from shoal.protocol.succession.messages import SchedulerLoad, ToKeeper

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping
    from random import Random

    from shoal.core.discovery.worker_views import PathCost
    from shoal.core.membership.roster import Roster
    from shoal.model.job import Group, Job
    from shoal.model.resources import Profile
    from shoal.protocol.messages import AnyMessage, Grant, Rumour


Told: TypeAlias = Progress | Staging | Checkpoint
_Taker: TypeAlias = "Callable[[NodeId, Any, float], list[Consequence]]"

KINDS_AT_ONCE: Final = 32  # more kinds than this wait: space passes
REST_PER_KIND_S: Final = 1e-4  # between passes, per kind beyond those
ACQUAINTANCES_MAX: Final = 64  # workers that are asked for an inventory unneeded

NEVER: Final = float("-inf")
KEEP_ALL: Final = KeepRule()
NOTHING_HEARD: Final[Mapping[NodeId, Rumour]] = MappingProxyType({})


@final
class Scheduler:
    """Decides what a scheduler does; the host does it, in the order returned."""

    mount = Mount(
        takes={
            **dict.fromkeys(get_args(ToScheduler), "worker"),
            **dict.fromkeys((*get_args(ToKeeper), SchedulerLoad), "scheduler"),
            LoadDigests: None,
        },
        hears=(
            JobSubmitted,
            CancelRequested,
            LookedUp,
            PathMeasured,
            SitesChanged,
            GrantChanged,
            DepartureNear,
            *get_args(FetchEvent),
            RemovalRequested,
            JobMeasured,
            EndCallEnded,
        ),
    )

    def __init__(  # noqa: PLR0913 - each of these is a part that a host chooses
        self,
        node: NodeId,
        roster: Roster,
        *,
        journal: Iterable[Entry] = (),
        grant: Grant | None = None,
        policies: PolicyLookup | None = None,
        heard: Mapping[NodeId, Rumour] = NOTHING_HEARD,
        path_cost: PathCost | None = None,
        seal: Seal = seal_nothing,
        keep: KeepRule = KEEP_ALL,
        zone: ZoneLookup = utc_only,
        forward: ForwardRule = STAY,
        rng: Random,
        now: float = 0.0,
    ) -> None:
        """Continue from `journal`, in the next generation; `Booted` sets it going.

        `heard` is rumours about workers, kept up to date by gossip; `path_cost` guesses
        how far workers are; `keep` limits how many ended jobs stay; `zone` knows zones.
        """
        self.node, self.counts, journal = node, Counter[str](), tuple(journal)
        self._roster, self._policies = roster, policies or PolicyLookup()
        book = self.book = _next_life(journal, roster, now)
        heap = self._heap = DeadlineHeap()
        self.succession = self._make_succession(journal, now, forward.keepers)
        views = self.views = WorkerViews(node, heap, path_cost)
        hints = self._gossip_candidates = GossipCandidates(node, heard, views.cost)
        self._discovery = WorkerSearch(node, grant, rng, heap)
        holdings = self.holdings = HeldLeases(views.table, heap)
        negotiator = self._negotiator = Negotiator(
            node, book.generation, holdings, views.table, heap
        )
        provisions = self._provisions = Provisions(book, grant, seal)
        usage, verifier = Usage(), Verifier(book, roster.owner_of, rng)
        self._dispatcher = Dispatcher(
            node, book, holdings, usage, heap, views.address, verifier, provisions
        )
        self._upkeep, self._outputs = Upkeep(book, keep, heap, now), OutputIntake(heap)
        self.schedules = Schedules(book, roster, zone, heap)
        self.children, cache = Children(book, views), RefusalCache(heap)
        self._refusals, self._reservations = cache, Reservations(book, views, holdings)
        choice = self._selection = TaskSelection(book, views, holdings, verifier, heap)
        self._queue = GroupQueue(
            book, negotiator, self._reservations, usage, self._policies.order, rng, heap
        )
        self.results = ResultIntake(book, self._dispatcher, self._outputs)
        queue, kept, runner = self._queue, self._reservations, self._dispatcher
        placer = SlotPlacer(node, views, hints, self._policies, cache, choice, rng)
        self._forwarding = self._make_forwarding(heap, forward)
        self._submissions = self._make_submissions()
        matcher = self._matcher = Matcher(
            book, queue, placer, choice, kept, holdings, negotiator, runner
        )
        self._placer, self._prospects = placer, Prospects(book, self.views)
        self._migrations = Migrations(book, queue, placer, matcher, holdings, heap)
        self._lingering, self._chores = Deadlines[LeaseId](heap), Deadlines[str](heap)
        self._match_wanted, self._rests_until, self._take = False, NEVER, self._takers()

    def _make_succession(
        self, journal: Iterable[Entry], now: float, keepers: int
    ) -> Succession:
        known = (self.node, self._roster, self.book, self._heap)
        return Succession(*known, journal, now, unasked=keepers)

    def _make_forwarding(self, heap: DeadlineHeap, rule: ForwardRule) -> Forwarding:
        known = (self._roster, self.book, self.views)
        parts = (self.succession, self._provisions)
        return Forwarding(self.node, *known, *parts, heap, rule)

    def _make_submissions(self) -> Submissions:
        parts = (self.schedules, self.children, self.succession)
        return Submissions(self.node, self._roster, self._policies, *parts)

    # What others may read.

    def explain(self, task: TaskId) -> TaskExplanation | None:
        """Say why a task runs where it runs, or why it waits; None if unknown."""
        record = self.book.tasks.get(task)
        return explain_task(
            task,
            kept=self.succession.why_suspended(record.task.job) if record else "",
            book=self.book,
            views=self.views,
            holdings=self.holdings,
            queue=self._queue,
            reservations=self._reservations,
            refusals=self._refusals,
            negotiator=self._negotiator,
            dispatcher=self._dispatcher,
            policies=self._policies,
            placer=self._placer,
        )

    def hopeless(self, job: Job) -> list[str]:
        """Say which groups of a job no known worker could run even when idle."""
        return self._prospects.hopeless(job)

    def never(self, job: Job) -> str:
        """Say why no known worker could run the first group of a job, if so."""
        return never(job, self.views)

    def too_large(self, group: Group, job: Job) -> str:
        """Say that the known workers could not hold a gang even when idle, if so."""
        return too_large(group, job, self.views)

    @property
    def has_waiting(self) -> bool:
        """Whether any group waits for slots."""
        return self._queue.kinds > 0

    def room_wanted(
        self, tasks: Iterable[TaskId], besides: Collection[JobId]
    ) -> list[TaskId]:
        """Of some running tasks, return those whose end would let a waiting job fit.

        Jobs that are not to count as waiting are `besides`.
        """
        if not self._queue.kinds:
            return []
        held: dict[NodeId, dict[TaskId, HeldLease]] = {}
        for task in tasks:
            record = self.book.tasks.get(task)
            for run in record.live.values() if record else ():
                if holding := self.holdings.at(run.worker, run.lease):
                    held.setdefault(run.worker, {})[task] = holding
        return self._matcher.room_wanted(held, besides)

    # The one door.

    def handle(self, event: Event, now: float) -> list[Effect]:
        """Take in one fact; return what to do about it. Raising is a bug."""
        effects = self._applied(self._on_event(event, now), now)
        while self.book.left:
            for job, reason in self.children.orphans():
                effects += self._applied(self._cancel(job, reason, now), now)
        ended = self.book.take_ended_runs()
        effects += [*self.results.drop(ended), *self._upkeep.look(ended, now)]
        self.schedules.look(now)
        if self._match_wanted:
            effects += self._match_or_rest(now)
        self.book.tasks.settle()
        return self.succession.watch(effects, now)

    def _on_event(self, event: Event, now: float) -> list[Consequence]:
        match event:
            case MessageReceived():
                take = self._take.get(type(event.message), self._ignore)
                return take(event.peer, event.message, now)
            case DeadlineReached():
                return self._on_deadline(now)
            case JobSubmitted():
                return self._on_job_submitted(event, now)
            case CancelRequested():
                return self._on_cancel_requested(event, now)
            case PeerConnected():
                return self._on_peer_connected(event.peer, now)
            case PeerLost():
                self.succession.on_lost(event.peer)
                self._forwarding.on_lost(event.peer)
                return self._on_worker_lost(event.peer, "the worker was lost", now)
            case LookedUp():
                request = self._negotiator.next_request()
                return [*self._discovery.on_looked_up(event, self.views, request)]
            case OutputsFetched() | OutputsLost():
                return self.results.settle(event, now)
            case CheckpointKept() | CheckpointMissed():
                return self._on_checkpoint_fetched(event, now)
            case DepartureNear():
                left = self._forwarding.leave(now) if event.for_good else []
                return [*self.succession.hand_over(now), *left]
            case KeptFetched() | KeptMissed():
                return self.succession.on_fetched(event, now)
            case RemovalRequested() | JobMeasured() | EndCallEnded():
                return [*self._upkeep.on_event(event, now)]
            case Booted():
                self.children.recover()
                stood = self.succession.boot(now)
                lives = Record(Incarnated(self.book.generation))
                return [lives, *self._dispatcher.recover(now), *stood]
            case _:
                self._note(event, now)
        return []

    def _note(self, event: Event, now: float) -> None:
        """Take in a fact from which nothing follows at once."""
        match event:
            case PathMeasured():
                self.views.on_path_measured(event.peer, event.rtt_s)
            case SitesChanged():
                self.views.on_sites(event)
            case GrantChanged():
                self._discovery.grant = event.grant  # It is shown in announcements.
            case AddressesChanged():
                self._discovery.addresses = event.addresses
            case SizeEstimated():
                self._discovery.on_size(event.nodes)
            case WallClockRead():
                self.book.wall_at_zero_s = event.wall_s - now
            case _:
                pass  # A fact for another role of this node.

    def next_deadline(self) -> float | None:
        """When to deliver `DeadlineReached`, if ever."""
        return self._heap.next()

    # Clients of this node.

    def _on_job_submitted(self, event: JobSubmitted, now: float) -> list[Consequence]:
        job = event.job
        if job.id in self.book.jobs:
            return [Answer(event.token, job.id)]
        entry = self._submissions.entry_of(event, now)
        if isinstance(entry, str):
            return [Answer(event.token, job.id, refused=entry)]
        entries = self.book.submit(entry, now)
        entries += self._provisions.sealed_for(entry.job, entry.members)
        self._forwarding.on_submitted(job.id, now)
        needs = [NeedChanged(group.id) for group in job.groups]
        return [*map(Record, entries), Answer(event.token, job.id), *needs]

    def _on_cancel_requested(
        self, event: CancelRequested, now: float
    ) -> list[Consequence]:
        if why := why_not_cancelled(self.book, event):
            return [Answer(event.token, event.job, refused=why)]
        follows: list[Consequence] = []
        if event.task is not None:
            follows += self._dispatcher.cancel_task(event.task, event.reason, now)
            if not (group := self.book.group_of(event.task)).waiting:
                follows += self._negotiator.abandon(group.id)
        elif self.book.jobs[event.job].state == "active":
            follows += self._cancel(event.job, event.reason, now)
        return [*follows, Answer(event.token, event.job)]

    def _cancel(self, job: JobId, reason: str, now: float) -> list[Consequence]:
        follows = self._dispatcher.cancel_job(job, reason, now)
        for group in self.book.jobs[job].job.groups:
            follows += self._negotiator.abandon(group.id)
        return follows

    # Life.

    def _on_peer_connected(self, peer: NodeId, now: float) -> list[Consequence]:
        self.succession.on_linked(peer, now)
        told = self._forwarding.on_linked(peer, now)
        self.holdings.renew_soon(peer, now)
        admission = self._roster.get(peer, now)
        is_worker = admission is not None and "worker" in admission.roles
        if not is_worker or peer in self.views:
            return told
        # In a small shoal people want to see all workers before they need any. In a
        # large one nobody reads so long a list, and workers answer announcements.
        if self._discovery.wants or len(self.views) < ACQUAINTANCES_MAX:
            return [*told, self._inquire(peer)]
        return told

    def _on_worker_lost(
        self, worker: NodeId, reason: str, now: float
    ) -> list[Consequence]:
        self.views.forget(worker)
        follows = self._negotiator.on_worker_lost(worker, now)
        return follows + self._dispatcher.on_worker_lost(worker, reason, now)

    # Messages.

    def _takers(self) -> dict[type, _Taker]:
        """Return who takes which message: a table, as there are many a second."""
        return {
            **dict.fromkeys((InventoryChanged, LoadDigest), self._on_load),
            LoadDigests: self._on_rumours,
            Inventory: self._on_inventory,
            Offer: self._negotiator.on_offer,
            Committed: self._negotiator.on_committed,
            Withdrawal: self._on_withdrawal,
            Renewed: self._on_renewed,
            Started: self._on_started,
            Report: self.results.on_report,
            Refusal: self._on_refusal,
            Preemption: self._on_preemption,
            Goodbye: self._on_goodbye,
            Output: self._on_output,
            **dict.fromkeys((Progress, Staging, Checkpoint), self._on_told),
            **dict.fromkeys(get_args(ToKeeper), self.succession.on_message),
            SchedulerLoad: self._forwarding.on_load,
        }

    def _ignore(
        self, _peer: NodeId, message: AnyMessage, _now: float
    ) -> list[Consequence]:
        self.counts[f"ignored:{type(message).__name__}"] += 1
        return []

    def _on_rumours(
        self, _peer: NodeId, _digests: LoadDigests, now: float
    ) -> list[Consequence]:
        return [*self._ask_around(now)]

    def _on_renewed(
        self, peer: NodeId, renewed: Renewed, now: float
    ) -> list[Consequence]:
        follows = self._negotiator.on_gone(peer, renewed.gone, now)
        return follows + self._dispatcher.on_renewed(peer, renewed, now)

    def _on_withdrawal(
        self, peer: NodeId, withdrawal: Withdrawal, now: float
    ) -> list[Consequence]:
        return self._negotiator.on_gone(peer, withdrawal.leases, now)

    def _on_started(
        self, peer: NodeId, started: Started, now: float
    ) -> list[Consequence]:
        allocation = started.allocation
        return self._dispatcher.on_started(peer, started.attempt, now, allocation)

    def _on_told(self, peer: NodeId, message: Told, now: float) -> list[Consequence]:
        task = self._dispatcher.task_of(peer, message.attempt)
        if task is None:
            return []
        found = self._dispatcher.on_started(peer, message.attempt, now)
        if type(message) is Checkpoint:
            run = self.book.runs[message.attempt]
            fetch = self._provisions.on_checkpoint(run, message)
            if fetch:
                self._migrations.on_fetching(run.task, now)
            found += fetch
        elif type(message) is Progress:
            self._migrations.on_progress(self.book.runs[message.attempt], message, now)
            found += self._dispatcher.on_progress(message, now)
        return [Show(task, message), *found]

    def _on_checkpoint_fetched(
        self, event: CheckpointKept | CheckpointMissed, now: float
    ) -> list[Consequence]:
        effects = self._provisions.on_fetched(event)
        if isinstance(event, CheckpointKept):
            self._migrations.on_kept(event.task, now)
        if any(isinstance(effect, FetchCheckpoint) for effect in effects):
            self._migrations.on_fetching(event.task, now)
        return [*effects]

    def _on_output(self, peer: NodeId, output: Output, now: float) -> list[Consequence]:
        task = self._dispatcher.task_of(peer, output.attempt)
        if task is None and not self._outputs.knows(peer):
            return []
        is_new, answers = self._outputs.take(peer, output, now)
        if task is None:
            return [*answers]
        found = self._dispatcher.on_started(peer, output.attempt, now)
        # What was shown is written when the receipt leaves.
        return [Show(task, output), *answers, *found] if is_new else [*answers, *found]

    def _on_refusal(
        self, peer: NodeId, refusal: Refusal, now: float
    ) -> list[Consequence]:
        part = self._negotiator if refusal.attempt is None else self._dispatcher
        return part.on_refusal(peer, refusal, now)

    def _on_goodbye(self, peer: NodeId, _: Goodbye, now: float) -> list[Consequence]:
        return self._on_worker_lost(peer, "the worker left", now)

    def _on_inventory(
        self, peer: NodeId, inventory: Inventory, now: float
    ) -> list[Consequence]:
        epoch = self.views.epoch(peer)
        if not self.views.on_inventory(peer, inventory, now):
            return []
        if epoch != inventory.epoch:
            # A restarted worker has none of our leases: let it say so.
            self.holdings.renew_soon(peer, now)
        self._refusals.ask_again(peer)
        return [RoomChanged()]

    def _on_load(
        self, peer: NodeId, message: InventoryChanged | LoadDigest, now: float
    ) -> list[Consequence]:
        if type(message) is LoadDigest and message.node != peer:
            self.counts["digest of another node"] += 1
            return []
        news = self.views.on_load(peer, message, now)
        if news is None:
            asked = isinstance(message, InventoryChanged) or self._discovery.wants
            return [self._inquire(peer)] if asked else []
        if not news:
            return []
        self._refusals.ask_again(peer)
        return [RoomChanged()]

    def _on_preemption(
        self, peer: NodeId, message: Preemption, now: float
    ) -> list[Consequence]:
        holding = self.holdings.at(peer, message.lease)
        if holding is None:
            return []
        if holding.attempt is None:
            follows = self._negotiator.on_gone(peer, (message.lease,), now)
            self.holdings.drop(holding)
            return follows
        if run := self.book.runs.get(holding.attempt):
            self.book.tasks[run.task].reason = f"being preempted: {message.reason}"
        return []

    def _inquire(self, peer: NodeId) -> Send:
        request = self._negotiator.next_request()
        return Send(peer, Inquiry(request=request))

    # Deadlines.

    def _on_deadline(self, now: float) -> list[Consequence]:
        self.views.expire(now)
        follows = self._negotiator.due(now)
        follows += self._dispatcher.due(now)
        follows += self._migrations.due(now)
        follows += self._outputs.due(now)
        renewals, silent = self.holdings.due(now)
        follows += renewals
        for worker in silent:
            follows += self._on_worker_lost(worker, "the worker is silent", now)
        refusals_ended = self._refusals.due(now)
        trusted_again = self._selection.due(now)
        kept_no_more = self.views.is_kept_no_more(now)
        if self._queue.due(now) or refusals_ended or trusted_again or kept_no_more:
            follows.append(RoomChanged())
        follows += self._discovery.due(self.book.generation, now)
        if self._chores.pop_due(now):
            follows.append(RoomChanged())  # The pass that was put off is due.
        follows += self._upkeep.due(now)
        follows += self.schedules.due(now)
        follows += self.succession.due(now)
        follows += self._forwarding.due(now)
        follows += self._release_idle(now)
        return follows

    def _release_idle(self, now: float) -> list[Effect]:
        """Release leases that have been idle for too long."""
        due = self._lingering.pop_due(now)
        if not due:
            return []
        held = [self.holdings.get(lease) for lease in due]
        idle = [h for h in held if h is not None and self.holdings.is_idle(h)]
        return self.holdings.release(idle)

    # What follows.

    def _applied(self, follows: list[Consequence], now: float) -> list[Effect]:
        """Apply notices, and those they lead to, until only effects are left."""
        effects: list[Effect] = []
        while follows:
            later: list[Consequence] = []
            for each in follows:
                if isinstance(each, PartNotice):
                    later += self._apply(each, now)
                else:
                    effects.append(each)
            follows = later
        return effects

    def _apply(self, notice: Notice, now: float) -> list[Consequence]:
        match notice:
            case Won():
                return self._on_won(notice.lease, now)
            case NeedChanged():
                self._queue.note(notice.group)
            case Freed():
                return self._on_freed(notice.lease, now)
            case Refused():
                profile = notice.wish.shape.profile
                self._refusals.refused(profile, notice.worker, notice.reason, now)
                self._queue.note(notice.wish.group)
            case GangReady():
                return self._on_gang_ready(notice.round, now)
            case GangFailed():
                wish = notice.round.wish
                if self._migrations.on_failed(notice.round):
                    return [NeedChanged(wish.group)]
                self._queue.rest(wish.group, now)
            case NotStarted():
                self._selection.on_not_started(notice.group, notice.worker, now)
                return []
            case TakenUp():
                self.book.replay(notice.led, now, self._roster.wall_s(now))
                return self._dispatcher.inherit(notice.led.job, now)
            case SavedElsewhere():
                return [*self._provisions.follow(notice.saved, notice.leader)]
            case Released():
                return self._on_released(notice.job)
            case RoomChanged():
                pass
            case _:
                assert_never(notice)
        self._match_wanted = True
        return []

    def _on_released(self, job: JobId) -> list[Consequence]:
        """Stop all that is under way for a job that another scheduler has."""
        follows: list[Consequence] = []
        for group in self.book.jobs[job].job.groups:
            follows += self._negotiator.abandon(group.id)
        return follows + self._dispatcher.release(job)

    def _on_won(self, holding: HeldLease, now: float) -> list[Consequence]:
        """Give a lease to the group it was won for, or leave it idle."""
        effects = self._matcher.use_won(holding, now)
        if effects is None:
            self._leave_idle(holding, now)
            return [NeedChanged(holding.group)]
        group = self.book.groups[holding.group]
        if group.group.verify is None:
            return [*effects]
        return [*effects, NeedChanged(group.id)]  # It may want another answer.

    def _on_freed(self, holding: HeldLease, now: float) -> list[Consequence]:
        """Leave a lease idle for the next task, unless we have had it for too long.

        No gang starts on idle leases, so one that was won for a gang is of use only if
        other tasks wait here. Rivals need all their slots at once: two seconds of rest
        on each were most of what gangs waited for each other.
        """
        is_of_use = not holding.gang or self._queue.uses_idle()
        if now - holding.since > TENURE_S or not is_of_use:
            return [*self.holdings.release([holding]), RoomChanged()]
        self._leave_idle(holding, now)
        return [RoomChanged()]

    def _leave_idle(self, holding: HeldLease, now: float) -> None:
        """Let a pass use a lease; it is released if no task comes."""
        self.holdings.make_idle(holding)
        self._lingering.set(holding.lease, now + LINGER_S)

    def _on_gang_ready(self, round_: GangRound, now: float) -> list[Consequence]:
        """Start a gang on its leases, or release all of them."""
        group = self.book.groups.get(round_.wish.group)
        if group is not None and group.job in self.book.suspended:
            group = None  # It may start nothing now.
        held = [h for lease in round_.leases if (h := self.holdings.get(lease))]
        held.sort(key=lambda holding: (holding.worker, holding.lease))
        effects: list[Effect] = []
        if group is not None and (why := self._migrations.on_ready(round_, held, now)):
            effects += self._dispatcher.call_away(group, why, now)
        tasks = sorted(
            group.waiting if group else (),
            key=lambda task: self.book.tasks[task].task.index,
        )
        least = min(group.group.gang_min, group.open) if group else 0
        if group is None or least == 0 or min(len(held), len(tasks)) < least:
            return [*self.holdings.release(held)]
        effects += self._dispatcher.assign(list(zip(tasks, held, strict=False)), now)
        effects += self.holdings.release(held[len(tasks) :])
        return [*effects, NeedChanged(group.id)]

    @property
    def unmet(self) -> Mapping[Profile, int]:
        """What waits here and no known worker can run now: tasks by profile."""
        return self._discovery.wants

    def _match_or_rest(self, now: float) -> list[Effect]:
        """Run a pass, unless many kinds wait and the last one was a moment ago."""
        if now < self._rests_until:
            self._chores.set_earlier("match", self._rests_until)
            return []
        kinds = self._queue.kinds
        if kinds == 0 and not self._negotiator.rounds and not self._discovery.wants:
            self._match_wanted = False
            return []  # Nobody waits.
        if kinds > KINDS_AT_ONCE:
            self._rests_until = now + REST_PER_KIND_S * (kinds - KINDS_AT_ONCE)
        return self._match(now)

    def _match(self, now: float) -> list[Effect]:
        """Run a pass, and look for workers for what no known one can run."""
        done = self._matcher.match(now)
        self._match_wanted = done.cut_short
        asked = self._ask_around(now, done.unmet)
        wait_s = HEARSAY_S if asked else 0.0
        self._discovery.want(done.unmet, now, wait_s=wait_s)
        return done.effects + asked

    def _ask_around(
        self, now: float, unmet: Mapping[Profile, int] | None = None
    ) -> list[Effect]:
        """Ask workers that have room for unmet demand, according to gossip."""
        wants = self._discovery.wants if unmet is None else unmet
        if not wants:
            return []
        asked = self._gossip_candidates.whom_to_ask(wants, self.views, now)
        return [self._inquire(peer) for peer in asked]


def _next_life(journal: Iterable[Entry], roster: Roster, now: float) -> JobBook:
    """Return the jobs of earlier lives, in a generation that no life had before."""
    book = JobBook(roster.wall_s(0.0))
    for entry in journal:
        book.replay(entry, now, roster.wall_s(now))
    book.tasks.settle()
    book.generation += 1
    return book
