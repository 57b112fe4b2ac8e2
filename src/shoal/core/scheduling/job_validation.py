"""What must be true of a job before a scheduler accepts it, or cancels part of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

import msgspec

from shoal.core.durability.journal import Submitted
from shoal.core.membership.quotas import Quota, narrowed_job
from shoal.model.ids import NodeId
from shoal.model.job import TaskArray
from shoal.model.kinds import need_of
from shoal.model.spec.limits import TASKS_MAX

if TYPE_CHECKING:
    from shoal.core.events import CancelRequested, JobSubmitted
    from shoal.core.membership.members import Admission
    from shoal.core.membership.roster import Roster
    from shoal.core.scheduling.children import Children
    from shoal.core.scheduling.job_book import JobBook
    from shoal.core.scheduling.policy_lookup import PolicyLookup
    from shoal.core.scheduling.schedules import Schedules
    from shoal.core.succession.succession import Succession
    from shoal.model.ids import GroupId
    from shoal.model.job import Group, Job


@final
class Submissions:
    """Checks new jobs, and gives them no more than their submitter may have."""

    def __init__(
        self,
        node: NodeId,
        roster: Roster,
        policies: PolicyLookup,
        schedules: Schedules,
        children: Children,
        succession: Succession,
    ) -> None:
        """Ask these parts of a scheduler what they have against a job."""
        self._node, self._roster, self._policies = node, roster, policies
        self._schedules, self._children = schedules, children
        self._succession = succession

    def entry_of(self, event: JobSubmitted, now: float) -> Submitted | str:
        """Return the entry of a new job, or why it is refused."""
        job, entry = event.job, self._entry_of(event, now)
        if isinstance(entry, str):
            return entry
        reason = flaw(job) or self._policies.refusal(job.policy)
        return reason or self._schedules.refusal(job, now) or entry

    def _entry_of(self, event: JobSubmitted, now: float) -> Submitted | str:
        wall_s = self._roster.wall_s(now)
        if event.parent is not None and event.job.keepers:
            return "a job that a task submits cannot be kept: it ends with its task"
        if event.parent is not None:
            return self._children.admit(event, event.parent, wall_s)
        admission = self._submitter(event, now)
        if isinstance(admission, str):
            return admission
        job = _clamped(event.job, admission)
        members = self._succession.members_for(job, now)
        if isinstance(members, str):
            return members
        if members:
            job = msgspec.structs.replace(job, keepers=len(members) - 1)
        return Submitted(
            job,
            wall_s,
            admission.quota_gpus,
            admission.quota_cpu_milli,
            by=NodeId("") if event.grant is None else event.grant.node,
            serial=0 if event.grant is None else event.grant.serial,
            members=members,
        )

    def _submitter(self, event: JobSubmitted, now: float) -> Admission | str:
        if event.grant is not None:
            return self._roster.verify(event.grant.node, event.grant, now)
        return self._roster.recall(self._node, now)


def flaw(job: Job) -> str | None:
    """Say what is wrong with a job, if anything. Jobs derived from specs are sound."""
    if not job.groups:
        return "it has no tasks"
    known: dict[GroupId, None] = {}
    seen: dict[str, None] = {}
    for group in job.groups:
        if reason := _flaw_of_group(group, job, known):
            return f"{group.id}: {reason}"
        known[group.id] = None
        for task in group.models:
            if task.id in seen:
                return f"{task.id} is there twice"
            seen[task.id] = None
    return None


def _flaw_of_group(group: Group, job: Job, known: dict[GroupId, None]) -> str | None:
    if group.id in known:
        return "it is there twice"
    if not group.tasks:
        return "it has no tasks"
    if not 0 <= group.gang_min <= len(group.tasks):
        return f"a gang of {len(group.tasks)} cannot need {group.gang_min}"
    if group.verify is not None and (group.gang_min or job.at_most_once):
        return "a gang, or what runs only once, cannot be verified"
    for needed in group.needs:
        if needed not in known:
            return f"it needs {needed}, which does not come before it"
    first = group.tasks[0]
    if isinstance(group.tasks, TaskArray) and (reason := _flaw_of_array(group)):
        return reason
    for task in group.models:
        if task.job != job.id or task.group != group.id:
            return f"{task.id} says it is of {task.group} in {task.job}"
        if not task.profiles:
            return f"{task.id} does not say what it needs"
        if (task.profiles, need_of(task.work), task.time_limit_s) != (
            first.profiles,
            need_of(first.work),
            first.time_limit_s,
        ):
            return f"{task.id} needs other resources than {first.id}"
    return None


def _flaw_of_array(group: Group) -> str | None:
    if group.gang_min or group.verify is not None or group.objective is not None:
        return "its tasks are compared or start together, so they must be listed"
    if len(group.tasks) > TASKS_MAX:
        return f"it has {len(group.tasks):,} tasks, the most is {TASKS_MAX:,}"
    if group.tasks[0].index or group.tasks[0].id != f"{group.id}.0":
        return f"its first task is {group.tasks[0].id}"
    return None


def _clamped(job: Job, admission: Admission) -> Job:
    """Return a job with no more than its submitter may ask for."""
    quota = Quota(admission.quota_gpus, admission.quota_cpu_milli)
    clamped = msgspec.structs.replace(
        job, owner=admission.owner, priority=admission.clamp(job.priority)
    )
    return narrowed_job(clamped, quota)


def why_not_cancelled(book: JobBook, event: CancelRequested) -> str | None:
    """Say why what a client wants to end cannot be cancelled, if it cannot."""
    if event.job not in book.jobs:
        return f"no job {event.job} here"
    if event.task is None:
        return None
    if event.task not in book.tasks or book.job_of(event.task).job.id != event.job:
        return f"job {event.job} has no task {event.task}"
    if book.group_of(event.task).is_gang:
        return f"{event.task} is one of a gang, which runs as one: cancel the job"
    return None
