"""Simulate the trees on one node's disk, and fetching them from other nodes.

A tree is a name and, instead of files, a digest of its content. It is synced before
anybody is told of it, so it survives crashes. A share of trees is lost at once, as if
a cache were full or a disk bad.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from random import Random
from typing import Final, Protocol, final

import msgspec

from shoal.core.artifacts.events import (
    CheckpointKept,
    CheckpointMissed,
    FetchCheckpoint,
    FetchOutputs,
    OutputsFetched,
    OutputsLost,
    StagingEnded,
)
from shoal.core.events import Event, StageTask, StartTask, TaskStaged
from shoal.model.caches import TREE
from shoal.model.ids import Attempt, BlobId, NodeId
from shoal.model.job import Task
from shoal.protocol.messages import ALL_OUTPUTS, Outcome
from shoal.sim.agenda import Agenda
from shoal.sim.faults.cheats import right

FETCH_S: Final = (0.005, 2.0)
AGAIN_S: Final = 2.0
TRIES_MAX: Final = 2
LOST_SHARE: Final = 0.05
STAGED_BYTES: Final = 1_000_000

Answer = Callable[[Event], None]
"""Feeds a fact to the machine, unless its node has crashed since."""


class TreeSource(Protocol):
    """Looks up the trees that a node can currently fetch from another."""

    def __call__(self, node: NodeId) -> dict[str, str] | None:
        """Return the trees of a node; None if it cannot be reached."""
        ...


class WhenFetched(Protocol):
    """Called when trees were fetched, or cannot be."""

    def __call__(self, *, is_here: bool) -> None:
        """Continue after a fetch."""
        ...


@final
class SimBlobs:
    """The trees of one node by name, across restarts."""

    def __init__(
        self, node: NodeId, agenda: Agenda, rng: Random, source: TreeSource
    ) -> None:
        self.trees: dict[str, str] = {}  # name to content
        self._node = node
        self._agenda = agenda
        self._rng = rng
        self._source = source
        self._made = 0
        self._stopped: dict[Attempt, None] = {}

    def pack(self, task: Task, outcome: Outcome) -> Outcome:
        """Store a process's outputs; return the outcome that its worker reports.

        The worker claims the right digest, whatever the outputs contain.
        """
        if not task.work.outputs or outcome.exit_code is None:
            return outcome
        tree = self.make(outcome.digest)
        return msgspec.structs.replace(
            outcome, outputs={ALL_OUTPUTS: tree}, digest=right(task.id)
        )

    def make(self, inside: str) -> BlobId:
        """Store a new tree, unless it is lost at once; return its name."""
        self._made += 1
        name = hashlib.sha256(f"{self._node}/{self._made}".encode()).hexdigest()
        tree = BlobId(f"{name}-1")
        if self._rng.random() >= LOST_SHARE:
            self.trees[tree] = inside
        return tree

    # Effects of the machine.

    def fetch_outputs(self, effect: FetchOutputs, answer: Answer) -> None:
        """Fetch outputs after a delay; answer with the result."""

        def done(*, is_here: bool) -> None:
            if not is_here:
                answer(OutputsLost(effect.attempt, "its outputs cannot be had"))
                return
            inside = self.trees[effect.outcome.outputs[ALL_OUTPUTS]]
            digest = "" if effect.verify is None else inside
            answer(OutputsFetched(effect.attempt, digest))

        self._fetch(effect.worker, tuple(effect.outcome.outputs.values()), done)

    def fetch_checkpoint(self, effect: FetchCheckpoint, answer: Answer) -> None:
        """Fetch a checkpoint; answer with the result."""

        def done(*, is_here: bool) -> None:
            if is_here:
                answer(CheckpointKept(effect.task, effect.tree, effect.path))
            else:
                answer(CheckpointMissed(effect.task))

        self._fetch(effect.worker, (effect.tree,), done)

    def stage(self, effect: StageTask, answer: Answer) -> None:
        """Fetch a task's trees; report progress and the result."""
        attempt = effect.start.attempt

        def done(*, is_here: bool) -> None:
            if attempt in self._stopped:
                answer(StagingEnded(attempt, "stopped before it started"))
            elif is_here:
                answer(TaskStaged(attempt, STAGED_BYTES, STAGED_BYTES))
                answer(StagingEnded(attempt))
            else:
                answer(StagingEnded(attempt, "its workdir cannot be had"))

        answer(TaskStaged(attempt, 0, STAGED_BYTES))
        self._fetch(attempt.scheduler, needed_by(effect.start), done)

    def stop(self, attempt: Attempt) -> None:
        """Stop staging an attempt."""
        self._stopped[attempt] = None

    def _fetch(
        self,
        node: NodeId,
        trees: tuple[str, ...],
        done: WhenFetched,
        tries: int = TRIES_MAX,
    ) -> None:
        delay_s = self._rng.uniform(*FETCH_S) + AGAIN_S * (TRIES_MAX - tries)
        self._agenda.after(delay_s, self._arrive, node, trees, done, tries)

    def _arrive(
        self, node: NodeId, trees: tuple[str, ...], done: WhenFetched, tries: int
    ) -> None:
        there = self._source(node)
        found = [tree for tree in trees if _holds(there, tree)]
        self.trees.update((tree, (there or {}).get(tree, "")) for tree in found)
        if all(tree in self.trees for tree in trees):
            done(is_here=True)
        elif tries > 1:
            self._fetch(node, trees, done, tries - 1)
        else:
            done(is_here=False)


def _holds(there: dict[str, str] | None, tree: str) -> bool:
    """Whether a node has a tree; schedulers have all code of their jobs."""
    return there is not None and (tree in there or tree.startswith(TREE))


def needed_by(start: StartTask) -> tuple[str, ...]:
    """Return the trees that an attempt needs to start."""
    inputs = (each.tree for each in start.inputs)
    trees = (start.task.work.workdir, start.checkpoint, *inputs)
    return tuple(tree for tree in trees if tree)
