"""Finding slots for waiting groups: in queue order, on idle leases, then by asking."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Final, final

import msgspec

from shoal.core.deadlines import DeadlineHeap, Deadlines
from shoal.core.holdings import shape_of
from shoal.core.lines import share
from shoal.core.negotiation import Negotiator, Round, Wish
from shoal.core.reserving import Reservations
from shoal.core.shyness import Shyness
from shoal.core.suiting import Suiting
from shoal.core.timing import (
    GANG_WAIT_S,
    ROUND_PAUSE_MAX_S,
    ROUND_PAUSE_S,
    WAIT_ASK_S,
    WAIT_S,
)
from shoal.model.ids import GroupId, NodeId, TaskId
from shoal.model.resources import Profile
from shoal.policy import leaves
from shoal.policy.placement import Placed
from shoal.policy.queue import QueueEntry, TaskQueue
from shoal.policy.shapes import Shape as PlacedShape
from shoal.protocol.messages import Rank

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from random import Random

    from shoal.core.dispatch import Dispatcher
    from shoal.core.events import Effect
    from shoal.core.holdings import Holding, Holdings, Shape
    from shoal.core.jobs import GroupRecord, JobBook, JobRecord
    from shoal.core.policies import Policies
    from shoal.core.verifying import Verifier
    from shoal.core.views import Views
    from shoal.policy.queue import Usage
    from shoal.policy.workers import Taken

ASK_MAX: Final = 64  # slots asked for in one message
DISPLACE_SAMPLE: Final = 64  # workers considered for displacing others' tasks
WAIT_ASK_MAX: Final = 8  # full workers asked at one time
WAIT_ASKED_MAX: Final = 1_024
SERVED_MAX: Final = 256  # groups looked at in one pass


_Kind = tuple["Shape", tuple[Profile, ...], int, GroupId]
"""Groups that are served or not alike: shape, alternatives, and the least of a gang.

