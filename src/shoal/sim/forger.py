"""A hostile node: it overhears everything, and uses it against everybody.

It knows the ids of leases, attempts and requests, shows a grant that gives it no
right, and says whatever would profit it. None of that may change anything (I10). As
a member it holds a grant of its own; then it may ask for leases like anybody else,
and still has no right to those of others. Such leases it abuses: it sends one attempt
under several of them (I4). It asks for many leases of nothing, and keeps them (I9); it
claims to have waited for years (L2); and it says of workers that they are full, in
their name (I10). Either way it also floods (I9).
"""

from __future__ import annotations

from collections import deque
from random import Random
from typing import Final, Literal, final

import msgspec

from shoal.core.events import (
    Booted,
    DeadlineReached,
    Effect,
    Event,
    MessageReceived,
    Publish,
    Send,
)
from shoal.core.gossip import rumour_payload
from shoal.model.ids import Attempt, LeaseId, NodeId, OwnerId, RequestId, TaskId
from shoal.model.job import Task
from shoal.model.resources import GIB, Capacity, Profile
from shoal.protocol.messages import (
    Acknowledgement,
    Announcement,
    AnyMessage,
    Assignment,
    Cancel,
    Commit,
    Committed,
    Demand,
    Goodbye,
    Grant,
    Inquiry,
    Inventory,
    InventoryChanged,
    Load,
    LoadDigests,
    Offer,
    Outcome,
    Preemption,
    Rank,
    Refusal,
    Release,
    Renew,
    Renewed,
    Report,
    Rumour,
    Started,
    Want,
    Withdrawal,
)
from shoal.sim.network import Overheard
from shoal.sim.trust import (
    ROOT,
    SHOAL,
    WALL_AT_START_S,
    grant,
    sign,
    sign_grant,
)

Kind = Literal["no-grant", "self-signed", "expired", "stolen", "revoked", "member"]
KINDS: Final[tuple[Kind, ...]] = (
    "no-grant",
    "self-signed",
    "expired",
    "stolen",
    "revoked",
    "member",
    "member",
)
FORGER: Final = NodeId("forger")
SILENT_S: Final = 5.0  # before its first strike
PAUSE_S: Final = (0.05, 0.6)
VOLLEY: Final = 4  # messages at a time
FLOOD: Final = 100  # and so many now and then
FLOOD_SHARE: Final = 0.01
OVERHEARD_MAX: Final = 200
LEASE_S: Final = 4.0  # how long it keeps leases of its own
GRAB: Final = 8  # demands for nothing at a time, of many leases each
GRAB_SHARE: Final = 0.1
GRAB_LEASE_S: Final = 20.0
GRAB_MARK: Final = f"{FORGER}/grab/"
RUMOUR_SHARE: Final = 0.2  # of volleys bring a forged rumour
FORGED_EPOCH: Final = 10**9
"""Of a worker, in what the forger says of it: far above any real one."""

CLOCK_AHEAD_S: Final = 5 * 365 * 86_400
"""By how much the clock was wrong by which the grant of the revoked was signed."""


def forged_grant(kind: Kind, victim: Grant | None) -> Grant | None:
    """Return what the forger shows when it connects."""
    match kind:
        case "no-grant":
            return None
        case "stolen":
            return victim
        case "expired":
            return grant(FORGER, ("scheduler", "worker"), OwnerId("eve"), valid_for_s=0)
        case "revoked":
            ahead = int(WALL_AT_START_S) + CLOCK_AHEAD_S
            return grant(
                FORGER, ("scheduler",), OwnerId("eve"), top_priority=0, serial=ahead
            )
        case "member":
            return grant(FORGER, ("scheduler",), OwnerId("eve"), top_priority=0)
        case "self-signed":
            unsigned = Grant(
                node=FORGER,
                shoal=SHOAL,
                roles=("scheduler", "worker", "gate", "admin"),
                owner=OwnerId("eve"),
                top_priority=100,
                serial=9,
                expires_wall_s=1e10,
                signer=ROOT,
            )
            return sign_grant(unsigned, FORGER)


