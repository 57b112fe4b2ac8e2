"""Why a task runs where it runs, what it waits for and what would help, how it ended.

What can never be comes first: a wish that no worker could meet even when idle, or a
gang that is larger than the shoal. Then what holds the task itself, then what others
hold.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final, final

import msgspec

from shoal.core.negotiation.held_leases import shape_of
from shoal.core.verification.answer_history import answers_of, what_is_missing
from shoal.model.caches import cached_names, cached_words, mark_of
from shoal.model.ids import NodeId, TaskId
from shoal.model.job import TaskState
from shoal.policy.explanation import Explanation, explain

if TYPE_CHECKING:
    from shoal.core.discovery.worker_views import WorkerViews
    from shoal.core.dispatch.dispatcher import Dispatcher
    from shoal.core.negotiation.held_leases import HeldLeases
    from shoal.core.negotiation.negotiator import GangRound, Negotiator
    from shoal.core.records.records import GroupRecord, JobRecord, TaskRecord
    from shoal.core.scheduling.group_queue import GroupQueue
    from shoal.core.scheduling.job_book import JobBook
    from shoal.core.scheduling.policy_lookup import PolicyLookup
    from shoal.core.scheduling.refusal_cache import RefusalCache
    from shoal.core.scheduling.reservations import Reservations
    from shoal.core.scheduling.slot_placer import SlotPlacer
    from shoal.model.job import Group, Job, Work
    from shoal.policy.table.task_shapes import TaskShape
    from shoal.policy.table.worker_table import WorkerTable

GROUPS_TOLD_MAX: Final = 20
HOLDERS_TOLD_MAX: Final = 20
SAID_MAX: Final = 256
"""Shapes of tasks that no worker could run whose explanations are kept."""

FITS: Final = Explanation(fitting=0, rejected=(), summary=(), helps=())
"""Of tasks that some worker could run when idle: nothing is said of them."""


class TaskExplanation(msgspec.Struct, frozen=True, kw_only=True):
    """What a scheduler knows about one task, in words and numbers."""

    task: TaskId
    state: TaskState
    why: tuple[str, ...]  # the most important first
    cached: tuple[str, ...] = ()  # who has cached what it needs, if it waits
    workers: tuple[NodeId, ...] = ()  # where it runs, or ran
    refused: tuple[tuple[NodeId, str], ...] = ()  # recent refusals
    placement: Explanation | None = None  # what each known worker lacks, if it waits
    answers: tuple[tuple[NodeId, str], ...] = ()  # if it is verified


def explain_task(  # noqa: PLR0913 - it reads every part of a scheduler
    task: TaskId,
    *,
    book: JobBook,
    views: WorkerViews,
    holdings: HeldLeases,
    queue: GroupQueue,
    reservations: Reservations,
    refusals: RefusalCache,
    negotiator: Negotiator,
    dispatcher: Dispatcher,
    policies: PolicyLookup,
    placer: SlotPlacer,
    kept: str = "",
) -> TaskExplanation | None:
    """Say why a task runs where it runs, waits, or ended; None if it is unknown.

    `kept` says why its job starts no task now, if keepers are the reason.
    """
    record = book.tasks.get(task)
    if record is None:
        return None
    group, job = book.group_of(task), book.job_of(task)
    if record.state != "waiting":
        return _explain_placed(record, group, job, book, views, policies)
    placement = placement_of(group.group, job.job, views)
    rest_s = dispatcher.rest_s(task)
    last = f"its last attempt: {record.reason}" if record.reason else ""
    resting = (
        f"it rests up to {rest_s:g} s after attempt {record.attempts}" if rest_s else ""
    )
    why = [kept, placement.never, _too_large(group, job, views), resting, last]
    why += what_is_missing(record, group)
    why += _what_holds_it(group, queue, negotiator)
    why += [_over_quota(group, job, holdings), _parted(group, job, views)]
    why.append(placer.said_of(group.id))
    if ahead := reservations.ahead_of(group.id):
        gang = f"the gang {ahead}"
        if book.jobs[book.groups[ahead].job].job.owner != job.job.owner:
            gang = (
                "a gang of another owner"  # Its job's name is none of their business.
            )
        why.append(f"the room is reserved for {gang}, which waits longer")
    if not placement.fitting and (before := queue.ranked_above(job.job.priority)):
        tasks = "1 task" if before == 1 else f"{before} tasks"
        why.append(f"{tasks} of a higher priority go first")
    return TaskExplanation(
        task=task,
        state=record.state,
        why=tuple(filter(None, why)),
        cached=tuple(_where_cached(record.task.work, views)),
        workers=tuple(run.worker for run in record.live.values()),
        answers=tuple(answers_of(record)),
        refused=tuple(sorted(refusals.of(record.task.profiles[0]).items())),
        placement=None if rest_s else _with_holders(placement, job, book, holdings),
    )


def _with_holders(
    placement: Explanation, job: JobRecord, book: JobBook, holdings: HeldLeases
) -> Explanation:
    """Add to busy workers which jobs of the same owner hold leases there."""
    busy = [each for each in placement.rejected if each.is_busy][:HOLDERS_TOLD_MAX]
    told = list(placement.rejected)
    for place, each in enumerate(busy):  # They come first.
        groups = (book.groups.get(h.group) for h in holdings.all_at(each.node))
        jobs = [
            group.job
            for group in groups
            if group is not None
            and group.job != job.job.id
            and book.jobs[group.job].job.owner == job.job.owner
        ]
        if names := ", ".join(dict.fromkeys(jobs)):
            reason = f"{each.reason}; {names} runs there"
            told[place] = msgspec.structs.replace(each, reason=reason)
    return msgspec.structs.replace(placement, rejected=tuple(told))


def placement_of(group: Group, job: Job, views: WorkerViews) -> Explanation:
    """Say what each worker lacks for the wish that comes nearest to be met."""
    found = [_explained(shape, views.table) for shape in _shapes(group, job)]
    return _nearest(found)


def never(job: Job, views: WorkerViews) -> str:
    """Say why no known worker could run the first group of a job, if so."""
    if not len(views):
        return "no worker is known"
    first = job.groups[0]
    return placement_of(first, job, views).never or too_large(first, job, views)


@final
class Prospects:
    """Says of new jobs what can never be.

    Most jobs fit some worker, and that is quickly found. The others often come many
    at once and ask for the same: what was said of them holds until a worker changes.
    """

    def __init__(self, book: JobBook, views: WorkerViews) -> None:
        self._book = book
        self._views = views
        self._said: dict[TaskShape, Explanation] = {}
        self._said_at = 0  # the change of the table after which it was said

    def hopeless(self, job: Job) -> list[str]:
        """Say which groups no known worker could run, why, and what would help."""
        told: list[str] = []
        for group in job.groups[:GROUPS_TOLD_MAX] if len(self._views) else ():
            known = self._book.groups.get(group.id)
            if (
                known is not None
                and known.live
                and all(record.live for record in self._book.records_in(known))
            ):
                continue  # It runs.
            placement = self._placement_of(group, job)
            if why := placement.never or too_large(group, job, self._views):
                name = f"{group.id.rpartition('.')[2]}: " if len(job.groups) > 1 else ""
                fixes = [e for e in placement.helps if not e.startswith("wait")]
                helps = f" Or: {'   |   '.join(fixes)}" if fixes else ""
                stop = "" if why.endswith("?") else "."
                told.append(
                    f"{name}{why}{stop} It waits until a node joins that can run it."
                    f"{helps}"
                )
        return told

    def _placement_of(self, group: Group, job: Job) -> Explanation:
        table = self._views.table
        if self._said_at != table.grid.now or len(self._said) >= SAID_MAX:
            self._said.clear()
            self._said_at = table.grid.now
        found: list[Explanation] = []
        for shape in _shapes(group, job):
            said = self._said.get(shape)
            if said is None:
                need = table.need(shape)
                if any(row and row.fits_idle(need) for row in table.grid.rows):
                    return FITS
                said = self._said[shape] = _explained(shape, table)
            found.append(said)
        return _nearest(found)


def _shapes(group: Group, job: Job) -> list[TaskShape]:
    """Return what the tasks of a group may ask for: one of their wishes."""
    first = group.tasks[0]
    return [shape_of(job, first, n).asked for n in range(len(first.profiles))]


def _explained(shape: TaskShape, table: WorkerTable) -> Explanation:
    return explain(
        shape.profile,
        table,
        driver=shape.driver,
        rtt_max_us=shape.rtt_max_us,
        nodes=shape.nodes,
    )


def _nearest(found: list[Explanation]) -> Explanation:
    return max(found, key=lambda each: (each.fitting > 0, each.able > 0))


def too_large(group: Group, job: Job, views: WorkerViews) -> str:
    """Say that the shoal could not hold a gang even when idle, if so."""
    most, least, shapes = 0, group.gang_min, _shapes(group, job)
    for shape in shapes if least > 1 else ():
        slots = 0
        for node in views.table.nodes():
            slots += views.table.slots_if_idle(node, shape, least - slots)
            if slots >= least:
                return ""
        most = max(most, slots)
    if not most:
        return ""  # No worker could run even one: that is said elsewhere.
    known = "the only node has" if len(views) == 1 else f"all {len(views)} nodes have"
    apart = ", each on a node of its own" if group.tasks[0].alone else ""
    return (
        f"its {least} tasks start together{apart}, and {known} room for {most} of "
        f"them when idle{_shut_out(group, job, views)}"
    )


def _shut_out(group: Group, job: Job, views: WorkerViews) -> str:
    """Say why some workers could not run even one of its tasks: what most lack."""
    rejected = placement_of(group, job, views).rejected
    told = Counter(each.reason for each in rejected if not each.is_busy)
    if not told:
        return ""
    [(why, count)] = told.most_common(1)
    return f": {why} at {count} of {len(views)}"


def _explain_placed(
    record: TaskRecord,
    group: GroupRecord,
    job: JobRecord,
    book: JobBook,
    views: WorkerViews,
    policies: PolicyLookup,
) -> TaskExplanation:
    """Explain a task that does not wait for a worker."""
    why = [record.reason] if record.reason else []
    if record.ended and record.worker:
        why = [_how_it_ended(record)]
    if record.moved:
        why.append(record.moved)
    why += what_is_missing(record, group)
    workers = [run.worker for run in record.live.values()]
    if record.state == "blocked" and job.job.schedule is not None:
        why.append("it is a schedule: each of its runs is a job of its own")
    elif record.state == "blocked":
        why += _open_needs(book, group)
    elif record.state == "running":
        why += _why_there(record, group, job, views, policies)
        why += _on_the_links(group, job, book, views)
    elif record.worker:
        workers = [record.worker]
    return TaskExplanation(
        task=record.task.id,
        state=record.state,
        why=tuple(why),
        workers=tuple(workers),
        answers=tuple(answers_of(record)),
    )


def _why_there(
    record: TaskRecord,
    group: GroupRecord,
    job: JobRecord,
    views: WorkerViews,
    policies: PolicyLookup,
) -> list[str]:
    """Say what speaks for the workers of a running task, as they are known now."""
    able, known = placement_of(group.group, job.job, views).able, len(views)
    policy = policies.get(job.job.policy).name
    why = [f"policy {policy} chose it: {able} of {known} nodes could run it when idle"]
    for run in record.live.values():
        view = views.table.view(run.worker)
        if view is None:
            continue
        if had := cached_words(record.task.work, view.warm):
            why.append(f"its worker has its {had}")
        if view.path_cost_us:
            why.append(f"its worker is {view.path_cost_us / 1e3:.1f} ms away")
    return why


def _on_the_links(
    group: GroupRecord, job: JobRecord, book: JobBook, views: WorkerViews
) -> list[str]:
    """Say who shares the uplinks that a gang talks over, and what that costs."""
    links, mark = views.table.links, mark_of(group.id)
    rows = views.table.indices([run.worker for run in book.live_in(group)])
    used = links.of(mark)
    if not used or not rows:
        return []
    others = max(links.crossing[domain] for domain in used) - 1
    shape = shape_of(job.job, group.group.tasks[0], 0)
    slower = views.table.gang_room(shape.asked).slowdown(rows, len(rows), mark)
    if slower <= 1.0:
        return []  # In one place, or where links are as wide above as below.
    shared = f"{others or 'no'} other gang{'' if others == 1 else 's'}"
    cost = f"by estimate it takes {slower:.1f} times as long as in one place"
    return [f"its gang talks over uplinks that carry {shared}; {cost}"]


def _how_it_ended(record: TaskRecord) -> str:
    tries = "1 attempt" if record.attempts == 1 else f"{record.attempts} attempts"
    lasted_s = record.ended_wall_s - record.began_wall_s
    span = f", {lasted_s:.1f} s" if record.began_wall_s and lasted_s >= 0 else ""
    code = record.outcome.exit_code if record.outcome else None
    how = record.reason or (f"exit code {code}" if code is not None else record.state)
    return f"{how} ({tries}{span})"


def _open_needs(book: JobBook, group: GroupRecord) -> list[str]:
    return [
        f"it needs {needed}, of which {_tasks(book.groups[needed].open)} not ended"
        for needed in group.group.needs
        if book.groups[needed].open > 0
    ]


def _tasks(count: int) -> str:
    return "1 task has" if count == 1 else f"{count} tasks have"


def _too_large(group: GroupRecord, job: JobRecord, views: WorkerViews) -> str:
    return too_large(group.group, job.job, views) if not group.live else ""


def _what_holds_it(
    group: GroupRecord, queue: GroupQueue, negotiator: Negotiator
) -> list[str]:
    why: list[str] = []
    if round_ := negotiator.round_of(group.id):
        why.append(_progress(round_))
    elif pending := negotiator.pending(group.id):
        slots = "1 slot is" if pending == 1 else f"{pending} slots are"
        why.append(f"{slots} being negotiated for its group")
    if failed := queue.rounds_failed(group.id):
        times = "once" if failed == 1 else f"{failed} times"
        why.append(
            f"its gang of {group.open} could not be won whole {times}; it tries again"
        )
    return why


def _over_quota(group: GroupRecord, job: JobRecord, holdings: HeldLeases) -> str:
    """Say how the quota of its owner holds a group back, and what to do."""
    shape = shape_of(job.job, group.group.tasks[0], 0)
    least = _least(group) if group.is_gang and not group.live else 1
    used = holdings.used_by(shape.owner)
    excess = job.quota.excess(shape.owner, shape.profile, used, least)
    if not excess:
        return ""
    if job.quota.allows_ever(shape.profile, least):
        return f"{excess}; wait until some of its tasks end"
    return f"{excess}; ask for less, or an admin for a larger quota"


def _parted(group: GroupRecord, job: JobRecord, views: WorkerViews) -> str:
    """Say whether a gang waits for room under one leaf."""
    if job.job.same_leaf != "require" or not group.is_gang:
        return ""
    shape = shape_of(job.job, group.group.tasks[0], 0)
    least = _least(group)
    if views.table.gang_room(shape.asked).leaf(least):
        return ""
    return f"no leaf has room for {least} of its tasks"


def _least(group: GroupRecord) -> int:
    return min(group.group.gang_min, group.open)


def _where_cached(work: Work, views: WorkerViews) -> list[str]:
    """Say on how many workers the things that a task needs are cached."""
    return [
        f"its {word} is cached on {views.table.warm.count(mark_of(name))} of "
        f"{len(views)} workers"
        for name, word in cached_names(work).items()
    ]


def _progress(round_: GangRound) -> str:
    held = min(round_.wanted, len(round_.leases))
    return f"its gang holds {held} of {round_.wanted} slots, and needs {round_.least}"