A group whose results are verified is a kind of its own: others may run where it cannot.
"""


class _Pause(msgspec.Struct):
    """How often a gang has failed to get all its slots, and until when it rests."""

    failed: int = 0
    until: float = 0.0


@final
class Matcher:
    """Decides which waiting tasks get which slots."""

    def __init__(  # noqa: PLR0913 - it joins all the parts of a scheduler
        self,
        node: NodeId,
        *,
        book: JobBook,
        views: Views,
        holdings: Holdings,
        negotiator: Negotiator,
        dispatcher: Dispatcher,
        verifier: Verifier,
        usage: Usage,
        policies: Policies,
        rng: Random,
        heap: DeadlineHeap,
    ) -> None:
        self.unmet: dict[Profile, int] = {}
        self.cut_short = False  # whether the last pass left something untried
        self._tried: dict[_Kind, None] = {}  # what it tried in vain, if so
        self._node = node
        self._book = book
        self._views = views
        self._holdings = holdings
        self._negotiator = negotiator
        self._dispatcher = dispatcher
        self._usage = usage
        self._policies = policies
        self._rng = rng
        self._reservations = Reservations(book, views, holdings)
        self.suiting = Suiting(book, views, holdings, verifier, heap)
        self._queue = TaskQueue(policies.order)
        self._waiting: dict[GroupId, tuple[_Kind, int]] = {}  # what the queue holds
        self._wanted: dict[_Kind, int] = {}  # slots that the queue wants, by kind
        self._pauses: dict[GroupId, _Pause] = {}
        self._way_made: dict[GroupId, None] = {}  # for these gangs, as they came
        self._shyness = Shyness(heap)
        self._wait_asked: dict[Shape, float] = {}  # when full workers were asked last
        self._pause_ends: Deadlines[GroupId] = Deadlines(heap)

    # Keeping the queue.

    def note(self, group_id: GroupId) -> None:
        """Bring a group's place in the queue up to date with its need."""
        group = self._book.groups.get(group_id)
        if group is None or group.open == 0:
            self._leave(group_id)
            self._pauses.pop(group_id, None)
            self._pause_ends.drop(group_id)
            self._forget_way(group_id)
            return
        if group.is_gang and group.live:
            self._forget_way(group_id)
        need = self._need(group)
        if need > 0 and self._waits_for(group, need):
            return
        self._leave(group_id)
        if need > 0:
            self._enter(group, need)

    def _forget_way(self, gang: GroupId) -> None:
        """Keep room for a gang no longer: it runs, or is over."""
        self._reservations.end(gang)
        self._way_made.pop(gang, None)

    def _waits_for(self, group: GroupRecord, need: int) -> bool:
        """Whether the queue has a group as it is: of its place nothing else changes."""
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

    def on_refused(self, worker: NodeId, wish: Wish, reason: str, now: float) -> None:
        """Leave a worker alone that refused, for a while or until it has news."""
        self._shyness.refused(wish.shape.profile, worker, reason, now)
        self.note(wish.group)

    def on_load_changed(self, worker: NodeId) -> None:
        """Ask a worker again: its load has changed since it refused."""
        self._shyness.ask_again(worker)

    def on_round_failed(self, round_: Round, now: float) -> None:
        """Let a gang rest before it tries again, longer each time."""
        pause = self._pauses.setdefault(round_.wish.group, _Pause())
        pause.failed += 1
        most_s = min(ROUND_PAUSE_MAX_S, ROUND_PAUSE_S * 2 ** min(pause.failed - 1, 8))
        pause.until = now + self._rng.uniform(0.5, 1.0) * most_s
        self._pause_ends.set(round_.wish.group, pause.until)
        self.note(round_.wish.group)

    @property
    def kinds(self) -> int:
        """How many kinds of groups wait: a pass tries each of them once."""
        return len(self._wanted)

    def rounds_failed(self, group: GroupId) -> int:
        """Return how often a gang has failed to get all its slots."""
        pause = self._pauses.get(group)
        return 0 if pause is None else pause.failed

    def reserved_for(self, group: GroupId) -> GroupId | None:
        """Return the gang for which room is kept that this group must stay off."""
        kept = self._reservations.current
        return None if kept is None or kept.group == group else kept.group

    def refusals(self, profile: Profile) -> Mapping[NodeId, str]:
        """Return why workers refused this profile of late."""
        return self._shyness.of(profile)

    def due(self, now: float) -> bool:
        """End pauses and shyness; return whether a pass may find more than the last."""
        bold = self._shyness.due(now) | self.suiting.due(now)
        rested = self._pause_ends.pop_due(now)
        for group in rested:
            self.note(group)
        return bold or bool(rested)

    # The pass.

    def match(self, now: float) -> list[Effect]:
        """Serve waiting groups in order, until none can be served.

        Of groups of one kind only the first is tried once one could not be served,
        so that a pass costs little however many wait. A pass that was cut short
        leaves the kinds it has tried to the pass after the next: those behind them
        have their turn.
        """
        if not self._wanted:
            self.unmet = {}
            self.cut_short = False
            return []
        effects: list[Effect] = []
        stuck = {kind: None for kind in self._tried if kind in self._wanted}
        touched: list[GroupId] = []
        self.cut_short = False
        for entry in self._queue.ordered(self._usage, now):
            if len(stuck) == len(self._wanted):
                break
            if len(touched) >= SERVED_MAX:
                self.cut_short = True
                break
            id_ = GroupId(entry.id)
            kind = self._waiting[id_][0]
            if kind in stuck:
                continue
            group = self._book.groups[id_]
            effects += self._serve(group, self._book.jobs[group.job], now)
            touched.append(id_)
            if self._need(group) > 0:
                stuck[kind] = None
        for id_ in touched:
            self.note(id_)
        self._tried = stuck if self.cut_short else {}
        self.unmet = {}
        for kind in stuck:
            profile = kind[0].profile
            count = self.unmet.get(profile, 0) + self._wanted.get(kind, 0)
            if count > 0:
                self.unmet[profile] = count
        return effects

    def refill(self, round_: Round, now: float) -> list[Effect]:
        """Ask others in place of those who refused a gang that is being won."""
        if round_.phase != "collecting" or round_.missing <= 0:
            return []
        wish = round_.wish
        group = self._book.groups[wish.group]
        job = self._book.jobs[group.job]
        count = self._within_quota(job, wish.shape, round_.missing)
        exclude = [*round_.refused, *self._shyness.of(wish.shape.profile)]
        asked = self._negotiator.asked_workers(wish.rank.request)
        if wish.shape.same_leaf == "require":
            exclude += leaves.elsewhere(self._views.table, self._in_round(round_))
        placed = self._place(group, wish.shape, count, [*exclude, *asked])
        return self._ask(wish, placed.takens, now)

    def _in_round(self, round_: Round) -> list[NodeId]:
        """Return the workers that a gang has asked or won slots of so far."""
        held = [self._holdings.get(lease) for lease in round_.leases]
        asked = self._negotiator.asked_workers(round_.wish.rank.request)
        return [*asked, *(holding.worker for holding in held if holding)]

    def _serve(self, group: GroupRecord, job: JobRecord, now: float) -> list[Effect]:
        if group.is_gang and not group.live:
            return self._serve_gang(group, job, now)
        effects: list[Effect] = []
        for profile in range(len(group.group.tasks[0].profiles)):
            shape = shape_of(job.job, group.group.tasks[0], profile)
            barred = self._reservations.barred(group, job.job.priority, now)
            effects += self._use_idle(group, profile, shape, barred, now)
            count = self._within_quota(job, shape, self._need(group))
            if count <= 0:
                break
            shy = self._shyness.of(shape.profile)
            barred = [*barred, *self.suiting.unsuited(group, shape, now)]
            exclude = [*shy, *barred]
            if group.is_gang and shape.same_leaf == "require":
                exclude += leaves.elsewhere(self._views.table, self._live_at(group))
            takens = self._place_apart(group, shape, count, exclude, now)
            short = count - len(takens)
            displaced: list[NodeId] = []
            if job.job.preempt:
                displaced = self._displaceable(shape, short, takens, barred)
            if takens or displaced:
                wish = self._wish(group, job, shape, profile, now)
                effects += self._ask(wish, takens, now, displaced)
            if not displaced and self._wait_ask_is_due(group, shape, short, now):
                some = min(short, WAIT_ASK_MAX)
                full = self._displaceable(shape, some, takens, barred)
                wish = self._wish(group, job, shape, profile, now, wait_for_s=WAIT_S)
                effects += self._ask(wish, (), now, full)
        return effects + self._line_up(group, job, now)

    def _line_up(self, group: GroupRecord, job: JobRecord, now: float) -> list[Effect]:
        """Send short tasks ahead to leases in use, to start when one ends there.

        Of what waits there nobody knows whether it has started when its worker is
        lost: it must be harmless to run it again, and no task is in doubt twice.
        """
        if group.is_gang or not job.job.may_run_again or self._need(group) <= 0:
            return []
        if group.group.verify is not None:
            return []  # What waits there may be barred from there by then.
        barred = self._reservations.barred(group, job.job.priority, now)
        effects: list[Effect] = []
        for holding, room in self._holdings.lines.open_for(group.id):
            fair = share(self._need(group), self._holdings.count(holding.shape))
            firsts = (task for task in group.waiting if self._may_wait(task, group))
            tasks = list(islice(firsts, min(room, fair)))
            if tasks and holding.worker not in barred:
                pairs = [(task, holding) for task in tasks]
                effects += self._dispatcher.assign(pairs, now)
        return effects

    def _may_wait(self, task: TaskId, group: GroupRecord) -> bool:
        return task not in group.seconds and self._book.tasks[task].crashes == 0

    def _wait_ask_is_due(
        self, group: GroupRecord, shape: Shape, short: int, now: float
    ) -> bool:
        """Whether to ask full workers, so that they know of us and who is first."""
        since = max(group.waiting_since, group.served_at)
        last = max(since, self._wait_asked.get(shape, since))
        if short <= 0 or now - last < WAIT_ASK_S:
            return False
        if len(self._wait_asked) >= WAIT_ASKED_MAX:
            self._wait_asked.clear()
        self._wait_asked[shape] = now
        return True

    def _serve_gang(
        self, group: GroupRecord, job: JobRecord, now: float
    ) -> list[Effect]:
        pause = self._pauses.get(group.id)
        if pause is not None and pause.until > now:
            return []
        wanted = self._need(group)
        least = min(group.group.gang_min, group.open)
        effects = self._make_way(group.id)
        for profile in range(len(group.group.tasks[0].profiles)):
            shape = shape_of(job.job, group.group.tasks[0], profile)
            count = self._within_quota(job, shape, wanted)
            if count < least:
                continue
            barred = self._reservations.barred(group, job.job.priority, now)
            wary = self.suiting.avoided(group, shape)
            exclude = [*self._shyness.of(shape.profile), *wary, *barred]
            placed = self._place_gang(group, shape, count, least, exclude)
            short = least - len(placed.takens)
            displaced: list[NodeId] = []
            if job.job.preempt and shape.same_leaf != "require":
                displaced = self._displaceable(shape, short, placed.takens, barred)
            if len(placed.takens) + len(displaced) < least or least == 0:
                for taken in placed.takens:
                    self._views.table.give(taken)
                continue
            wish = self._wish(group, job, shape, profile, now)
            wanted = len(placed.takens) + len(displaced)
            round_ = Round(wish=wish, wanted=wanted, least=least, began_at=now)
            self._negotiator.begin_round(round_, now)
            return effects + self._ask(wish, placed.takens, now, displaced)
        return effects + self._wait_for_room(group, job, least, now)

    def _make_way(self, gang: GroupId) -> list[Effect]:
        """Let go of what idles: a gang starts on leases of its own.

        But once only: while it waits for others' room, the tasks that pass it need not
        win theirs anew. Within one node, they would win and lose it without end.
        """
        if gang in self._way_made:
            return []
        self._way_made[gang] = None
        return self._holdings.release_idle()

    def _wait_for_room(
        self, group: GroupRecord, job: JobRecord, least: int, now: float
    ) -> list[Effect]:
        """Ask for a gang's slots where it could run, though our views show no room.

        What is free is held; where nothing is, the worker remembers that we wait.
        """
        shape = shape_of(job.job, group.group.tasks[0], 0)
        if self._within_quota(job, shape, least) < least:
            self._reservations.end(group.id)
            return []
        room = self._reservations.reserve(group, shape, least, now)
        if not room:
            return []
        wish = self._wish(group, job, shape, 0, now, wait_for_s=GANG_WAIT_S)
        round_ = Round(wish=wish, wanted=least, least=least, began_at=now)
        self._negotiator.begin_round(round_, now)
        return self._ask(wish, (), now, room)

    # Idle leases.

    def _use_idle(
        self,
        group: GroupRecord,
        profile: int,
        shape: Shape,
        barred: Collection[NodeId],
        now: float,
    ) -> list[Effect]:
        effects: list[Effect] = []
        spare: list[Holding] = []
        while self._need(group) > 0:
            holding = self._holdings.take_idle(shape)
            if holding is None:
                break
            if holding.worker in barred:
                effects += self._holdings.release([holding])
                continue
            task = self.suiting.task_for(group, holding.worker, now)
            if task is None:
                spare.append(holding)
                continue
            # It may have been won for another group.
            holding.group, holding.profile = group.id, profile
            effects += self._dispatcher.assign([(task, holding)], now)
        for holding in spare:
            self._holdings.make_idle(holding)
        return effects

    # Asking.

    def _ask(
        self,
        wish: Wish,
        takens: Sequence[Taken],
        now: float,
        displaced: Sequence[NodeId] = (),
    ) -> list[Effect]:
        """Ask each worker once, for what was booked there and what may be displaced."""
        by_worker: dict[NodeId, list[Taken | None]] = {}
        for taken in takens:
            by_worker.setdefault(taken.node, []).append(taken)
        for worker in displaced:
            by_worker.setdefault(worker, []).append(None)
        effects: list[Effect] = []
        for worker, booked in by_worker.items():
            effects += self._ask_worker(wish, worker, booked, now)
        return effects

    def _ask_worker(
        self, wish: Wish, worker: NodeId, takens: Sequence[Taken | None], now: float
    ) -> list[Effect]:
        if self._negotiator.is_round(wish.rank.request):
            return self._negotiator.ask(wish, worker, takens, now)
        effects: list[Effect] = []
        for start in range(0, len(takens), ASK_MAX):
            some = takens[start : start + ASK_MAX]
            effects += self._negotiator.ask(self._renamed(wish), worker, some, now)
        return effects

    def _displaceable(
        self,
        shape: Shape,
        count: int,
        booked: Sequence[Taken],
        barred: Collection[NodeId],
    ) -> list[NodeId]:
        """Return workers that would have more room if others' tasks gave way."""
        if count <= 0:
            return []
        nodes = self._views.table.nodes()
        if len(nodes) > DISPLACE_SAMPLE:
            nodes = sorted(self._rng.sample(nodes, DISPLACE_SAMPLE))
        shy = self._shyness.of(shape.profile)
        busy = self._negotiator.workers_asked_by(shape)
        bookings: dict[NodeId, int] = {}
        for taken in booked:
            bookings[taken.node] = bookings.get(taken.node, 0) + 1
        asked = PlacedShape(shape.profile, shape.driver)
        found: list[NodeId] = []
        for node in nodes:
            if node in shy or node in busy or node in barred:
                continue
            here = bookings.get(node, 0)
            most = count - len(found) + here
            slots = self._views.table.slots_if_idle(node, asked, most)
            found += [node] * (slots - here)
            if len(found) >= count:
                break
        return found

    def _place(
        self, group: GroupRecord, shape: Shape, count: int, exclude: Collection[NodeId]
    ) -> Placed:
        table, rng = self._views.table, self._rng
        return self._policies.place(shape, count, table, rng, exclude, group.marks)

    def _place_apart(
        self,
        group: GroupRecord,
        shape: Shape,
        count: int,
        exclude: Sequence[NodeId],
        now: float,
    ) -> tuple[Taken, ...]:
        """Place tasks; where owners are shunned, there only what fits nowhere else."""
        shunned = self.suiting.shunned(now)
        takens = self._place(group, shape, count, [*exclude, *shunned]).takens
        short = count - len(takens)
        if not shunned or short <= 0 or group.group.verify is not None:
            return takens
        return takens + self._place(group, shape, short, exclude).takens

    def _place_gang(
        self,
        group: GroupRecord,
        shape: Shape,
        count: int,
        least: int,
        exclude: Collection[NodeId],
    ) -> Placed:
        """Place a gang: under one leaf if it asks for that, all of it if possible."""
        if shape.same_leaf == "no":
            return self._place(group, shape, count, exclude)
        table = self._views.table
        asked = PlacedShape(shape.profile, shape.driver, shape.rtt_max_us)
        for wanted in dict.fromkeys((count, least)):
            if nodes := leaves.snuggest(asked, wanted, table, exclude):
                apart = leaves.elsewhere(table, nodes)
                return self._place(group, shape, count, [*exclude, *apart])
        if shape.same_leaf == "require":
            return Placed(reason=f"no leaf has room for {least}")
        return self._place(group, shape, count, exclude)

    def _wish(
        self,
        group: GroupRecord,
        job: JobRecord,
        shape: Shape,
        profile: int,
        now: float,
        *,
        wait_for_s: float = 0.0,
    ) -> Wish:
        request = self._negotiator.next_request(self._book.generation)
        age_s = max(0.0, now - max(group.waiting_since, group.served_at))
        rank = Rank(job.job.priority, age_s, self._node, request)
        return Wish(
            group=group.id,
            shape=shape,
            profile=profile,
            rank=rank,
            wait_for_s=wait_for_s,
        )

    def _renamed(self, wish: Wish) -> Wish:
        """Return the same wish under a request id of its own."""
        request = self._negotiator.next_request(self._book.generation)
        rank = msgspec.structs.replace(wish.rank, request=request)
        return msgspec.structs.replace(wish, rank=rank)

    # Needs.

    def _need(self, group: GroupRecord) -> int:
        """Return how many slots a group wants beyond those being won for it."""
        if group.is_gang and not group.live:
            if self._negotiator.round_of(group.id) is not None:
                return 0
            if len(group.waiting) < min(group.group.gang_min, group.open):
                return 0  # Some of it rests after a failure.
            return len(group.waiting)
        return len(group.waiting) - self._negotiator.pending(group.id)

    def _live_at(self, group: GroupRecord) -> list[NodeId]:
        """Return where the tasks of a group run."""
        return [run.worker for run in self._book.live_in(group)]

    def _within_quota(self, job: JobRecord, shape: Shape, count: int) -> int:
        """Return how many more slots the owner may have at this time."""
        if job.quota_gpus is None and job.quota_cpu_milli is None:
            return max(0, count)
        used = self._holdings.used_by(shape.owner)
        return job.quota.slots(shape.profile, used, count)
