"""The leases of a worker, and the ledger of resources they draw on.

A lease is room for one task at a time. It is held while an offer stands, committed
once a scheduler accepted it, and ending while what runs on it is being stopped. Its
allocation leaves the ledger when it is held and returns only when it is closed.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final, Literal, final

import msgspec
from msgspec.structs import replace

from shoal.model.caches import mark_of
from shoal.model.ids import Attempt, GroupId, LeaseId, NodeId, OwnerId, RequestId
from shoal.model.resources import Allocation, Capacity, Ledger, Profile, total
from shoal.model.text.bounds import AMOUNT_MAX
from shoal.model.text.shortages import time_short
from shoal.policy.queueing.preemption import Victim, choose_victims, cost
from shoal.protocol.limits import GANGS_MAX
from shoal.protocol.messages import Assignment, Loss

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from shoal.protocol.messages import Rank

LEASES_MAX: Final = 4_096
OWNER_LEASES: Final = 512
OWNER_LEASES_PER_CPU: Final = 16
"""Leases that one owner may have: so many, or so many for each CPU, if that is more.

Room alone does not bound them: what is asked for may be next to nothing."""

LINE_MAX: Final = 16

LeaseState = Literal["held", "displacing", "committed", "ending"]


class Lease(msgspec.Struct, kw_only=True):
    """One slot. Mutable, but only its book and the worker change it."""

    id: LeaseId
    peer: NodeId  # the scheduler whose lease it is; nobody else may use it
    request: RequestId
    rank: Rank
    owner: OwnerId  # of the scheduler, which answers for it; quotas count this one
    preemptible: bool
    allocation: Allocation  # all that a task on this lease may use
    taken: Allocation  # the part of it that has left the ledger
    victims: tuple[LeaseId, ...] = ()  # leases that make room for it
    state: LeaseState = "held"
    expires_at: float = 0.0
    lease_s: float = 0.0
    committed_at: float | None = None
    asked: Profile = Profile()  # what its scheduler asked for
    running: Attempt | None = None
    assigned_at: float = 0.0
    ready_s: float = 0.0  # what runs took so long to get its files and to start
    unsaved_since: float = 0.0  # the work since would be done again
    gang: GroupId = GroupId("")  # of what runs, if it does not run alone
    gang_size: int = 1
    is_parted: bool = False  # whether that has tasks on other workers, too
    fence: Attempt | None = None  # attempts up to this one change nothing
    client: OwnerId = OwnerId("")  # whose tasks it is for, as the scheduler says
    line: list[Assignment] = msgspec.field(default_factory=list[Assignment])
    """What waits for the end of what runs."""

    @property
    def owners(self) -> tuple[OwnerId, ...]:
        """The owners its tasks run for; the owner's rules must allow each of them."""
        return owners_of(self.owner, self.client)

    @property
    def idle(self) -> bool:
        """Whether a task could start on it now."""
        return self.state == "committed" and self.running is None

    @property
    def has_room(self) -> bool:
        """Whether another task could wait on it."""
        return self.state == "committed" and len(self.line) < LINE_MAX

    def run(self, assignment: Assignment, now: float) -> None:
        """Note what starts on it."""
        self.running = assignment.attempt
        self.assigned_at = self.unsaved_since = now
        self.ready_s = 0.0
        self.gang_size = max(1, len(assignment.gang))
        self.gang = assignment.task.group if self.gang_size > 1 else GroupId("")
        self.is_parted = len(set(assignment.gang)) > 1

    def begun(self, now: float) -> None:
        """Note that what was assigned has its files, and runs."""
        self.ready_s = now - self.assigned_at

    def saved(self, at: float) -> None:
        """Note a checkpoint: what came before is safe, but for getting ready again."""
        self.unsaved_since = max(self.unsaved_since, at - self.ready_s)

    def call_back(self, attempt: Attempt) -> bool:
        """Drop a waiting attempt; return whether it was waiting."""
        self.fence = max(attempt, self.fence or attempt)
        waited = len(self.line)
        self.line = [each for each in self.line if each.attempt != attempt]
        return len(self.line) < waited


