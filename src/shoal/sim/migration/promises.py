"""Check promises about gangs that move: G1 to G3.

- G1: a gang moves a few times in its life and no more, whatever restarts in between; a
  job that may not be stopped never moves.
- G2: it moves only to a better place: under fewer leaves.
- G3: it moves as one, and at once: what follows on disk is that all of it starts again.

That a task which moved succeeds only once is among the promises about journals.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import final

from shoal.core.durability.journal import (
    Assigned,
    AttemptPlace,
    Entry,
    Exited,
    Finished,
    Incarnated,
    Returned,
)
from shoal.core.scheduling.migrations import MOVES_MAX
from shoal.model.ids import JobId, NodeId, TaskId
from shoal.model.job import Job
from shoal.model.resources import Capacity
from shoal.sim.checkers.violations import Violations
from shoal.sim.node.host import NodeSpec, SimHost

_Moving = dict[TaskId, NodeId]
"""The tasks of a gang that are on their way, and where they were."""


@final
class MigrationPromises:
    """Compares where gangs were with where they go, by what is on disk."""

    def __init__(
        self,
        violations: Violations,
        nodes: Iterable[NodeSpec],
        jobs: Mapping[JobId, Job],
    ) -> None:
        self.moves: Counter[TaskId] = Counter()
        self._violations = violations
        self._jobs = jobs
        self._leaves = {node.id: _leaf(node) for node in nodes}
        self._at: dict[TaskId, NodeId] = {}
        self._moving: dict[NodeId, dict[str, _Moving]] = {}  # by scheduler and gang

    def safe(self, host: SimHost, entries: Sequence[Entry]) -> None:
        """Note what is on disk now."""
        moving = self._moving.setdefault(host.id, {})
        for entry in entries:
            match entry:
                case Incarnated():
                    moving.clear()  # It crashed between the two halves of a move.
                case Returned(moved=True):
                    self._moved(entry, moving)
                case Assigned():
                    self._assigned(entry.places, moving)
                case Returned() | Exited() | Finished():
                    if moving.pop(_gang(entry.task), None):
                        what = f"{entry.task} was moving, and has no place"
                        self._violations.report("G3", what)
                case _:
                    pass

    def _moved(self, entry: Returned, moving: dict[str, _Moving]) -> None:
        task = entry.task
        self.moves[task] += 1
        if self.moves[task] > MOVES_MAX:
            times = self.moves[task]
            self._violations.report("G1", f"{task} moved {times} times")
        job = next(
            (j for j in self._jobs.values() if task.startswith(f"{j.id}.")), None
        )
        if job is not None and (job.at_most_once or not job.preemptible):
            self._violations.report("G1", f"{task} moved, which may not be stopped")
        moving.setdefault(_gang(task), {})[task] = self._at.get(task, NodeId(""))

    def _assigned(
        self, places: tuple[AttemptPlace, ...], moving: dict[str, _Moving]
    ) -> None:
        self._at.update({place.task: place.worker for place in places})
        old = moving.pop(_gang(places[0].task), None) if places else None
        if old is None:
            return
        new = {place.task: place.worker for place in places}
        if missing := [task for task in old if task not in new]:
            self._violations.report("G3", f"{missing[0]} did not move with its gang")
        before, after = self._count(old.values()), self._count(new.values())
        if after >= before:
            what = f"{places[0].task} and others moved from {before} to {after} leaves"
            self._violations.report("G2", what)

    def _count(self, nodes: Iterable[NodeId]) -> int:
        return len({self._leaves.get(node, "") for node in nodes})


def _leaf(node: NodeSpec) -> str:
    capacity = node.capacity
    labels = capacity.labels if isinstance(capacity, Capacity) else ()
    return dict(labels).get("leaf", "")


def _gang(task: TaskId) -> str:
    return task.rpartition(".")[0]
