"""Draw worlds whose tasks need code, leave outputs and save checkpoints."""

from __future__ import annotations

from random import Random
from typing import Final

import msgspec

from shoal.model.caches import TREE
from shoal.model.job import Group, Job, Work
from shoal.protocol.limits import PIECE_BYTES_MAX
from shoal.sim.node.blobs import PackedTree, pack_tree
from shoal.sim.node.driver import Plans
from shoal.sim.workload import Workload

ARTIFACTS_SHARE: Final = 0.3  # share of worlds with such tasks
OUTPUTS_SHARE: Final = 0.6  # share of their jobs that leave outputs
CODE_SHARE: Final = 0.5  # share of their jobs that need code
SAVING_SHARE: Final = 0.3  # share of their tasks that save checkpoints
SAVES: Final = 3  # starts of such a task that save one; what saves for ever never ends
CODE_BYTES: Final = (300, 2 * PIECE_BYTES_MAX + 7)  # sizes of its files
OUTPUTS: Final = Work(outputs=("out",))


def with_artifacts(rng: Random, workload: Workload) -> Workload:
    """Add code, outputs and checkpoints to a workload, in some worlds."""
    if rng.random() >= ARTIFACTS_SHARE:
        return workload
    code = pack_tree(rng.randbytes(16), [rng.randbytes(n) for n in CODE_BYTES])
    errands = tuple(
        msgspec.structs.replace(
            errand, job=with_work(errand.job, _draw_work(rng, code))
        )
        for errand in workload.errands
    )
    plans: Plans = {
        task: msgspec.structs.replace(plan, talks=True, saves=SAVES)
        if rng.random() < SAVING_SHARE
        else plan
        for task, plan in workload.plans.items()
    }
    return Workload(errands=errands, plans=plans, code=code)


def _draw_work(rng: Random, code: PackedTree) -> Work:
    return Work(
        workdir=f"{TREE}{code.name}" if rng.random() < CODE_SHARE else "",
        outputs=OUTPUTS.outputs if rng.random() < OUTPUTS_SHARE else (),
    )


def with_work(job: Job, work: Work) -> Job:
    """Return the job with this work for each of its tasks."""
    groups = tuple(_group_with_work(group, work) for group in job.groups)
    return msgspec.structs.replace(job, groups=groups)


def _group_with_work(group: Group, work: Work) -> Group:
    tasks = tuple(msgspec.structs.replace(task, work=work) for task in group.tasks)
    return msgspec.structs.replace(group, tasks=tasks)
