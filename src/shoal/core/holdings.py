"""The leases a scheduler has at workers, and keeping them alive."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Literal, final

import msgspec

from shoal.core.deadlines import DeadlineHeap, Deadlines
from shoal.core.events import Effect, Send
from shoal.core.lines import Lines
from shoal.core.quotas import Used
from shoal.core.timing import DRIFT_MAX, LEASE_S, RENEW_S
from shoal.model.ids import Attempt, GroupId, LeaseId, NodeId, OwnerId, RequestId
from shoal.model.job import SameLeaf
from shoal.model.kinds import need_of
from shoal.model.resources import Profile
from shoal.policy.workers import Taken, WorkerTable
from shoal.protocol.messages import Release, Renew

if TYPE_CHECKING:
    from collections.abc import Iterable

    from shoal.core.jobs import Run
    from shoal.model.job import Job, Task


class Shape(msgspec.Struct, frozen=True, gc=False, cache_hash=True):
    """What tasks must have in common to use the same lease one after another."""

    profile: Profile
    driver: str
    owner: OwnerId
    priority: int
    preemptible: bool
    preempt: bool = False
    rtt_max_us: int | None = None
    policy: str = ""
    same_leaf: SameLeaf = "no"


class Holding(msgspec.Struct, kw_only=True):
    """One lease. Uncommitted ones belong to a negotiation, idle ones to nobody."""

    lease: LeaseId
    worker: NodeId
    request: RequestId
    group: GroupId
    shape: Shape
    profile: int = 0  # which alternative of the group's tasks it is for
    taken: Taken | None = None  # the booking in our table that goes with it
    state: Literal["offered", "committing", "committed"] = "offered"
    line: list[Attempt] = msgspec.field(default_factory=list[Attempt])
    since: float = 0.0  # when it was committed
    gang: bool = False
    ahead: int = 0  # how many may wait behind the first of the line

    @property
    def attempt(self) -> Attempt | None:
        """What runs on it, or will as soon as its worker hears of it."""
        return self.line[0] if self.line else None


class _Tie(msgspec.Struct):
    """All that binds us to one worker."""

    heard_at: float
    leases: dict[LeaseId, None] = msgspec.field(default_factory=dict[LeaseId, None])


@final
class Holdings:
    """All leases of one scheduler. Dropping one gives its booking back."""

    def __init__(self, table: WorkerTable, heap: DeadlineHeap) -> None:
        self.lines = Lines(heap)
        self._table = table
        self._all: dict[LeaseId, Holding] = {}
        self._ties: dict[NodeId, _Tie] = {}
        self._idle: dict[Shape, dict[LeaseId, None]] = {}
        self._counts: dict[Shape, int] = {}
        self._used: dict[OwnerId, Used] = {}
        self._renewals: Deadlines[NodeId] = Deadlines(heap)

    def __len__(self) -> int:
        return len(self._all)

    def get(self, lease: LeaseId) -> Holding | None:
        """Return a lease that is still ours."""
        return self._all.get(lease)

    def at(self, worker: NodeId, lease: LeaseId) -> Holding | None:
        """Return a lease of ours if it is at this worker: nobody speaks for others."""
        holding = self._all.get(lease)
        return holding if holding is not None and holding.worker == worker else None

    def all_at(self, worker: NodeId) -> list[Holding]:
        """Return all our leases at one worker."""
        tie = self._ties.get(worker)
        return [self._all[lease] for lease in tie.leases] if tie else []

    def count(self, shape: Shape) -> int:
        """Return how many leases of this shape we have, or are getting."""
        return self._counts.get(shape, 0)

    def workers(self) -> list[NodeId]:
        """Return the workers where we have leases."""
        return list(self._ties)

    def used_by(self, owner: OwnerId) -> Used:
        """Return what an owner's leases add up to, with those asked for."""
        return self._used.get(owner) or Used()

    def reserve(self, shape: Shape, count: int) -> None:
        """Count slots for their owner, who has them or may get them; out, if < 0."""
        used = self._used.setdefault(shape.owner, Used())
        used.add(shape.profile, count)
        if used.leases == 0:
            del self._used[shape.owner]

    def add(self, holding: Holding, now: float) -> None:
        """Begin to keep a lease."""
        assert holding.lease not in self._all
        self._all[holding.lease] = holding
        self._counts[holding.shape] = self.count(holding.shape) + 1
        self.reserve(holding.shape, +1)
        tie = self._ties.get(holding.worker)
        if tie is None:
            tie = self._ties[holding.worker] = _Tie(now)
            self._renewals.set(holding.worker, now + RENEW_S)
        tie.leases[holding.lease] = None

    def drop(self, holding: Holding) -> None:
        """Keep a lease no longer; the worker is told by whoever calls this."""
        if self._all.pop(holding.lease, None) is None:
            return
        self._leave_idle(holding)
        self.lines.forget(holding)
        self._counts[holding.shape] -= 1
        if self._counts[holding.shape] == 0:
            del self._counts[holding.shape]
        self.reserve(holding.shape, -1)
        if holding.taken is not None:
            self._table.give(holding.taken)
        tie = self._ties[holding.worker]
        del tie.leases[holding.lease]
        if not tie.leases:
            del self._ties[holding.worker]
            self._renewals.drop(holding.worker)

    def release(self, holdings: Iterable[Holding]) -> list[Effect]:
        """Drop leases and tell their workers, each in one message."""
        by_worker: dict[NodeId, list[LeaseId]] = {}
        for holding in holdings:
            self.drop(holding)
            by_worker.setdefault(holding.worker, []).append(holding.lease)
        return [
            Send(worker, Release(leases=tuple(leases)))
            for worker, leases in by_worker.items()
        ]

    def release_of(self, runs: Iterable[Run]) -> list[Effect]:
        """Release the leases of attempts that no longer matter."""
        holdings = [
            holding
            for run in runs
            if (holding := self.at(run.worker, run.lease)) is not None
            and holding.attempt == run.attempt
        ]
        return self.release(holdings)

    # Idle leases wait a little for the next task of their shape.

    def make_idle(self, holding: Holding) -> None:
        """Let the next task of the same shape use this lease."""
        assert holding.state == "committed"
        holding.line.clear()
        self._idle.setdefault(holding.shape, {})[holding.lease] = None

    def take_idle(self, shape: Shape) -> Holding | None:
        """Return an idle lease of this shape, which is idle no longer."""
        idle = self._idle.get(shape)
        if not idle:
            return None
        holding = self._all[next(iter(idle))]
        self._leave_idle(holding)
        return holding

    def idle_at(self, shape: Shape) -> Counter[NodeId]:
        """Return where idle leases of this shape are, and how many."""
        return Counter(self._all[lease].worker for lease in self._idle.get(shape, ()))

    def release_idle(self) -> list[Effect]:
        """Let go of all leases that wait for a task."""
        leases = [lease for idle in self._idle.values() for lease in idle]
        return self.release([self._all[lease] for lease in leases])

    def is_idle(self, holding: Holding) -> bool:
        """Whether the lease waits for a task."""
        return holding.lease in self._idle.get(holding.shape, ())

    def _leave_idle(self, holding: Holding) -> None:
        idle = self._idle.get(holding.shape)
        if idle is not None:
            idle.pop(holding.lease, None)
            if not idle:
                del self._idle[holding.shape]

    # Renewal.

    def heard(self, worker: NodeId, now: float) -> None:
        """Note that a worker confirmed leases."""
        if tie := self._ties.get(worker):
            tie.heard_at = now

    def silent(self, worker: NodeId, now: float) -> bool:
        """Whether a worker surely gave our leases up, for want of renewal."""
        tie = self._ties.get(worker)
        lapse_s = LEASE_S * (1 + DRIFT_MAX)
        return tie is not None and now - tie.heard_at > lapse_s + RENEW_S

    def renew_soon(self, worker: NodeId, now: float) -> None:
        """Renew at the next chance: the worker may have news of our leases."""
        if worker in self._ties:
            self._renewals.set(worker, now)

    def due(self, now: float) -> tuple[list[Effect], list[NodeId]]:
        """Return the renewals to send, and the workers that fell silent."""
        effects: list[Effect] = []
        silent: list[NodeId] = []
        for worker in self._renewals.pop_due(now):
            self._renewals.set(worker, now + RENEW_S)
            if self.silent(worker, now):
                silent.append(worker)
            leases = tuple(
                lease
                for lease in self._ties[worker].leases
                if self._all[lease].state != "offered"
            )
            if leases:
                effects.append(Send(worker, Renew(leases=leases, lease_s=LEASE_S)))
        return effects, silent


def shape_of(job: Job, task: Task, profile: int) -> Shape:
    """Return what decides whether a task can use a lease that is already there."""
    return Shape(
        profile=task.profiles[profile],
        driver=need_of(task.work),
        owner=job.owner,
        priority=job.priority,
        preemptible=job.preemptible,
        preempt=job.preempt,
        rtt_max_us=None if job.max_rtt_s is None else round(job.max_rtt_s * 1e6),
        policy=job.policy,
        same_leaf=job.same_leaf,
    )