@final
class LeaseBook:
    """All leases of one worker and the ledger they draw on."""

    def __init__(self, node: NodeId, epoch: int, capacity: Capacity) -> None:
        self.ledger = Ledger(capacity)
        self.idle = Ledger(capacity)  # never drawn on: what could be had at all
        self._prefix = f"{node}/{epoch}"
        self._seq = 0
        self._leases: dict[LeaseId, Lease] = {}
        self._by_request: dict[tuple[NodeId, RequestId], list[LeaseId]] = {}
        self._owned: Counter[OwnerId] = Counter()  # leases, by whose scheduler has them
        cpus = capacity.cpu_milli // 1_000
        most = max(OWNER_LEASES, OWNER_LEASES_PER_CPU * cpus)
        self.owner_max = min(most, LEASES_MAX // 2)
        self._earmarked: dict[LeaseId, LeaseId] = {}  # victim -> the lease it is for
        self._to_withhold = Allocation()
        self.withheld = Allocation()  # the part of it that no lease has
        self._withheld_why = ""

    def __len__(self) -> int:
        return len(self._leases)

    def __iter__(self) -> Iterator[Lease]:
        return iter(self._leases.values())

    @property
    def is_balanced(self) -> bool:
        """Whether all that no lease has is free or withheld, if there is no lease."""
        ledger = self.ledger.copy()
        ledger.give(self.withheld)
        return ledger.idle

    def shorten(self, longest_s: int) -> None:
        """From now on lease only to tasks that may take so long at most."""
        for ledger in (self.ledger, self.idle):
            ledger.capacity = replace(ledger.capacity, longest_s=longest_s)

    def too_late(self, lease: Lease) -> str | None:
        """Say why no further task may start on a lease: there is no time for it."""
        return time_short(self.ledger.capacity, lease.asked)

    def withhold(self, amounts: Allocation, why: str) -> None:
        """Keep so much from being offered; what leases have, only as they end."""
        self._to_withhold, self._withheld_why = amounts, why
        self.ledger.give(self.withheld)
        self.withheld = self.ledger.most_of(amounts)
        self.ledger.take(self.withheld)

    def get(self, id_: LeaseId) -> Lease | None:
        """Return an open lease."""
        return self._leases.get(id_)

    def of(self, peer: NodeId, id_: LeaseId) -> Lease | None:
        """Return a lease of this peer: a lease id alone is no authority."""
        lease = self._leases.get(id_)
        return lease if lease is not None and lease.peer == peer else None

    def is_of_this_life(self, id_: LeaseId) -> bool:
        """Whether a lease, open or closed, was given since the worker booted."""
        return id_.startswith(f"{self._prefix}/") and not self.is_guessed(id_)

    def is_guessed(self, id_: LeaseId) -> bool:
        """Whether an id could be that of a lease still to come."""
        prefix, _, number = id_.rpartition("/")
        if prefix != self._prefix:
            return False
        if not (number.isascii() and number.isdecimal()):
            return True
        return len(number) > len(str(self._seq)) or not 1 <= int(number) <= self._seq

    def give_to(self, lease: Lease, peer: NodeId) -> None:
        """Let another scheduler of the same owner have a lease."""
        request = lease.request
        self._by_request[lease.peer, request].remove(lease.id)
        if not self._by_request[lease.peer, request]:
            del self._by_request[lease.peer, request]
        lease.peer = peer
        self._by_request.setdefault((peer, request), []).append(lease.id)

    def gangs(self) -> tuple[str, ...]:
        """Return marks of the gangs on several workers of which tasks run here."""
        running = (v for v in self._leases.values() if v.running and v.is_parted)
        marks = sorted({mark_of(lease.gang) for lease in running})
        return tuple(marks[:GANGS_MAX])

    def of_request(self, peer: NodeId, request: RequestId) -> list[Lease]:
        """Return the open leases of a request."""
        ids = self._by_request.get((peer, request), ())
        return [self._leases[id_] for id_ in ids]

    def of_peer(self, peer: NodeId) -> list[Lease]:
        """Return all leases of one scheduler."""
        return [lease for lease in self._leases.values() if lease.peer == peer]

    def hold(  # noqa: PLR0913 - each of these is said by the demand or the grant
        self,
        *,
        peer: NodeId,
        profile: Profile,
        rank: Rank,
        owner: OwnerId,
        client: OwnerId,
        preempt: bool,
        preemptible: bool,
        now: float,
        devices: Sequence[str] = (),
    ) -> Lease | str:
        """Hold room for one task, on `devices` if they are free, or say why not.

        With `preempt`, room may come from committed leases of lower priority. They
        are only earmarked here; the worker stops them when this lease is committed.
        """
        if reason := self._too_many(owner):
            return reason
        found = self.ledger.fit(profile, devices)
        victims: tuple[LeaseId, ...] = ()
        if isinstance(found, str):
            if self._withheld_why:
                found = f"{found}; {self._withheld_why}"
            if not preempt:
                return found
            chosen = self._victims(profile, rank.priority, now)
            if isinstance(chosen, str):
                return f"{found}; {chosen}"
            victims, found = chosen
        taken = found
        if victims:
            taken = found.beyond(total(self._leases[v].allocation for v in victims))
        self._seq += 1
        lease = Lease(
            id=LeaseId(f"{self._prefix}/{self._seq}"),
            peer=peer,
            request=rank.request,
            rank=rank,
            owner=owner,
            client=client,
            preemptible=preemptible,
            allocation=found,
            taken=taken,
            victims=victims,
        )
        self._add(lease)
        return lease

    def _too_many(self, owner: OwnerId) -> str:
        """Return why an owner gets no further lease, however small; empty if it does.

        No owner gets more than half of the remaining ids, so that others get some.
        """
        free = LEASES_MAX - len(self._leases)
        if free <= 0:
            return f"{LEASES_MAX} leases are the most a worker keeps"
        most = min(self.owner_max, max(1, free // 2))
        if self._owned[owner] >= most:
            return f"{owner} has {self._owned[owner]} leases here; the most is {most}"
        return ""

    def worse_offers(self, profile: Profile, rank: Rank) -> list[Lease]:
        """Return worse-ranked offers whose withdrawal makes room; empty if none do.

        The worst go first, and offers that would not help are spared. Offers to the
        same scheduler give way only to a higher priority.
        """
        worse = sorted(
            (v for v in self._leases.values() if _yields(v, rank)),
            key=lambda lease: (lease.rank, lease.id),
        )
        if not worse:
            return []
        room = self.ledger.copy()
        given: list[Lease] = []
        for lease in worse:
            room.give(lease.taken)
            given.append(lease)
            if not isinstance(room.fit(profile), str):
                return _without_the_unneeded(room, given, profile)
        return []

    def close(self, lease: Lease) -> list[Lease]:
        """End a lease on which nothing runs; return leases that became complete.

        Its resources go to the lease that displaced it, or are free again.
        """
        assert lease.running is None
        self._remove(lease)
        self.ledger.give(lease.taken)
        for victim in lease.victims:
            self._earmarked.pop(victim, None)
        winner_id = self._earmarked.pop(lease.id, None)
        winner = self._leases.get(winner_id) if winner_id is not None else None
        complete = winner is not None and self._complete(winner, lease)
        if self.withheld != self._to_withhold:
            self.withhold(self._to_withhold, self._withheld_why)
        return [winner] if winner is not None and complete else []

    def losses(self, offered: Iterable[Lease], now: float) -> tuple[Loss, ...]:
        """Return what is destroyed if these offers are committed."""
        ending = [self._leases[id_] for lease in offered for id_ in lease.victims]
        if not ending:
            return ()
        by_priority, *_ = cost(_victim(lease, now) for lease in ending)
        return tuple(
            Loss(rank, min(round(work), AMOUNT_MAX)) for rank, work in by_priority
        )

    def earmarked(self, lease: Lease) -> bool:
        """Whether another lease waits for this one to end."""
        return lease.id in self._earmarked

    def _complete(self, winner: Lease, freed: Lease) -> bool:
        winner.victims = tuple(v for v in winner.victims if v != freed.id)
        still = total(
            self._leases[v].allocation for v in winner.victims if v in self._leases
        )
        more = winner.allocation.beyond(still).beyond(winner.taken)
        self.ledger.take(more)
        winner.taken = total((winner.taken, more))
        return not winner.victims

    def _victims(
        self, profile: Profile, priority: int, now: float
    ) -> tuple[tuple[LeaseId, ...], Allocation] | str:
        candidates = [
            _victim(lease, now)
            for lease in self._leases.values()
            if lease.state == "committed" and lease.id not in self._earmarked
        ]
        chosen = choose_victims(profile, self.ledger, candidates, priority)
        if isinstance(chosen, str):
            return chosen
        ids = tuple(LeaseId(id_) for id_ in chosen)
        room = self.ledger.copy()
        for id_ in ids:
            room.give(self._leases[id_].allocation)
        found = room.fit(profile)
        assert not isinstance(found, str), "the victims were said to suffice"
        return ids, found

    def _add(self, lease: Lease) -> None:
        self.ledger.take(lease.taken)
        self._leases[lease.id] = lease
        self._owned[lease.owner] += 1
        self._by_request.setdefault((lease.peer, lease.request), []).append(lease.id)
        for victim in lease.victims:
            self._earmarked[victim] = lease.id

    def _remove(self, lease: Lease) -> None:
        del self._leases[lease.id]
        self._owned[lease.owner] -= 1
        if not self._owned[lease.owner]:
            del self._owned[lease.owner]
        key = (lease.peer, lease.request)
        self._by_request[key].remove(lease.id)
        if not self._by_request[key]:
            del self._by_request[key]


def _victim(lease: Lease, now: float) -> Victim:
    return Victim(
        id=lease.id,
        allocation=lease.allocation,
        priority=lease.rank.priority,
        unsaved_s=now - lease.unsaved_since if lease.running else 0.0,
        gang=lease.gang,
        gang_size=lease.gang_size,
        preemptible=lease.preemptible,
    )


def _yields(lease: Lease, rank: Rank) -> bool:
    if lease.state != "held":
        return False
    if lease.peer == rank.node:
        return lease.rank.priority < rank.priority
    return lease.rank < rank


def _without_the_unneeded(
    room: Ledger, given: list[Lease], profile: Profile
) -> list[Lease]:
    needed: list[Lease] = []
    for lease in given:
        room.take(lease.taken)
        if isinstance(room.fit(profile), str):
            room.give(lease.taken)
            needed.append(lease)
    return needed


def owners_of(owner: OwnerId, client: OwnerId) -> tuple[OwnerId, ...]:
    """Return the owners a task runs for: the scheduler's, and another one if named.

    A scheduler proves only its own owner. So another name never allows what the
    scheduler itself may not do; it can only forbid more.
    """
    return (owner, client) if client not in ("", owner) else (owner,)


def ids_of(leases: Iterable[Lease]) -> tuple[LeaseId, ...]:
    """Return the ids, in order."""
    return tuple(lease.id for lease in leases)
