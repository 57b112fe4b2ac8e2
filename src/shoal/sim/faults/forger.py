"""A hostile node that overhears all messages and forges its own from them.

It knows the ids of leases, attempts and requests, and presents a grant that gives it
no right. Its messages must have no effect (I10). As a member it has a valid grant: it
may ask for leases like any node, but has no right to those of others. It abuses its
leases by sending one attempt under several of them (I4). It requests and keeps many
leases of nothing (I9), claims to have waited for years (L2), and spreads rumours in
workers' names that they are full (I10). In every role it also floods (I9).
"""

from __future__ import annotations

from collections import deque
from random import Random
from typing import Final, Literal, final

import msgspec

from shoal.core.discovery.load_gossip import rumour_payload
from shoal.core.events import (
    Booted,
    DeadlineReached,
    Effect,
    Event,
    MessageReceived,
    Publish,
    Send,
)
from shoal.model.ids import Attempt, LeaseId, NodeId, OwnerId, RequestId, TaskId
from shoal.model.job import Task
from shoal.model.resources import GIB, Capacity, Profile
from shoal.protocol import call_items
from shoal.protocol.call_batches import CallBatch, ResultBatch
from shoal.protocol.mail import Mail, MailReceipt
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
from shoal.sim.node.trust import (
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
VOLLEY: Final = 4  # messages per strike
FLOOD: Final = 100  # messages of an occasional flood
FLOOD_SHARE: Final = 0.01
OVERHEARD_MAX: Final = 200
LEASE_S: Final = 4.0  # duration of its own leases
GRAB: Final = 8  # simultaneous demands for many empty leases
GRAB_SHARE: Final = 0.1
GRAB_LEASE_S: Final = 20.0
GRAB_MARK: Final = f"{FORGER}/grab/"
RUMOUR_SHARE: Final = 0.2  # share of volleys with a forged rumour
FORGED_EPOCH: Final = 10**9
"""Worker epoch in forged rumours, far above any real one."""

CLOCK_AHEAD_S: Final = 5 * 365 * 86_400
"""Clock error with which the revoked forger's grant was signed."""


def forged_grant(kind: Kind, victim: Grant | None) -> Grant | None:
    """Return the grant that the forger presents."""
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
    """A machine, so that it runs in the world like any other node."""

    def __init__(
        self, shown: Grant | None, overheard: deque[Overheard], rng: Random
    ) -> None:
        self._grant = shown
        self._overheard = overheard
        self._rng = rng
        self._next: float | None = 0.0
        self._seq = 0
        self._generation = 1
        self._spare: dict[Attempt, LeaseId] = {}  # second lease of an attempt

    def tame(self) -> None:
        """Stop striking; actions already caused end normally."""
        self._next = None

    def handle(self, event: Event, now: float) -> list[Effect]:
        """Answer offers and reports, and strike at random times."""
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
        """Return the time of the next strike."""
        return self._next

    def _lies(self) -> list[Effect]:
        """Occasionally demand empty leases and spread rumours about workers."""
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
        """Claim that a worker is full, with our own signature or none."""
        full = Rumour(worker, FORGED_EPOCH, self._seq, 3, draining=True)
        if self._rng.random() < 0.5:
            return LoadDigests(rumours=(full,))
        signature = sign(FORGER, rumour_payload(full))
        return LoadDigests(rumours=(full,), signatures=(signature,))

    def _equivocate(self, one: LeaseId, other: LeaseId) -> list[AnyMessage]:
        """Use one attempt under two leases: running, waiting or cancelled."""
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
        """Send an ended attempt again, under another lease."""
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
        if isinstance(message, Mail | MailReceipt):
            return self._forge_mail(src, dst, message)
        if isinstance(message, CallBatch | ResultBatch):
            return self._forge_calls(dst, message)
        if self._rng.random() < 0.05:
            return Publish(self._announcement())
        if self._rng.random() < 0.2:
            return Send(dst, message)  # A replay under its own name.
        worker, scheduler = _sides(src, dst, message)
        if self._rng.random() < 0.5:
            return Send(worker, self._to_worker(message))
        return Send(scheduler, self._to_scheduler(message))

    def _forge_mail(self, src: NodeId, dst: NodeId, heard: Mail | MailReceipt) -> Send:
        """Forge a task's letter, or a receipt for it."""
        seq = heard.seq + self._rng.choice((0, 1, 1_000))
        taken = MailReceipt(attempt=heard.attempt, seq=heard.seq, what="taken")
        if isinstance(heard, MailReceipt) or self._rng.random() < 0.3:
            return Send(self._rng.choice((src, dst)), taken)
        return Send(dst, msgspec.structs.replace(heard, seq=seq, data=b"forged"))

    def _forge_calls(self, dst: NodeId, heard: CallBatch | ResultBatch) -> Send:
        """Forge a lane's order to leave, or a call's result."""
        if isinstance(heard, CallBatch):
            items = [call_items.item(call_items.LEAVE, 0)]
        else:
            items = [
                call_items.item(call_items.VALUE, call_items.head(data)[1], b"forged")
                for data in heard.items
            ]
        first = heard.first + self._rng.choice((0, len(heard.items)))
        forged = msgspec.structs.replace(heard, first=first, items=tuple(items))
        return Send(dst, forged)

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
    """Commit all leases of an empty demand, or two of a real one."""
    if offer.request.startswith(GRAB_MARK):
        return Commit(request=offer.request, leases=offer.leases, lease_s=GRAB_LEASE_S)
    return Commit(request=RequestId("x"), leases=offer.leases[:2], lease_s=LEASE_S)


def _sides(src: NodeId, dst: NodeId, message: AnyMessage) -> tuple[NodeId, NodeId]:
    """Return worker and scheduler of an overheard message, by its type."""
    said_by_scheduler = (Commit, Renew, Assignment, Demand, Release, Cancel, Inquiry)
    return (dst, src) if isinstance(message, said_by_scheduler) else (src, dst)


def _task() -> Task:
    return msgspec.convert(
        {"id": TaskId("x.x.0"), "job": "x", "group": "x.x"}, type=Task
    )
