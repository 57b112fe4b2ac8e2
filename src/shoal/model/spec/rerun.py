"""Run a job again: all of it, or only what did not succeed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from shoal.model.ids import GroupId, JobId, TaskId

if TYPE_CHECKING:
    from collections.abc import Collection

    from shoal.model.job import Group, Job


def again(job: Job, id_: JobId, done: Collection[TaskId] = ()) -> Job:
    """Return a new job with the tasks of an old one, except the `done` ones.

    A task keeps its index, so its part of the work stays the same. A gang runs whole
    or not at all, also the second time. There must be something left to do.
    """
    groups: list[Group] = []
    for group in job.groups:
        left = [task for task in group.tasks if task.id not in done]
        if not left:
            continue
        if group.gang_min > 0:
            left = list(group.tasks)
        name = GroupId(_renamed(group.id, job.id, id_))
        tasks = tuple(
            replace(
                task, id=TaskId(_renamed(task.id, job.id, id_)), job=id_, group=name
            )
            for task in left
        )
        groups.append(replace(group, id=name, tasks=tasks))
    assert groups, "all tasks are done"
    kept = {group.id for group in groups}
    return replace(
        job, id=id_, groups=tuple(_needing(g, job, id_, kept) for g in groups)
    )


def _needing(group: Group, job: Job, id_: JobId, kept: Collection[GroupId]) -> Group:
    """Let a group wait for groups that run again; the others have succeeded."""
    needs = (GroupId(_renamed(needed, job.id, id_)) for needed in group.needs)
    return replace(group, needs=tuple(needed for needed in needs if needed in kept))


def _renamed(name: str, old: JobId, new: JobId) -> str:
    assert name.startswith(f"{old}.")
    return new + name[len(old) :]
