"""Giving slots to waiting groups: leases at hand first, then by asking for more.

Theory of operation. A lease takes the straight way where it can: one that was won for
a group goes to a waiting task of that group (`use_won`). Only what is left over is
*idle*, and given out by a pass (`match`), which serves the queue in order:

1. Idle leases of the group's shape run its tasks at once. Those of other shapes are
   released where that makes room.
2. For the rest room is booked in our table, and its workers are asked for leases. If
   there is none, several workers are asked whose tasks would give way, if the job may
   displace them (`displacing`), or who are full, now and then, so that they know who
   waits.
3. Short tasks are sent ahead to leases in use, to start when one ends there.

A gang is asked for as a whole: the negotiator holds its offers until there are enough.
Before it is first placed, workers that gossip names are asked what they have: the place
for all of it may be where this node never sent a task. For a while it may wait for such
a place (`_slowdown_max`); room is reserved for it, which others stay off.

A pass sends and books, and never waits for anything: what comes of it arrives later as
notices. It looks at `SERVED_MAX` groups at most. Nothing here is durable.
"""

from __future__ import annotations

import math
from collections import Counter
from itertools import islice
from typing import TYPE_CHECKING, Final, final

import msgspec

from shoal.core.dispatch.prefetch import share
from shoal.core.negotiation.displacing import CHOICES
from shoal.core.negotiation.held_leases import shape_of
from shoal.core.negotiation.negotiator import GangRound, Negotiator, Wish
from shoal.core.scheduling.slot_placer import age_s
from shoal.core.timing import (
    GANG_WAIT_S,
    PATIENCE_MAX_S,
    PATIENCE_MIN_S,
    PATIENCE_S,
    WAIT_ASK_S,
    WAIT_S,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from shoal.core.dispatch.dispatcher import Dispatcher
    from shoal.core.dispatch.run_states import TaskRun
    from shoal.core.events import Effect
    from shoal.core.negotiation.held_leases import HeldLease, HeldLeases, LeaseShape
    from shoal.core.records.records import GroupRecord, JobRecord
    from shoal.core.scheduling.group_queue import GroupKind, GroupQueue
    from shoal.core.scheduling.job_book import JobBook
    from shoal.core.scheduling.reservations import Reservations
    from shoal.core.scheduling.slot_placer import SlotPlacer
    from shoal.core.scheduling.task_selection import TaskSelection
    from shoal.model.ids import GroupId, JobId, NodeId, TaskId
    from shoal.model.resources import Profile
    from shoal.policy.table.worker_table import TakenRoom

ASK_MAX: Final = 64  # slots asked for in one message
WAIT_ASK_MAX: Final = 8  # full workers asked at one time
WAIT_ASKED_MAX: Final = 1_024
SERVED_MAX: Final = 256  # groups looked at in one pass
WAITING_LOOKED_AT_MAX: Final = 64  # groups for which interpreters would give way


class MatchPass(msgspec.Struct):
    """What a pass did: what to send, and the slots that no known worker has."""

    effects: list[Effect] = msgspec.field(default_factory=list["Effect"])
    unmet: dict[Profile, int] = msgspec.field(default_factory=dict["Profile", int])
    cut_short: bool = False  # whether it left groups untried


@final
class Matcher:
    """Decides which waiting tasks get which slots."""

    def __init__(
        self,
        book: JobBook,
        queue: GroupQueue,
        placer: SlotPlacer,
        selection: TaskSelection,
        reservations: Reservations,
        holdings: HeldLeases,
        negotiator: Negotiator,
        dispatcher: Dispatcher,
    ) -> None:
        self._book = book
        self._queue = queue
        self._placer = placer
        self._selection = selection
        self._reservations = reservations
        self._holdings = holdings
        self._negotiator = negotiator
        self._dispatcher = dispatcher
        # What a pass that was cut short tried in vain.
        self._tried: dict[GroupKind, None] = {}
        # When full workers were asked last.
        self._wait_asked: dict[LeaseShape, float] = {}

    # Leases at hand.

    def use_won(self, holding: HeldLease, now: float) -> list[Effect] | None:
        """Let the group use a lease that was won for it; None if it cannot."""
        group = self._book.groups.get(holding.group)
        if group is None or (group.is_gang and not group.live):
            return None  # A gang starts only on leases won for all of it.
        if group.job in self._book.suspended:
            return None
        job = self._book.jobs[group.job].job
        if holding.worker in self._reservations.barred(group, job.priority, now):
            return None
        task = self._selection.task_for(group, holding.worker, now)
        if task is None:
            return None
        effects = self._dispatcher.assign([(task, holding)], now)
        self._queue.note(group.id)
        return effects

    def _use_idle(
        self,
        group: GroupRecord,
        profile: int,
        shape: LeaseShape,
        barred: Collection[NodeId],
        now: float,
    ) -> list[Effect]:
        effects: list[Effect] = []
        spare: list[HeldLease] = []
        while self._queue.need(group) > 0:
            holding = self._holdings.take_idle(shape)
            if holding is None:
                break
            if holding.worker in barred:
                effects += self._holdings.release([holding])
                continue
            task = self._selection.task_for(group, holding.worker, now)
            if task is None:
                spare.append(holding)
                continue
            # It may have been won for another group.
            holding.group, holding.profile = group.id, profile
            effects += self._dispatcher.assign([(task, holding)], now)
        for holding in spare:
            self._holdings.make_idle(holding)
        return effects

    def _make_way(
        self, shape: LeaseShape, count: int, barred: Collection[NodeId]
    ) -> list[Effect]:
        """Release leases kept for tasks of other shapes where one of this would fit.

        Groups before this one in the queue have had their turn with them.
        """
        spare: list[HeldLease] = []
        for worker, idle in self._holdings.idle_by_worker().items():
            others = [holding for holding in idle if holding.shape != shape]
            if count <= 0:
                break
            if worker not in barred and self._placer.fits_without(others, shape):
                spare += others
                count -= 1
        return self._holdings.release(spare)

    def room_wanted(
        self,
        held: Mapping[NodeId, Mapping[TaskId, HeldLease]],
        besides: Collection[JobId],
    ) -> list[TaskId]:
        """Return the tasks without whose leases a waiting group would fit."""
        shapes = dict.fromkeys(
            shape_of(self._book.jobs[group.job].job, group.group.tasks[0], 0)
            for group in islice(self._queue.groups(), WAITING_LOOKED_AT_MAX)
            if group.job not in besides
        )
        found: list[TaskId] = []
        for leases in held.values():
            some = list(leases.values())
            if any(self._placer.fits_without(some, shape) for shape in shapes):
                found += leases
        return found

    # The pass.

    def match(self, now: float) -> MatchPass:
        """Serve waiting groups in order, until none can be served.

        Once a group cannot be served, no other of its kind is tried, so a pass costs
        little however many wait. The kinds that a pass tried in vain before it was cut
        short are skipped by the next one: kinds behind them get their turn.
        """
        done = MatchPass()
        for round_ in list(self._negotiator.rounds.values()):
            done.effects += self._refill(round_, now)
        queue = self._queue
        stuck = {kind: None for kind in self._tried if queue.wanted(kind)}
        touched: list[GroupId] = []
        for kind, group in queue.ordered(now) if queue.kinds else ():
            if len(stuck) == queue.kinds:
                break
            if len(touched) >= SERVED_MAX:
                done.cut_short = True
                break
            if kind in stuck:
                continue
            done.effects += self._serve(group, self._book.jobs[group.job], now)
            touched.append(group.id)
            if queue.need(group) > 0:
                stuck[kind] = None
        for id_ in touched:
            queue.note(id_)
        self._tried = stuck if done.cut_short else {}
        for kind in stuck:
            if count := queue.wanted(kind):
                profile = kind[0].profile
                done.unmet[profile] = done.unmet.get(profile, 0) + count
        return done

    def _refill(self, round_: GangRound, now: float) -> list[Effect]:
        """Ask other workers in place of workers that refused a gang."""
        if round_.moves or round_.phase != "collecting" or round_.missing <= 0:
            return []
        wish = round_.wish
        group = self._book.groups[wish.group]
        job = self._book.jobs[group.job]
        count = self._within_quota(job, wish.shape, round_.missing)
        asked = self._negotiator.asked_workers(round_.request)
        takens = self._placer.place_more(
            group,
            wish.shape,
            count,
            [*round_.refused],
            asked,
            now,
            slowdown_max=self._slowdown_max(group, now),
        )
        if not takens and not round_.asked:
            self._negotiator.despair(round_, now)
        return self._ask(wish, takens, now)

    def _serve(self, group: GroupRecord, job: JobRecord, now: float) -> list[Effect]:
        if group.is_gang and not group.live:
            return self._serve_gang(group, job, now)
        effects: list[Effect] = []
        for profile in range(len(group.group.tasks[0].profiles)):
            shape = shape_of(job.job, group.group.tasks[0], profile)
            barred = self._reservations.barred(group, job.job.priority, now)
            effects += self._use_idle(group, profile, shape, barred, now)
            count = self._within_quota(job, shape, self._queue.need(group))
            if count <= 0:
                break
            barred = [*barred, *self._selection.unsuited(group, shape, now)]
            if group.is_gang:
                barred += self._placer.elsewhere(shape, self._live_at(group))
            takens = self._placer.place_tasks(group, shape, count, barred, now)
            short = count - len(takens)
            if short > 0 and (released := self._make_way(shape, short, barred)):
                effects += released
                takens += self._placer.place_tasks(group, shape, short, barred, now)
                short = count - len(takens)
            if takens:
                wish = self._wish(group, job, shape, profile, now)
                effects += self._ask(wish, takens, now)
            displaced: list[NodeId] = []
            if job.job.preempt:
                displaced = self._choices(job, shape, short, takens, barred)
            if displaced:
                # The cheapest offers are taken, of all those workers together.
                wish = self._wish(group, job, shape, profile, now)
                self._negotiator.begin_choice(wish, short, now)
                effects += self._ask(wish, (), now, displaced)
            if not displaced and self._wait_ask_is_due(group, shape, short, now):
                some = min(short, WAIT_ASK_MAX)
                full = self._placer.displaceable(shape, some, takens, barred)
                wish = self._wish(group, job, shape, profile, now, wait_for_s=WAIT_S)
                effects += self._negotiator.claim(wish, Counter(full), now)
        return effects + self._line_up(group, job, now)

    def _line_up(self, group: GroupRecord, job: JobRecord, now: float) -> list[Effect]:
        """Send short tasks ahead to leases in use, to start when one ends there.

        When a worker is lost, nobody knows whether a queued task had started. So it
        must be harmless to run it again, and a task is queued only if it has no crash.
        """
        if group.is_gang or not job.job.may_run_again or self._queue.need(group) <= 0:
            return []
        if group.group.verify is not None:
            return []  # By the time it starts, it may be barred there.
        barred = self._reservations.barred(group, job.job.priority, now)
        effects: list[Effect] = []
        for holding, room in self._holdings.prefetch.open_for(group.id):
            need = self._queue.need(group)
            fair = share(need, self._holdings.count(holding.shape))
            firsts = (task for task in group.waiting if self._may_wait(task, group))
            tasks = list(islice(firsts, min(room, fair)))
            if tasks and holding.worker not in barred:
                pairs = [(task, holding) for task in tasks]
                effects += self._dispatcher.assign(pairs, now)
        return effects

    def _may_wait(self, task: TaskId, group: GroupRecord) -> bool:
        return task not in group.seconds and self._book.tasks[task].crashes == 0

    def _wait_ask_is_due(
        self, group: GroupRecord, shape: LeaseShape, short: int, now: float
    ) -> bool:
        """Whether to ask full workers now, so that they know we wait."""
        since = max(group.waiting_since, group.served_at)
        last = max(since, self._wait_asked.get(shape, since))
        if short <= 0 or now - last < WAIT_ASK_S:
            return False
        if len(self._wait_asked) >= WAIT_ASKED_MAX:
            self._wait_asked.clear()
        self._wait_asked[shape] = now
        return True

    # Gangs.

    def _serve_gang(
        self, group: GroupRecord, job: JobRecord, now: float
    ) -> list[Effect]:
        rests = self._queue.rests(group.id, now)
        if rests and not self._queue.awaits_room(group.id):
            return []
        if self._queue.is_new(group.id) and self._placer.others_may_have_room(group):
            self._queue.look_around(group.id, now)
            return []
        wanted = self._queue.need(group)
        least = min(group.group.gang_min, group.open)
        effects: list[Effect] = []
        if self._reservations.makes_way(group.id):
            effects += self._holdings.release_idle()
        for profile in range(len(group.group.tasks[0].profiles)):
            shape = shape_of(job.job, group.group.tasks[0], profile)
            count = self._within_quota(job, shape, wanted)
            if count < least:
                continue
            barred = self._reservations.barred(group, job.job.priority, now)
            takens = self._placer.place_gang(
                group,
                shape,
                count,
                least,
                barred,
                now,
                slowdown_max=self._slowdown_max(group, now),
            )
            displaced: list[NodeId] = []
            if job.job.preempt and shape.same_leaf != "require":
                short = least - len(takens)
                displaced = self._choices(job, shape, short, takens, barred)
            found = len(takens) + len(displaced)
            if found < least or least == 0:
                self._placer.give_back(takens)
                continue
            wish = self._wish(group, job, shape, profile, now)
            wanted = least if displaced else found
            self._begin_round(wish, wanted, least, now, chooses=bool(displaced))
            return effects + self._ask(wish, takens, now, displaced)
        if rests:
            return effects  # Workers still remember that it waits.
        return effects + self._wait_for_room(group, job, least, now)

    def _wait_for_room(
        self, group: GroupRecord, job: JobRecord, least: int, now: float
    ) -> list[Effect]:
        """Reserve room for a gang that cannot start, and claim it there.

        Workers remember that it waits, and keep what becomes free.
        """
        shape = shape_of(job.job, group.group.tasks[0], 0)
        if self._within_quota(job, shape, least) < least:
            self._reservations.end(group.id)
            return []
        room = self._reservations.reserve(group, shape, least, now)
        if not room:
            return []
        wish = self._wish(group, job, shape, 0, now, wait_for_s=GANG_WAIT_S)
        self._queue.rest(group.id, now, for_room=True)
        return self._negotiator.claim(wish, Counter(room), now, withdrawn=True)

    def win_place(
        self,
        group: GroupRecord,
        job: JobRecord,
        runs: Sequence[TaskRun],
        shape: LeaseShape,
        slowdown_max: float,
        now: float,
    ) -> tuple[GangRound | None, list[Effect]]:
        """Begin to win another place for a gang that runs, if one is free.

        There it runs no slower than `slowdown_max` says. It counts as just come: gangs
        that wait for the room, here or elsewhere, go first.
        """
        count = len(runs)
        if self._within_quota(job, shape, count) < count:
            return None, []
        takens = self._placer.place_gang(
            group, shape, count, count, (), now, slowdown_max=slowdown_max
        )
        nodes = [taken.node for taken in takens]
        slowdown = self._placer.slowdown(shape, nodes, group.id) if nodes else None
        if len(nodes) < count or slowdown is None or slowdown > slowdown_max:
            self._placer.give_back(takens)
            return None, []
        rank = self._negotiator.rank(job.job.priority, 0.0)
        profile = runs[0].profile
        wish = Wish(group=group.id, shape=shape, profile=profile, rank=rank)
        round_ = GangRound(
            wish=wish, wanted=count, least=count, began_at=now, moves=True
        )
        self._negotiator.begin_round(round_, now)
        return round_, self._ask(wish, takens, now)

    def _begin_round(
        self, wish: Wish, wanted: int, least: int, now: float, *, chooses: bool = False
    ) -> None:
        round_ = GangRound(
            wish=wish, wanted=wanted, least=least, began_at=now, chooses=chooses
        )
        self._negotiator.begin_round(round_, now)

    # Asking.

    def _ask(
        self,
        wish: Wish,
        takens: Sequence[TakenRoom],
        now: float,
        displaced: Sequence[NodeId] = (),
    ) -> list[Effect]:
        """Ask each worker once, for what is booked there and what may be displaced."""
        by_worker: dict[NodeId, list[TakenRoom | None]] = {}
        for taken in takens:
            by_worker.setdefault(taken.node, []).append(taken)
        for worker in displaced:
            by_worker.setdefault(worker, []).append(None)
        effects: list[Effect] = []
        for worker, booked in by_worker.items():
            effects += self._ask_worker(wish, worker, booked, now)
        return effects

    def _ask_worker(
        self, wish: Wish, worker: NodeId, takens: Sequence[TakenRoom | None], now: float
    ) -> list[Effect]:
        if self._negotiator.is_shared(wish.rank.request):
            return self._negotiator.ask(wish, worker, takens, now)
        effects: list[Effect] = []
        for start in range(0, len(takens), ASK_MAX):
            some = takens[start : start + ASK_MAX]
            effects += self._negotiator.ask(self._renamed(wish), worker, some, now)
        return effects

    def _choices(
        self,
        job: JobRecord,
        shape: LeaseShape,
        count: int,
        booked: Sequence[TakenRoom],
        barred: Collection[NodeId],
    ) -> list[NodeId]:
        """Return more workers than needed whose tasks might give way, at random."""
        if count <= 0:
            return []
        busy = self._negotiator.workers_asked_by(shape)
        total = self._within_quota(job, shape, len(booked) + CHOICES * count)
        most = max(count, total - len(booked))
        barred = [*barred, *busy]
        return self._placer.displaceable(shape, most, booked, barred, each=count)

    def _wish(
        self,
        group: GroupRecord,
        job: JobRecord,
        shape: LeaseShape,
        profile: int,
        now: float,
        *,
        wait_for_s: float = 0.0,
    ) -> Wish:
        return Wish(
            group=group.id,
            shape=shape,
            profile=profile,
            rank=self._negotiator.rank(job.job.priority, age_s(group, now)),
            wait_for_s=wait_for_s,
        )

    def _renamed(self, wish: Wish) -> Wish:
        """Return the same wish under a request id of its own."""
        request = self._negotiator.next_request()
        rank = msgspec.structs.replace(wish.rank, request=request)
        return msgspec.structs.replace(wish, rank=rank)

    # Needs.

    def _slowdown_max(self, group: GroupRecord, now: float) -> float:
        """Return how much slower a gang may run than in a good place, by now.

        Nobody knows when there will be a good place. So a gang takes a bad one once it
        has waited as long as it expects to lose there: at most twice what it would have
        lost had it known. It runs about as long as gangs usually do here.
        """
        usual_s = self._book.gangs_run_s
        run_s = PATIENCE_S if usual_s is None else max(usual_s, PATIENCE_MIN_S)
        limit_s = group.group.tasks[0].time_limit_s
        if limit_s is not None:
            run_s = min(run_s, limit_s)
        waited_s = now - group.waiting_since
        return math.inf if waited_s >= PATIENCE_MAX_S else 1.0 + waited_s / run_s

    def _live_at(self, group: GroupRecord) -> list[NodeId]:
        """Return where the tasks of a group run."""
        return [run.worker for run in self._book.live_in(group)]

    def _within_quota(self, job: JobRecord, shape: LeaseShape, count: int) -> int:
        """Return how many more slots the owner may have at this time."""
        if job.quota_gpus is None and job.quota_cpu_milli is None:
            return max(0, count)
        used = self._holdings.used_by(shape.owner)
        return job.quota.slots(shape.profile, used, count)
