"""Why a task runs where it runs, or what it waits for and what would help."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from shoal.core.negotiation.held_leases import shape_of
from shoal.core.verification.answer_history import answers_of, what_is_missing
from shoal.model.caches import cached_names, mark_of
from shoal.model.ids import NodeId, TaskId
from shoal.model.job import TaskState
from shoal.model.kinds import need_of
from shoal.policy.explanation import Explanation, explain
from shoal.policy.table import leaves

if TYPE_CHECKING:
    from shoal.core.discovery.worker_views import WorkerViews
    from shoal.core.negotiation.held_leases import HeldLeases
    from shoal.core.negotiation.negotiator import GangRound, Negotiator
    from shoal.core.scheduling.group_queue import GroupQueue
    from shoal.core.scheduling.job_book import GroupRecord, JobBook, JobRecord
    from shoal.core.scheduling.refusal_cache import RefusalCache
    from shoal.core.scheduling.reservations import Reservations
    from shoal.model.job import Work


class TaskExplanation(msgspec.Struct, frozen=True, kw_only=True):
    """What a scheduler knows about one task, in words and numbers."""

    task: TaskId
    state: TaskState
    why: tuple[str, ...]  # the most important first
    cached: tuple[str, ...] = ()  # who has cached what it needs, if it waits
    workers: tuple[NodeId, ...] = ()  # where it runs, if it does
    refused: tuple[tuple[NodeId, str], ...] = ()  # recent refusals
    placement: Explanation | None = None  # what each known worker lacks, if it waits
    answers: tuple[tuple[NodeId, str], ...] = ()  # if it is verified


def explain_task(
    task: TaskId,
    *,
    book: JobBook,
    views: WorkerViews,
    holdings: HeldLeases,
    queue: GroupQueue,
    reservations: Reservations,
    refusals: RefusalCache,
    negotiator: Negotiator,
) -> TaskExplanation | None:
    """Say why a task runs where it runs, or why it waits; None if it is unknown."""
    record = book.tasks.get(task)
    if record is None:
        return None
    group, job = book.group_of(task), book.job_of(task)
    why = [record.reason] if record.reason else []
    why += what_is_missing(record, group)
    if record.state != "waiting":
        if record.state == "blocked":
            why += _open_needs(book, group)
        return TaskExplanation(
            task=task,
            state=record.state,
            why=tuple(why),
            workers=tuple(run.worker for run in record.live.values()),
            answers=tuple(answers_of(record)),
        )
    shape = shape_of(job.job, record.task, 0)
    profile = shape.profile
    why += _what_holds_it(group, queue, negotiator)
    why += filter(None, [_over_quota(group, job, holdings), _parted(group, job, views)])
    if ahead := reservations.ahead_of(group.id):
        gang = f"the gang {ahead}"
        if book.jobs[book.groups[ahead].job].job.owner != job.job.owner:
            gang = (
                "a gang of another owner"  # Its job's name is none of their business.
            )
        why.append(f"the room is reserved for {gang}, which waits longer")
    return TaskExplanation(
        task=task,
        state=record.state,
        why=tuple(why),
        cached=tuple(_where_cached(record.task.work, views)),
        workers=tuple(run.worker for run in record.live.values()),
        answers=tuple(answers_of(record)),
        refused=tuple(sorted(refusals.of(profile).items())),
        placement=explain(
            profile,
            views.table,
            driver=need_of(record.task.work),
            rtt_max_us=shape.rtt_max_us,
            nodes=shape.nodes,
        ),
    )


def _open_needs(book: JobBook, group: GroupRecord) -> list[str]:
    return [
        f"it needs {needed}, of which {book.groups[needed].open} tasks have not ended"
        for needed in group.group.needs
        if book.groups[needed].open > 0
    ]


def _what_holds_it(
    group: GroupRecord, queue: GroupQueue, negotiator: Negotiator
) -> list[str]:
    why: list[str] = []
    if round_ := negotiator.round_of(group.id):
        why.append(_progress(round_))
    elif pending := negotiator.pending(group.id):
        why.append(f"{pending} slots are being negotiated for its group")
    if failed := queue.rounds_failed(group.id):
        why.append(f"its gang of {group.open} could not be won whole {failed} times")
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
    if leaves.snuggest(shape.asked, least, views.table):
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
    held = len(round_.leases)
    return f"its gang holds {held} of {round_.wanted} slots, and needs {round_.least}"
