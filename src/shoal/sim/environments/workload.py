"""Draw worlds whose tasks run in environments that their workers make."""

from __future__ import annotations

from random import Random
from typing import Final

import msgspec

from shoal.model.job import Group, Job, PythonNeed, Task, Work
from shoal.sim.workload import Workload

WORLDS_SHARE: Final = 0.15  # share of worlds with such tasks
JOBS_SHARE: Final = 0.5  # share of their jobs that need environments
PACKAGES: Final = ("numpy==2.1.0", "torch==2.5.0", "jax==0.4.35")


def with_environments(rng: Random, workload: Workload) -> Workload:
    """Let some jobs need environments, in some worlds; several need the same."""
    if rng.random() >= WORLDS_SHARE:
        return workload
    errands = tuple(
        msgspec.structs.replace(errand, job=_with_environment(rng, errand.job))
        if rng.random() < JOBS_SHARE
        else errand
        for errand in workload.errands
    )
    return msgspec.structs.replace(workload, errands=errands)


def _with_environment(rng: Random, job: Job) -> Job:
    packages = (rng.choice(PACKAGES),) if rng.random() < 0.7 else ()
    setup = ("make",) if not packages or rng.random() < 0.3 else ()
    caches = ("data",) if rng.random() < 0.3 else ()

    def extended(work: Work) -> Work:
        need = PythonNeed(packages=packages)
        return msgspec.structs.replace(work, python=need, setup=setup, caches=caches)

    def task_with(task: Task) -> Task:
        return msgspec.structs.replace(task, work=extended(task.work))

    def group_with(group: Group) -> Group:
        tasks = tuple(map(task_with, group.tasks))
        return msgspec.structs.replace(group, tasks=tasks)

    return msgspec.structs.replace(job, groups=tuple(map(group_with, job.groups)))