@final
class Forger:
    """Acts as a machine, so that it lives in the world like any other node."""

    def __init__(
        self, shown: Grant | None, overheard: deque[Overheard], rng: Random
    ) -> None:
        self._grant = shown
        self._overheard = overheard
        self._rng = rng
        self._next: float | None = 0.0
        self._seq = 0
        self._generation = 1
        self._spare: dict[Attempt, LeaseId] = {}  # another lease for what has run

    def tame(self) -> None:
        """Strike no more. What it made others do comes to an end in good order."""
        self._next = None

    def handle(self, event: Event, now: float) -> list[Effect]:
        """Strike now and then, whatever happens."""
        match event:
            case Booted():
                self._next = now + SILENT_S
                self._generation += int(now * 1e3)
            case MessageReceived(message=Report(attempt=attempt)):
                ended = Acknowledgement(attempts=(attempt,))
                return [Send(event.peer, ended), *self._again(event.peer, attempt)]
            case MessageReceived(message=Offer() as offer) if self._next:
                return [Send(event.peer, _taken(offer))]
            case MessageReceived(message=Committed(leases=(one, other))) if self._next:
                return [Send(event.peer, said) for said in self._equivocate(one, other)]
            case DeadlineReached() if self._next is not None:
                self._next = now + self._rng.uniform(*PAUSE_S)
                if self._overheard:
                    flood = self._rng.random() < FLOOD_SHARE
                    strikes = FLOOD if flood else VOLLEY
                    return [*self._lies(), *(self._strike() for _ in range(strikes))]
            case _:
                pass
        return []

    def next_deadline(self) -> float | None:
        """When to strike next."""
        return self._next

    def _lies(self) -> list[Effect]:
        """Ask now and then for much of nothing, and tell tales about workers."""
        src, dst, message = self._rng.choice(self._overheard)
        worker, scheduler = _sides(src, dst, message)
        effects: list[Effect] = []
        if self._rng.random() < GRAB_SHARE:
            effects += [Send(worker, self._grab()) for _ in range(GRAB)]
        if self._rng.random() < RUMOUR_SHARE:
            effects.append(Send(scheduler, self._rumour(worker)))
        return effects

    def _grab(self) -> Demand:
        self._seq += 1
        request = RequestId(f"{GRAB_MARK}{self._generation}/{self._seq}")
        return Demand(
            request=request,
            profile=Profile(),
            count=1_000,
            rank=Rank(0, 3e8, FORGER, request),
            owner=OwnerId("eve"),
            grant=self._grant,
            wait_for_s=15.0,
        )

    def _rumour(self, worker: NodeId) -> LoadDigests:
        """Say that a worker is full: signed by ourselves, or by nobody."""
        full = Rumour(worker, FORGED_EPOCH, self._seq, 3, draining=True)
        if self._rng.random() < 0.5:
            return LoadDigests(rumours=(full,))
        signature = sign(FORGER, rumour_payload(full))
        return LoadDigests(rumours=(full,), signatures=(signature,))

    def _equivocate(self, one: LeaseId, other: LeaseId) -> list[AnyMessage]:
        """Let attempts run, wait or be cancelled at one lease and start at another."""
        ran, waits, cancelled = self._own(), self._own(), self._own()
        self._spare = {ran: other}
        return [
            Assignment(lease=one, attempt=ran, task=_task()),
            Assignment(lease=one, attempt=waits, task=_task(), after=ran),
            Assignment(lease=other, attempt=waits, task=_task()),
            Cancel(attempt=cancelled, lease=one),
            Assignment(lease=other, attempt=cancelled, task=_task()),
        ]

    def _again(self, worker: NodeId, attempt: Attempt) -> list[Effect]:
        """Send what has ended once more, under another lease."""
        lease = self._spare.pop(attempt, None)
        if lease is None:
            return []
        return [Send(worker, Assignment(lease=lease, attempt=attempt, task=_task()))]

    def _own(self) -> Attempt:
        self._seq += 1
        return Attempt(FORGER, self._generation, self._seq)

    def _strike(self) -> Effect:
        src, dst, message = self._rng.choice(self._overheard)
        self._seq += 1
        if self._rng.random() < 0.05:
            return Publish(self._announcement())
        if self._rng.random() < 0.2:
            return Send(dst, message)  # Replayed in a name of its own.
        worker, scheduler = _sides(src, dst, message)
        if self._rng.random() < 0.5:
            return Send(worker, self._to_worker(message))
        return Send(scheduler, self._to_scheduler(message))

    def _to_worker(self, message: AnyMessage) -> AnyMessage:
        lease = self._lease_of(message)
        attempt = self._attempt_of(message)
        own = Attempt(FORGER, self._generation, self._seq)
        count = self._rng.choice((1, 1000))
        match self._rng.randrange(10):
            case 0 | 1:
                return Renew(leases=(lease,), lease_s=60.0)
            case 2:
                return Commit(request=RequestId("x"), leases=(lease,), lease_s=60.0)
            case 3:
                return Release(leases=(lease,))
            case 4:
                return Cancel(attempt=attempt, lease=lease)
            case 5:
                return Assignment(lease=lease, attempt=own, task=_task())
            case 6:
                return Assignment(lease=lease, attempt=attempt, task=_task())
            case 7:
                return self._demand(count)
            case 8:
                return Inquiry(request=RequestId(f"x{self._seq}"))
            case _:
                return Goodbye()

    def _to_scheduler(self, message: AnyMessage) -> AnyMessage:
        lease = self._lease_of(message)
        attempt = self._attempt_of(message)
        request = self._request_of(message)
        leases = (lease,)
        match self._rng.randrange(11):
            case 0 | 1:
                success = Outcome("exited", exit_code=0)
                return Report(attempt=attempt, lease=lease, outcome=success)
            case 2:
                return Started(attempt=attempt, lease=lease)
            case 3:
                return Committed(request=request, leases=leases)
            case 4:
                return Offer(request=request, leases=leases, valid_for_s=9.0)
            case 5:
                no = "no"
                return Refusal(
                    request=request, leases=leases, attempt=attempt, reason=no
                )
            case 6:
                return Withdrawal(leases=leases)
            case 7:
                return Preemption(lease=lease, grace_s=0.0)
            case 8:
                return Renewed(leases=(), gone=leases)
            case 9:
                return self._inventory()
            case _:
                return InventoryChanged(epoch=9, seq=self._seq, load=Load())

    def _demand(self, count: int) -> Demand:
        request = RequestId(f"{FORGER}/1/{self._seq}")
        return Demand(
            request=request,
            profile=Profile(cpu_milli=100),
            count=count,
            rank=Rank(100, 1e8, FORGER, request),
            preempt=True,
            owner=OwnerId("ann"),
            grant=self._grant,
        )

    def _inventory(self) -> Inventory:
        capacity = Capacity(cpu_milli=10**6, memory_bytes=1000 * GIB)
        load = Load(cpu_milli=10**6, memory_bytes=1000 * GIB)
        return Inventory(
            epoch=1,
            seq=self._seq,
            capacity=capacity,
            load=load,
            drivers=("process",),
        )

    def _announcement(self) -> Announcement:
        return Announcement(
            scheduler=FORGER,
            epoch=1,
            seq=self._seq,
            wants=(Want(Profile(cpu_milli=100), 1000),),
            grant=self._grant,
        )

    def _lease_of(self, message: AnyMessage) -> LeaseId:
        one = getattr(message, "lease", None)
        if isinstance(one, str):
            return LeaseId(one)
        for lease in getattr(message, "leases", ()):
            return LeaseId(getattr(lease, "lease", lease))
        return LeaseId(f"w0/1/{self._rng.randint(1, 9)}")

    def _attempt_of(self, message: AnyMessage) -> Attempt:
        attempt = getattr(message, "attempt", None)
        if isinstance(attempt, Attempt):
            return attempt
        return Attempt(NodeId("s0"), 1, self._rng.randint(1, 20))

    def _request_of(self, message: AnyMessage) -> RequestId:
        request = getattr(message, "request", None)
        return RequestId(request if isinstance(request, str) else f"x{self._seq}")


def _taken(offer: Offer) -> Commit:
    """Commit what is offered: all that is nothing, a little of the rest."""
    if offer.request.startswith(GRAB_MARK):
        return Commit(request=offer.request, leases=offer.leases, lease_s=GRAB_LEASE_S)
    return Commit(request=RequestId("x"), leases=offer.leases[:2], lease_s=LEASE_S)


def _sides(src: NodeId, dst: NodeId, message: AnyMessage) -> tuple[NodeId, NodeId]:
    """Tell worker and scheduler of an overheard message apart, by its kind."""
    said_by_scheduler = (Commit, Renew, Assignment, Demand, Release, Cancel, Inquiry)
    return (dst, src) if isinstance(message, said_by_scheduler) else (src, dst)


def _task() -> Task:
    return msgspec.convert(
        {"id": TaskId("x.x.0"), "job": "x", "group": "x.x"}, type=Task
    )
