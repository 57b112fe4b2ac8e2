"""The groups that want slots, in the order in which they are served.

Theory of operation. A group is in the queue exactly while it *needs* slots: more of
its tasks wait than slots are being won for it. `note` brings its place up to date, and
is called whenever that may have changed. A gang that does not run yet needs all its
slots at once, and none while a round for it is under way; after a failed round it
rests, longer each time.

Groups that would be served or not alike are of one *kind*. A pass of the matcher tries
each kind until one of its groups cannot be served, so its cost is bounded by the kinds
and not by the groups that wait.

Nothing here is durable: after a restart every group is noted once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias, final

import msgspec

from shoal.core.deadlines import DeadlineHeap, Deadlines
from shoal.core.negotiation.held_leases import LeaseShape, shape_of
from shoal.core.timing import LOOK_AROUND_S, ROOM_PAUSE_S, ROUND_PAUSE
from shoal.model.ids import GroupId
from shoal.model.resources import Profile
from shoal.policy.queueing.queue import QueueEntry, TaskQueue

if TYPE_CHECKING:
    from collections.abc import Iterator
    from random import Random

    from shoal.core.negotiation.negotiator import Negotiator
    from shoal.core.records.records import GroupRecord
    from shoal.core.scheduling.job_book import JobBook
    from shoal.core.scheduling.reservations import Reservations
    from shoal.policy.queueing.queue import Usage
    from shoal.policy.queueing.queue_orders import QueueOrder

GroupKind: TypeAlias = tuple[LeaseShape, tuple[Profile, ...], int, GroupId]
"""Groups that are served or not alike: shape, alternatives, and the least of a gang.

