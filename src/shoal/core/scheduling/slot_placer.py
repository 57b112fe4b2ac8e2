"""Booking slots at workers before they are asked for.

Theory of operation. Our table of workers shows what they last reported, less what we
booked since. The job's policy chooses among the workers that are not barred and have
not recently refused such a task or failed to start it, and slots are booked there. A
booking is given back when its demand is refused or its lease dropped. Where there is
no room, workers can be named whose tasks might give way; nothing is booked there.
What a policy said when it chose no worker is kept, for whoever asks why tasks wait.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from shoal.core.leasing.demand_age import AGE_MAX_S
from shoal.model.caches import mark_of
from shoal.model.ids import RequestId
from shoal.policy.interface import GangNeed
from shoal.policy.placement import Placed
from shoal.policy.table import domains
from shoal.protocol.messages import Rank

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from random import Random

    from shoal.core.discovery.gossip_candidates import GossipCandidates
    from shoal.core.discovery.worker_views import WorkerViews
    from shoal.core.negotiation.held_leases import HeldLease, LeaseShape
    from shoal.core.records.records import GroupRecord
    from shoal.core.scheduling.policy_lookup import PolicyLookup
    from shoal.core.scheduling.refusal_cache import RefusalCache
    from shoal.core.scheduling.task_selection import TaskSelection
    from shoal.model.ids import GroupId, NodeId
    from shoal.policy.table.worker_table import TakenRoom

DISPLACE_SAMPLE: Final = 64  # workers considered for displacing others' tasks
SAID_MAX: Final = 1_024  # groups of which is known what their policy said last


@final
class SlotPlacer:
    """Chooses workers for tasks of a group, and books slots there."""

    def __init__(
        self,
        node: NodeId,
        views: WorkerViews,
        heard: GossipCandidates,
        policies: PolicyLookup,
        refusals: RefusalCache,
        selection: TaskSelection,
        rng: Random,
    ) -> None:
        self._node = node
        self._views = views
        self._heard = heard
        self._table = views.table
        self._policies = policies
        self._refusals = refusals
        self._selection = selection
        self._rng = rng
        self._said: dict[GroupId, str] = {}

    def said_of(self, group: GroupId) -> str:
        """Return why its policy chose no worker for a group, if it said so."""
        return self._said.get(group, "")

    def place_tasks(
        self,
        group: GroupRecord,
        shape: LeaseShape,
        count: int,
        barred: Collection[NodeId],
        now: float,
    ) -> tuple[TakenRoom, ...]:
        """Book slots for independent tasks.

        Workers of shunned owners get only what fits nowhere else, and no verified
        task.
        """
        exclude = [*self._refusals.of(shape.profile), *barred]
        exclude += self._kept_from(group, shape, now)
        shunned = self._selection.shunned(now)
        takens = self._place(group, shape, count, [*exclude, *shunned]).takens
        short = count - len(takens)
        if not shunned or short <= 0 or group.group.verify is not None:
            return takens
        return takens + self._place(group, shape, short, exclude).takens

    def others_may_have_room(self, group: GroupRecord) -> bool:
        """Whether gossip names a worker with room that never told us what it has."""
        profiles = group.group.tasks[0].profiles
        return any(self._heard.names_others(one, self._views) for one in profiles)

    def place_gang(
        self,
        group: GroupRecord,
        shape: LeaseShape,
        count: int,
        least: int,
        barred: Collection[NodeId],
        now: float,
        *,
        slowdown_max: float,
    ) -> tuple[TakenRoom, ...]:
        """Book slots for a gang: for all of it if possible, under one leaf if asked.

        A policy that sees the network may book none if the gang would run slower than
        `slowdown_max` times as long as in a good place: it had better wait.
        """
        avoided = self._selection.avoided(group, shape)
        exclude = [*self._refusals.of(shape.profile), *avoided, *barred]
        exclude += self._kept_from(group, shape, now)
        mark = mark_of(group.id)
        gang = GangNeed(count, slowdown_max=slowdown_max, mark=mark)
        if shape.same_leaf == "no":
            return self._place(group, shape, count, exclude, gang).takens
        table, room = self._table, self._table.gang_room(shape.asked)
        for wanted in dict.fromkeys((count, least)):
            if rows := room.leaf(wanted, table.indices(exclude)):
                exclude += domains.elsewhere(table, [table.row(rows[0]).node])
                return self._place(group, shape, count, exclude, gang).takens
        if shape.same_leaf == "require":
            return ()
        return self._place(group, shape, count, exclude, gang).takens

    def place_more(
        self,
        group: GroupRecord,
        shape: LeaseShape,
        count: int,
        exclude: Collection[NodeId],
        beside: Sequence[NodeId],
        now: float,
        *,
        slowdown_max: float,
    ) -> tuple[TakenRoom, ...]:
        """Book more slots for a gang that is being won, beside the workers it has."""
        exclude = [*exclude, *self._refusals.of(shape.profile), *beside]
        exclude += self._kept_from(group, shape, now)
        exclude += self.elsewhere(shape, beside)
        size = len(group.waiting)
        gang = GangNeed(size, beside, slowdown_max, mark_of(group.id))
        return self._place(group, shape, count, exclude, gang).takens

    def _kept_from(
        self, group: GroupRecord, shape: LeaseShape, now: float
    ) -> list[NodeId]:
        """Return workers that would refuse a group, as better ones wait there."""
        waited_s = min(age_s(group, now), AGE_MAX_S)
        rank = Rank(shape.priority, waited_s, self._node, RequestId(""))
        return self._views.kept_from(rank, shape.profile, now)

    def elsewhere(self, shape: LeaseShape, nodes: Sequence[NodeId]) -> list[NodeId]:
        """Return the workers under other leaves, if a gang must stay under one."""
        if shape.same_leaf != "require":
            return []
        return [*domains.elsewhere(self._table, nodes)]

    def slowdown(
        self, shape: LeaseShape, nodes: Sequence[NodeId], gang: GroupId
    ) -> float | None:
        """Estimate how much slower a gang runs on these workers than in a good place.

        None if nothing is known of one of them.
        """
        rows = self._table.indices(nodes)
        if len(rows) < len(nodes):
            return None
        room = self._table.gang_room(shape.asked)
        return room.slowdown(rows, len(rows), mark_of(gang))

    def give_back(self, takens: Sequence[TakenRoom]) -> None:
        """Give back bookings that no demand was sent for."""
        for taken in takens:
            self._table.give(taken)

    def fits_without(self, leases: Sequence[HeldLease], shape: LeaseShape) -> bool:
        """Whether a task fits on the worker of these leases if they end, and only then.

        Our table takes the room of leases for busy.
        """
        view = self._table.view(leases[0].worker) if leases else None
        if view is None or view.fits(shape.asked):
            return False
        freed = view.without(h.taken.allocation for h in leases if h.taken)
        return freed.fits(shape.asked)

    def displaceable(
        self,
        shape: LeaseShape,
        count: int,
        booked: Sequence[TakenRoom],
        barred: Collection[NodeId],
        *,
        each: int | None = None,
    ) -> list[NodeId]:
        """Return workers that would have more room if others' tasks gave way.

        Each is there once for every slot it would have beyond those `booked`. With
        `each` they are drawn at random, those with the fewest gangs first, and none is
        there more often than that.
        """
        if count <= 0:
            return []
        nodes = self._table.nodes()
        if each is not None or len(nodes) > DISPLACE_SAMPLE:
            drawn = self._rng.sample(nodes, min(len(nodes), DISPLACE_SAMPLE))
            # The end of one member is the end of a gang: such workers come last.
            nodes = sorted(
                drawn, key=None if each is None else self._table.links.gangs_at
            )
        refused = self._refusals.of(shape.profile)
        bookings: dict[NodeId, int] = {}
        for taken in booked:
            bookings[taken.node] = bookings.get(taken.node, 0) + 1
        asked = shape.asked
        found: list[NodeId] = []
        for node in nodes:
            if node in refused or node in barred:
                continue
            here = bookings.get(node, 0)
            most = count - len(found) + here
            if each is not None:
                most = min(most, each + here)
            slots = self._table.slots_if_idle(node, asked, most)
            found += [node] * (slots - here)
            if len(found) >= count:
                break
        return found

    def _place(
        self,
        group: GroupRecord,
        shape: LeaseShape,
        count: int,
        exclude: Collection[NodeId],
        gang: GangNeed | None = None,
    ) -> Placed:
        table, rng, marks = self._table, self._rng, group.marks
        placed = self._policies.place(shape, count, table, rng, exclude, marks, gang)
        self._said.pop(group.id, None)
        if placed.reason and not placed.takens:
            while len(self._said) >= SAID_MAX:
                del self._said[next(iter(self._said))]
            self._said[group.id] = placed.reason
        return placed


def age_s(group: GroupRecord, now: float) -> float:
    """Return how long a group has waited since one of its tasks was last served."""
    return max(0.0, now - max(group.waiting_since, group.served_at))
