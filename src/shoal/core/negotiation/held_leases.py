"""The leases a scheduler has at workers, and keeping them alive.

Theory of operation. A lease is *offered* by a worker, *committing* once we asked for it
to be ours, and *committed* when the worker confirmed that. A committed lease is in use
while attempts are in its line: the first runs, the others wait behind it
(`dispatch.prefetch`). With an empty line it is *idle*, and any task of the same
`LeaseShape` may have it; the scheduler releases it when no task comes for a while.

All leases at one worker are renewed together, every `RENEW_S`. A worker that confirms
nothing for longer than a lease can last has surely given ours up: it is *silent*. The
leases of kept jobs last longer, until another scheduler has taken the job up; that one
*claims* them by `Adoption`, and renews them once their worker agrees.

Nothing here is durable. After a restart the dispatcher adds the leases of journalled
attempts again, and their workers confirm or deny them at the next renewal.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Literal, final

import msgspec

from shoal.core.deadlines import DeadlineHeap, Deadlines
from shoal.core.dispatch.prefetch import Prefetch
from shoal.core.events import Effect, Send
from shoal.core.membership.quotas import Used
from shoal.core.timing import DRIFT_MAX, KEPT_LEASE_S, LEASE_S, RENEW_S
from shoal.model.caches import mark_of
from shoal.model.ids import (
    Attempt,
    GroupId,
    JobId,
    LeaseId,
    NodeId,
    OwnerId,
    RequestId,
)
from shoal.model.job import SameLeaf
from shoal.model.kinds import need_of
from shoal.model.resources import Profile
from shoal.policy.table.task_shapes import TaskShape
from shoal.policy.table.worker_table import TakenRoom, WorkerTable
from shoal.protocol.messages import Release, Renew, SavedAge
from shoal.protocol.succession.messages import Adoption, Claim

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from shoal.core.dispatch.run_states import TaskRun
    from shoal.model.job import Job, Task


class LeaseShape(msgspec.Struct, frozen=True, gc=False, cache_hash=True):
    """What tasks must have in common to share a lease, one after another."""

    profile: Profile
    driver: str
    owner: OwnerId
    priority: int
    preemptible: bool
    preempt: bool = False
    rtt_max_us: int | None = None
    policy: str = ""
    same_leaf: SameLeaf = "no"
    nodes: tuple[NodeId, ...] = ()  # the only workers that may run it, unless empty
    alone: bool = False  # each task of a gang runs on a worker of its own
    kept: JobId = JobId("")  # a job that is kept shares its leases with no other

    @property
    def asked(self) -> TaskShape:
        """What it asks of a worker."""
        return TaskShape(
            self.profile, self.driver, self.rtt_max_us, self.nodes, self.alone
        )


class LeaseClaim(msgspec.Struct, frozen=True):
    """A lease that the worker gave another scheduler, whose job this one took up."""

    job: JobId
    term: int
    was: Attempt


class HeldLease(msgspec.Struct, kw_only=True):
    """One lease. The negotiator owns it until it is committed."""

    lease: LeaseId
    worker: NodeId
    request: RequestId
    group: GroupId
    shape: LeaseShape
    profile: int = 0  # index of the task profile that it was asked for
    taken: TakenRoom | None = None  # what it occupies in our table of workers
    state: Literal["offered", "committing", "committed"] = "offered"
    line: list[Attempt] = msgspec.field(default_factory=list[Attempt])
    since: float = 0.0  # when it was committed
    gang: bool = False
    ahead: int = 0  # how many attempts may wait behind the first
    claim: LeaseClaim | None = None  # of an earlier scheduler, until the worker agrees
    saved_at: float | None = None  # when the gang on it left what it would go on from

    @property
    def attempt(self) -> Attempt | None:
        """The attempt that runs on it, or is on its way to its worker."""
        return self.line[0] if self.line else None


class _Tie(msgspec.Struct):
    """Our leases at one worker, and when it last confirmed any."""

    heard_at: float
    leases: dict[LeaseId, None] = msgspec.field(default_factory=dict[LeaseId, None])


@final
class HeldLeases:
    """All leases of one scheduler. Dropping one frees its booking in the table."""

    def __init__(self, table: WorkerTable, heap: DeadlineHeap) -> None:
        self.prefetch = Prefetch(heap)
        self._table = table
        self._all: dict[LeaseId, HeldLease] = {}
        self._ties: dict[NodeId, _Tie] = {}
        self._idle: dict[LeaseShape, dict[LeaseId, None]] = {}
        self._counts: dict[LeaseShape, int] = {}
        self._used: dict[OwnerId, Used] = {}
        self._renewals: Deadlines[NodeId] = Deadlines(heap)

    def __len__(self) -> int:
        return len(self._all)

    def get(self, lease: LeaseId) -> HeldLease | None:
        """Return a lease, if it is still ours."""
        return self._all.get(lease)

    def at(self, worker: NodeId, lease: LeaseId) -> HeldLease | None:
        """Return a lease, if it is at this worker: no peer speaks for another."""
        holding = self._all.get(lease)
        return holding if holding is not None and holding.worker == worker else None

    def all_at(self, worker: NodeId) -> list[HeldLease]:
        """Return all our leases at one worker."""
        tie = self._ties.get(worker)
        return [self._all[lease] for lease in tie.leases] if tie else []

    def count(self, shape: LeaseShape) -> int:
        """Return how many leases of this shape we hold, committed or not."""
        return self._counts.get(shape, 0)

    def used_by(self, owner: OwnerId) -> Used:
        """Return what an owner's leases add up to, including those being asked for."""
        return self._used.get(owner) or Used()

    def reserve(self, shape: LeaseShape, count: int) -> None:
        """Count slots against their owner's quota; a negative count gives them back."""
        used = self._used.setdefault(shape.owner, Used())
        used.add(shape.profile, count)
        if used.leases == 0:
            del self._used[shape.owner]

    def add(self, holding: HeldLease, now: float) -> None:
        """Keep a lease, and renew it from now on."""
        assert holding.lease not in self._all
        self._all[holding.lease] = holding
        self._counts[holding.shape] = self.count(holding.shape) + 1
        self.reserve(holding.shape, +1)
        tie = self._ties.get(holding.worker)
        if tie is None:
            tie = self._ties[holding.worker] = _Tie(now)
            self._renewals.set(holding.worker, now + RENEW_S)
        tie.leases[holding.lease] = None
        if holding.gang:
            self._table.links.add(holding.worker, mark_of(holding.group))

    def drop(self, holding: HeldLease) -> None:
        """Forget a lease. The caller tells the worker, if it must know."""
        if self._all.pop(holding.lease, None) is None:
            return
        self._leave_idle(holding)
        self.prefetch.forget(holding)
        self._counts[holding.shape] -= 1
        if self._counts[holding.shape] == 0:
            del self._counts[holding.shape]
        self.reserve(holding.shape, -1)
        if holding.taken is not None:
            self._table.give(holding.taken)
        if holding.gang:
            self._table.links.remove(holding.worker, mark_of(holding.group))
        tie = self._ties[holding.worker]
        del tie.leases[holding.lease]
        if not tie.leases:
            del self._ties[holding.worker]
            self._renewals.drop(holding.worker)

    def release(self, holdings: Iterable[HeldLease]) -> list[Effect]:
        """Drop leases and tell their workers, one message to each."""
        by_worker: dict[NodeId, list[LeaseId]] = {}
        for holding in holdings:
            self.drop(holding)
            by_worker.setdefault(holding.worker, []).append(holding.lease)
        return [
            Send(worker, Release(leases=tuple(leases)))
            for worker, leases in by_worker.items()
        ]

    def release_of(self, runs: Iterable[TaskRun]) -> list[Effect]:
        """Release the leases on which these runs are first."""
        holdings = [
            holding
            for run in runs
            if (holding := self.at(run.worker, run.lease)) is not None
            and holding.attempt == run.attempt
        ]
        return self.release(holdings)

    # Idle leases wait a little for the next task of their shape.

    def make_idle(self, holding: HeldLease) -> None:
        """Let the next task of the same shape use this lease."""
        assert holding.state == "committed"
        holding.line.clear()
        holding.saved_at = None
        self._idle.setdefault(holding.shape, {})[holding.lease] = None

    def take_idle(self, shape: LeaseShape) -> HeldLease | None:
        """Take an idle lease of this shape, if there is one."""
        idle = self._idle.get(shape)
        if not idle:
            return None
        holding = self._all[next(iter(idle))]
        self._leave_idle(holding)
        return holding

    def idle_at(self, shape: LeaseShape) -> Counter[NodeId]:
        """Count the idle leases of this shape at each worker."""
        return Counter(self._all[lease].worker for lease in self._idle.get(shape, ()))

    def idle_besides(self, shapes: Collection[LeaseShape]) -> list[TakenRoom]:
        """Return the rooms of idle leases of other shapes: these give way at once."""
        idle = (
            self._all[lease]
            for shape, leases in self._idle.items()
            if shape not in shapes
            for lease in leases
        )
        return [holding.taken for holding in idle if holding.taken is not None]

    def idle_by_worker(self) -> dict[NodeId, list[HeldLease]]:
        """Return the idle leases of each worker that has any."""
        found: dict[NodeId, list[HeldLease]] = {}
        for idle in self._idle.values():
            for lease in idle:
                holding = self._all[lease]
                found.setdefault(holding.worker, []).append(holding)
        return found

    def release_idle(self) -> list[Effect]:
        """Release every idle lease."""
        leases = [lease for idle in self._idle.values() for lease in idle]
        return self.release([self._all[lease] for lease in leases])

    def is_idle(self, holding: HeldLease) -> bool:
        """Whether a lease waits for a task."""
        return holding.lease in self._idle.get(holding.shape, ())

    def _leave_idle(self, holding: HeldLease) -> None:
        idle = self._idle.get(holding.shape)
        if idle is not None:
            idle.pop(holding.lease, None)
            if not idle:
                del self._idle[holding.shape]

    # Renewal.

    def heard(self, worker: NodeId, now: float) -> None:
        """Note that a worker confirmed leases of ours."""
        if tie := self._ties.get(worker):
            tie.heard_at = now

    def silent(self, worker: NodeId, now: float) -> bool:
        """Whether a worker has surely given up our leases, as nothing renewed them."""
        tie = self._ties.get(worker)
        lapse_s = LEASE_S * (1 + DRIFT_MAX)
        return tie is not None and now - tie.heard_at > lapse_s + RENEW_S

    def renew_soon(self, worker: NodeId, now: float) -> None:
        """Renew at once: the worker may have lost our leases, or found them again."""
        if worker in self._ties:
            self._renewals.set(worker, now)

    def due(self, now: float) -> tuple[list[Effect], list[NodeId]]:
        """Return the renewals to send, and the workers that are silent."""
        effects: list[Effect] = []
        silent: list[NodeId] = []
        for worker in self._renewals.pop_due(now):
            self._renewals.set(worker, now + RENEW_S)
            if self.silent(worker, now):
                silent.append(worker)
            effects += self._renew(worker, now)
        return effects, silent

    def note_saved(self, runs: Iterable[TaskRun], at: float) -> None:
        """Note when a gang was as far as it would begin again; its workers are told.

        What they would destroy by ending it depends on that.
        """
        for run in runs:
            if (holding := self.at(run.worker, run.lease)) is not None:
                holding.saved_at = at

    def _renew(self, worker: NodeId, now: float) -> list[Effect]:
        """Renew all leases at a worker; those of kept jobs last longer."""
        plain: list[LeaseId] = []
        kept: list[LeaseId] = []
        claims: dict[tuple[JobId, int], list[Claim]] = {}
        for lease in self._ties[worker].leases:
            holding = self._all[lease]
            if holding.state == "offered":
                continue
            if (claim := holding.claim) is not None and holding.attempt is not None:
                named = Claim(claim.was, holding.attempt, lease)
                claims.setdefault((claim.job, claim.term), []).append(named)
            else:
                (kept if holding.shape.kept else plain).append(lease)
        effects: list[Effect] = []
        for leases, lease_s in ((plain, LEASE_S), (kept, KEPT_LEASE_S)):
            if leases:
                saved = tuple(
                    SavedAge(lease, now - at)
                    for lease in leases
                    if (at := self._all[lease].saved_at) is not None
                )
                renew = Renew(leases=tuple(leases), lease_s=lease_s, saved=saved)
                effects.append(Send(worker, renew))
        for (job, term), named_claims in claims.items():
            adoption = Adoption(
                job=job, term=term, lease_s=KEPT_LEASE_S, claims=tuple(named_claims)
            )
            effects.append(Send(worker, adoption))
        return effects


def shape_of(job: Job, task: Task, profile: int) -> LeaseShape:
    """Return the shape of the leases that can run a task."""
    return LeaseShape(
        profile=task.profiles[profile],
        driver=need_of(task.work),
        owner=job.owner,
        priority=job.priority,
        preemptible=job.preemptible,
        preempt=job.preempt,
        rtt_max_us=None if job.max_rtt_s is None else round(job.max_rtt_s * 1e6),
        policy=job.policy,
        same_leaf=job.same_leaf,
        nodes=job.nodes,
        alone=task.alone,
        kept=job.id if job.keepers else JobId(""),
    )