A group whose results are verified is a kind of its own: others may run where it cannot.
"""


class _Rest(msgspec.Struct):
    """How often a gang has failed to get all its slots, and until when it rests."""

    failed: int = 0
    until: float = 0.0
    for_room: bool = False  # it may start as soon as there is room


@final
class GroupQueue:
    """Knows which groups need slots, how many, and which is next."""

    def __init__(
        self,
        book: JobBook,
        negotiator: Negotiator,
        reservations: Reservations,
        usage: Usage,
        order: QueueOrder | None,
        rng: Random,
        heap: DeadlineHeap,
    ) -> None:
        """Serve by priority, fair share of `usage`, then `order`, then age."""
        self._book = book
        self._negotiator = negotiator
        self._reservations = reservations
        self._usage = usage
        self._rng = rng
        self._queue = TaskQueue(order)
        self._waiting: dict[GroupId, tuple[GroupKind, int]] = {}  # what the queue holds
        self._wanted: dict[GroupKind, int] = {}  # slots that the queue wants, by kind
        self._rests: dict[GroupId, _Rest] = {}
        self._rest_ends: Deadlines[GroupId] = Deadlines(heap)

    # Reading.

    @property
    def kinds(self) -> int:
        """The number of kinds that wait."""
        return len(self._wanted)

    def wanted(self, kind: GroupKind) -> int:
        """Return how many slots the groups of a kind need together."""
        return self._wanted.get(kind, 0)

    def ordered(self, now: float) -> Iterator[tuple[GroupKind, GroupRecord]]:
        """Yield the waiting groups with their kinds, in the order to serve them."""
        for entry in self._queue.ordered(self._usage, now):
            id_ = GroupId(entry.id)
            yield self._waiting[id_][0], self._book.groups[id_]

    def groups(self) -> Iterator[GroupRecord]:
        """Yield the waiting groups in the order in which they came."""
        for id_ in self._waiting:
            yield self._book.groups[id_]

    def need(self, group: GroupRecord) -> int:
        """Return how many slots a group wants beyond those being won for it."""
        if group.job in self._book.suspended:
            return 0
        if group.is_gang and not group.live:
            if self._negotiator.round_of(group.id) is not None:
                return 0
            if len(group.waiting) < min(group.group.gang_min, group.open):
                return 0  # Some of it rests after a failure.
            return len(group.waiting)
        return len(group.waiting) - self._negotiator.pending(group.id)

    def uses_idle(self) -> bool:
        """Whether a group waits that could use one idle lease."""
        return any(
            not (group := self._book.groups[id_]).is_gang or group.live
            for id_ in self._waiting
        )

    def rests(self, gang: GroupId, now: float) -> bool:
        """Whether a gang rests after a failed round."""
        rest = self._rests.get(gang)
        return rest is not None and rest.until > now

    def awaits_room(self, gang: GroupId) -> bool:
        """Whether a gang rests because there was no room, and not because it lost."""
        rest = self._rests.get(gang)
        return rest is not None and rest.for_room

    def is_new(self, gang: GroupId) -> bool:
        """Whether a gang has never rested."""
        return gang not in self._rests

    def rounds_failed(self, gang: GroupId) -> int:
        """Return how often a gang has failed to get all its slots."""
        rest = self._rests.get(gang)
        return 0 if rest is None else rest.failed

    def ranked_above(self, priority: int) -> int:
        """Return how many waiting tasks have a higher priority, ageing aside."""
        return sum(
            count for kind, count in self._wanted.items() if kind[0].priority > priority
        )

    # Changes.

    def note(self, group_id: GroupId) -> None:
        """Bring a group's place in the queue up to date with its need."""
        group = self._book.groups.get(group_id)
        if group is None or group.open == 0:
            self._leave(group_id)
            self._rests.pop(group_id, None)
            self._rest_ends.drop(group_id)
            self._reservations.forget(group_id)
            return
        if group.is_gang and group.live:
            self._reservations.forget(group_id)
        need = self.need(group)
        if need > 0 and self._waits_for(group, need):
            return
        self._leave(group_id)
        if need > 0:
            self._enter(group, need)

    def rest(self, gang: GroupId, now: float, *, for_room: bool = False) -> None:
        """Let a gang rest before it tries again, longer each time.

        One that waits `for_room` need not ask before workers forget that it waits.
        """
        rest = self._rests.setdefault(gang, _Rest())
        rest.failed += 1
        rest.for_room = for_room
        pause_s = ROUND_PAUSE.pause_s(rest.failed - 1, self._rng)
        rest.until = now + (ROOM_PAUSE_S if for_room else pause_s)
        self._rest_ends.set(gang, rest.until)
        self.note(gang)

    def look_around(self, gang: GroupId, now: float) -> None:
        """Let a new gang rest until workers that were asked have answered."""
        self._rests[gang] = _Rest(until=now + LOOK_AROUND_S)
        self._rest_ends.set(gang, now + LOOK_AROUND_S)

    def due(self, now: float) -> bool:
        """Note the gangs that have rested; return whether there are any."""
        rested = self._rest_ends.pop_due(now)
        for gang in rested:
            self.note(gang)
        return bool(rested)

    def _waits_for(self, group: GroupRecord, need: int) -> bool:
        """Whether the entry of a group in the queue is up to date."""
        entry = self._queue.get(group.id)
        return (
            entry is not None
            and entry.count == need
            and entry.served_at == group.served_at
            and entry.waiting_since == group.waiting_since
        )

    def _enter(self, group: GroupRecord, need: int) -> None:
        job = self._book.jobs[group.job].job
        shape = shape_of(job, group.group.tasks[0], 0)
        alone = GroupId("") if group.group.verify is None else group.id
        kind = (shape, group.group.tasks[0].profiles, group.group.gang_min, alone)
        self._waiting[group.id] = (kind, need)
        self._wanted[kind] = self._wanted.get(kind, 0) + need
        self._queue.put(
            QueueEntry(
                group.id,
                job.owner,
                job.priority,
                group.waiting_since,
                shape.profile,
                need,
                group.served_at,
                group.group.tasks[0].time_limit_s,
            )
        )

    def _leave(self, group_id: GroupId) -> None:
        found = self._waiting.pop(group_id, None)
        if found is None:
            return
        kind, need = found
        self._queue.remove(group_id)
        self._wanted[kind] -= need
        if self._wanted[kind] == 0:
            del self._wanted[kind]
