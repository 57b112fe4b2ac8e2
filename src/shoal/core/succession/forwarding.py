"""Forwarding: which whole jobs another scheduler of their owner should have.

Theory of operation. Tasks travel to the workers anyway. What a job needs of its
scheduler is that this is near the workers, has time for it, and stays. So a job of
which nothing has begun goes to another scheduler (`Succession.forward`) that

- is *nearer*: no worker that could run the job is at this node's site (`SitesChanged`),
  and most of them are at a site where the other one is; or
- has *less to do*: this node schedules more than `BUSY_TASKS` that have not ended, and
  the other not half as many, with the job; or
- *stays*: this node leaves the shoal (`DepartureNear`). Then jobs go of which nothing
  runs, whatever became of their other tasks.

Schedulers of one owner tell each other how many tasks they have (`SchedulerLoad`), when
they are linked and when that has doubled or halved. Who never said so gets nothing. A
job goes further once only, but for a leave, and is offered to each scheduler once. So
jobs do not go in circles, whatever schedulers say of each other.

Some jobs stay: those that are bound to this node (standard input, schedules, calls at
their end, jobs of tasks, interpreters for calls, a largest round trip), and those with
verified results or keepers of their own.

Nothing is durable. Bounded are the offers under way.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final, final

import msgspec

from shoal.core.deadlines import Deadlines
from shoal.core.durability.compaction import job_entries
from shoal.core.durability.journal import encode
from shoal.core.events import Record, Send
from shoal.core.negotiation.held_leases import shape_of
from shoal.protocol.limits import KEPT_BYTES_MAX
from shoal.protocol.succession.messages import SchedulerLoad

if TYPE_CHECKING:
    from collections.abc import Mapping

    from shoal.core.artifacts.provisions import Provisions
    from shoal.core.deadlines import DeadlineHeap
    from shoal.core.discovery.worker_views import WorkerViews
    from shoal.core.membership.roster import Roster
    from shoal.core.records.records import JobRecord
    from shoal.core.scheduling.job_book import JobBook
    from shoal.core.scheduling.notices import Consequence
    from shoal.core.succession.succession import Succession
    from shoal.model.ids import JobId, NodeId
    from shoal.model.job import Job

BUSY_TASKS: Final = 2_000
"""A scheduler with more tasks than this looks for another one."""

LOOK_S: Final = 2.0
"""How often jobs that wait are looked at, and how often others are told."""

FORWARDS_MAX: Final = 1
AT_ONCE: Final = 32
"""Jobs that are on their way to others at one time."""

OFFERS_KEPT_MAX: Final = 10_000


class ForwardRule(msgspec.Struct, frozen=True):
    """Whether jobs go to other schedulers, from how many tasks on, and who takes them.

    Who takes jobs tells others how much it has to do. So many `keepers` have the jobs
    that stay and say nothing of keepers, if so many are there.
    """

    is_on: bool = False
    takes: bool = False
    busy_tasks: int = BUSY_TASKS
    keepers: int = 0


STAY: Final = ForwardRule()


@final
class Forwarding:
    """Decides which jobs of a scheduler others should have."""

    def __init__(
        self,
        node: NodeId,
        roster: Roster,
        book: JobBook,
        views: WorkerViews,
        succession: Succession,
        provisions: Provisions,
        heap: DeadlineHeap,
        rule: ForwardRule,
    ) -> None:
        """Know no other scheduler."""
        self.counts: Counter[str] = Counter()
        self._node, self._roster, self._book, self._views = node, roster, book, views
        self._succession, self._provisions = succession, provisions
        self._rule = rule
        self._loads: dict[NodeId, SchedulerLoad] = {}
        self._told: dict[NodeId, SchedulerLoad] = {}
        self._offered: dict[tuple[JobId, NodeId], None] = {}
        self._open = 0  # tasks of ours that had not ended at the last look
        self._leaves = False
        self._looks: Deadlines[str] = Deadlines(heap)

    # What others may have.

    def on_linked(self, peer: NodeId, now: float) -> list[Consequence]:
        """Tell another scheduler of this owner how much we have to do."""
        self._told.pop(peer, None)
        if not self._rule.takes or not self._succession.is_fellow(peer, now):
            return []
        self._looks.set_earlier("look", now + LOOK_S)
        return self._tell(peer)

    def on_lost(self, peer: NodeId) -> None:
        """Forget a scheduler that is not linked any more."""
        self._loads.pop(peer, None)
        self._told.pop(peer, None)

    def on_load(
        self, peer: NodeId, load: SchedulerLoad, now: float
    ) -> list[Consequence]:
        """Note how much another scheduler has to do, as it says itself."""
        if self._succession.is_fellow(peer, now):
            self._loads[peer] = load
        return []

    def _tell(self, peer: NodeId) -> list[Consequence]:
        load = SchedulerLoad(open=self._open, full=self._leaves)
        self._told[peer] = load
        return [Send(peer, load)]

    def _is_news(self, peer: NodeId) -> bool:
        told = self._told.get(peer)
        if told is None or told.full != self._leaves:
            return True
        return told.open.bit_length() != self._open.bit_length()

    # What goes.

    def on_submitted(self, job: JobId, now: float) -> None:
        """Look at a new job before any of its tasks is placed."""
        self._open += sum(len(group.tasks) for group in self._book.jobs[job].job.groups)
        if not self._rule.is_on and not self._told:
            return
        self._looks.set_earlier("look", now + LOOK_S)
        if self._rule.is_on and self._target(self._book.jobs[job], now) is not None:
            self._book.suspended[job] = None  # It is offered at the end of this turn.
            self._looks.set("look", now)

    def leave(self, now: float) -> list[Consequence]:
        """Let others have all jobs of which nothing runs: this node leaves for good."""
        self._leaves = True
        follows: list[Consequence] = []
        for peer in list(self._loads):
            follows += self._tell(peer) if self._is_news(peer) else []
        for record in list(self._book.jobs.values()):
            if (to := self._target(record, now)) is not None:
                follows += self._offer(record, to, now)
        return follows

    def due(self, now: float) -> list[Consequence]:
        """Look at jobs that wait, and tell others how much there is to do."""
        if not self._looks.pop_due(now):
            return []
        book = self._book
        follows: list[Consequence] = []
        active = [record for record in book.jobs.values() if record.state == "active"]
        self._open = sum(self._open_in(record) for record in active)
        room = AT_ONCE - self._succession.forwards if self._rule.is_on else 0
        for record in reversed(active):  # Those that came last wait longest.
            job = record.job.id
            to = self._target(record, now) if room > 0 else None
            if to is not None:
                room -= 1
                follows += self._offer(record, to, now)
            elif job in book.suspended and not self._succession.is_led(job):
                del book.suspended[job]  # It was to go, and stays after all.
                follows += self._succession.needs(job)
        for peer in list(self._told):
            follows += self._tell(peer) if self._is_news(peer) else []
        if active and (self._told or self._rule.is_on):
            self._looks.set("look", now + LOOK_S)
        return follows

    def _open_in(self, record: JobRecord) -> int:
        groups = record.job.groups
        return sum(self._book.groups[group.id].open for group in groups)

    def _offer(self, record: JobRecord, to: NodeId, now: float) -> list[Consequence]:
        job = record.job
        self.counts["offered"] += 1
        self._offered[job.id, to] = None
        if len(self._offered) > OFFERS_KEPT_MAX:
            del self._offered[next(iter(self._offered))]
        count, load = self._open_in(record), self._loads[to]
        self._loads[to] = msgspec.structs.replace(load, open=load.open + count)
        self._open -= count
        sealed = self._provisions.sealed_for(job, (self._node, to))
        forwarded = self._succession.forward(job.id, to, now)
        return [*map(Record, sealed), *forwarded]

    # Whether, and to whom.

    def _target(self, record: JobRecord, now: float) -> NodeId | None:
        """Return who should have a job; None if it stays."""
        if not self._loads or not self._may_go(record, now):
            return None
        job = record.job
        others = {
            peer: load
            for peer, load in self._loads.items()
            if not load.full
            and (job.id, peer) not in self._offered
            and self._succession.is_fellow(peer, now)
        }
        if not others:
            return None
        to = self._nearer(job, others) or self._idler(record, others)
        if self._leaves:
            to = min(others, key=lambda peer: (others[peer].open, peer))
        return None if to is None or self._is_too_large(record) else to

    def _is_too_large(self, record: JobRecord) -> bool:
        entries = job_entries(self._book, record)
        most = KEPT_BYTES_MAX // 2
        return any(len(encode(entry)[1]) > most for entry in entries)

    def _may_go(self, record: JobRecord, now: float) -> bool:
        job, book = record.job, self._book
        if record.state != "active" or record.members or record.parent is not None:
            return False
        if record.forwards >= FORWARDS_MAX and not self._leaves:
            return False
        if self._succession.is_led(job.id) or is_bound(job):
            return False
        if job.owner != self._roster.owner_of(self._node, now):
            return False
        if any(book.groups[group.id].live for group in job.groups):
            return False
        groups = [book.groups[group.id] for group in job.groups]
        if any(group.array is not None and group.array.began_s for group in groups):
            return False  # What became of a million tasks is too much to send.
        begun = (each.attempts for group in groups for each in book.records_in(group))
        return self._leaves or not any(begun)

    def _nearer(
        self, job: Job, others: Mapping[NodeId, SchedulerLoad]
    ) -> NodeId | None:
        """Return who is at the site of most workers for a job, if we are far."""
        sites = self._views.sites
        own = sites.get(self._node)
        if own is None:
            return None
        found = self._workers_by_site(job)
        if own in found or not found:
            return None
        site, count = min(found.items(), key=lambda each: (-each[1], each[0]))
        if not site or 2 * count < found.total():
            return None
        near = [
            peer
            for peer, load in others.items()
            if sites.get(peer) == site and load.open <= self._rule.busy_tasks
        ]
        return min(near, key=lambda peer: (others[peer].open, peer), default=None)

    def _workers_by_site(self, job: Job) -> Counter[str]:
        """Count the workers at each site that could run a job; "" is no known site."""
        table, found = self._views.table, Counter[str]()
        first = job.groups[0].tasks[0]
        shapes = [shape_of(job, first, n).asked for n in range(len(first.profiles))]
        needs = [table.need(shape) for shape in shapes]
        for row in table.grid.rows:
            if row is not None and any(row.fits_idle(need) for need in needs):
                found[row.site] += 1
        return found

    def _idler(
        self, record: JobRecord, others: Mapping[NodeId, SchedulerLoad]
    ) -> NodeId | None:
        """Return who has much less to do than this node, if that has too much."""
        if self._open <= self._rule.busy_tasks:
            return None
        count = self._open_in(record)
        idle = [
            p for p, each in others.items() if 2 * (each.open + count) <= self._open
        ]
        return min(idle, key=lambda peer: (others[peer].open, peer), default=None)


def is_bound(job: Job) -> bool:
    """Whether a job belongs to the node that it was submitted to."""
    if job.schedule is not None or job.occurrence is not None or job.on_end is not None:
        return True
    if job.max_rtt_s is not None:
        return True
    works = [group.tasks[0].work for group in job.groups]
    if any(work.stdin != "none" or work.driver == "python" for work in works):
        return True
    return any(group.verify is not None for group in job.groups)
