"""What must be true of a job before a scheduler accepts it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shoal.model.kinds import need_of

if TYPE_CHECKING:
    from shoal.model.ids import GroupId
    from shoal.model.job import Group, Job


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
        for task in group.tasks:
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
    for task in group.tasks:
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
