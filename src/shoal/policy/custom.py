"""Users' placement policies: any class with `assign`, found by entry point.

    class Tight:
        def assign(self, workers, task):
            fitting = [w for w in workers.values() if w.fits(task)]
            best = min(fitting, key=lambda w: (w.free_gpus, w.id), default=None)
            return best and Assignment(best.id, best.pick_gpus(task))

Such a policy is not trusted: every answer is checked and every exception caught. The
scheduler goes on, and the waiting job says which promise was broken.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Protocol, final

import msgspec

from shoal.model.ids import NodeId
from shoal.model.resources import GpuNeed
from shoal.policy.filters import reason
from shoal.policy.interface import Breach, ChooseBy, Chosen, OnDevices
from shoal.policy.table.rows import WorkerRow
from shoal.policy.table.task_shapes import TaskShape
from shoal.policy.worker_view import WorkerView, view_of

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from shoal.policy.interface import PlacementRequest
    from shoal.policy.table.worker_table import WorkerTable

WORDS_MAX: Final = 200
"""Characters kept of what a user's policy says."""


class Assignment(msgspec.Struct, frozen=True):
    """Run the task on this worker and, if it names any, on these of its devices.

    Should they be taken when the worker is asked, it offers others that are as good.
    """

    worker: str
    devices: tuple[str, ...] = ()


class AssignsTasks(Protocol):
    """What a user's policy must be able to do."""

    def assign(
        self, workers: Mapping[str, WorkerView], task: TaskShape
    ) -> Assignment | str | None:
        """Choose a worker for `task`; None, or the reason why, if there is none.

        `workers` are in the order of their ids. The same workers and tasks, one
        after another, must lead to the same answers.
        """
        ...


@final
class Custom:
    """A user's policy, with its answers checked."""

    def __init__(self, name: str, policy: AssignsTasks) -> None:
        self.name = name
        self._policy = policy

    def chooser(self, request: PlacementRequest, table: WorkerTable) -> ChooseBy:
        """Ask the user's policy for each task anew; see `Policy`."""

        def best(skip: Collection[NodeId]) -> Chosen:
            rows: dict[str, tuple[int, WorkerRow]] = {}
            for index in table.grid.order().tolist():
                row = table.row(index)
                if row.node not in skip:
                    rows[row.node] = (index, row)
            views = {node: view_of(row) for node, (_, row) in rows.items()}
            answer = self.answer(views, request.shape)
            if not isinstance(answer, Assignment):
                return answer
            index = rows[answer.worker][0]
            return OnDevices(index, answer.devices) if answer.devices else index

        return ChooseBy(table.need(request.shape), best)

    def answer(
        self, workers: Mapping[str, WorkerView], task: TaskShape
    ) -> Assignment | Breach | str | None:
        """Ask the policy and check what it says."""
        try:
            answer: object = self._policy.assign(MappingProxyType(workers), task)
        except Exception as error:  # noqa: BLE001 - a user's code may raise anything.
            words = f"it raised {type(error).__name__}: {error}"
            return Breach("total", words[:WORDS_MAX])
        match answer:
            case None:
                return None
            case str():
                return answer[:WORDS_MAX]
            case Assignment():
                return _breach(answer, workers, task) or answer
            case _:
                what = type(answer).__name__
                return Breach("total", f"it answered with {what}, not an Assignment")


def _breach(
    answer: Assignment, workers: Mapping[str, WorkerView], task: TaskShape
) -> Breach | None:
    worker = workers.get(answer.worker)
    if worker is None:
        return Breach("known", f"there is no worker '{str(answer.worker)[:WORDS_MAX]}'")
    if why := reason(task, worker):
        return Breach("fits", f"{worker.id}: {why}")
    gpu = task.profile.gpu
    if gpu is None or not answer.devices:
        return None
    count = len(answer.devices)
    if not gpu.count <= count <= gpu.count_max:
        asked = f"{gpu.count} to {gpu.count_max} devices were asked for"
        return Breach("fits", f"{worker.id}: {asked}, {count} given")
    free = _devices_with_room(worker, gpu)
    for device in answer.devices:
        if device not in free or answer.devices.count(device) > 1:
            return Breach("fits", f"{worker.id}: device {device} has no room")
    return None


def _devices_with_room(worker: WorkerView, gpu: GpuNeed) -> list[str]:
    return [
        device.id
        for place, device in enumerate(worker.capacity.devices)
        if not gpu.rules_out(device)
        and gpu.milli <= worker.gpu_milli[place]
        and gpu.share_of(device).memory_bytes <= worker.gpu_memory[place]
    ]
