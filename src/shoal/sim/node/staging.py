"""Simulate what one node's tasks need before they start, and what they leave.

The twin of `runtime.artifacts`: trees of code, inputs, outputs and checkpoints, fetched
from their node by the machines of `core.artifacts`, and told to those that wait for
them. A tree is synced before anybody is told of it, so it survives crashes. A share of
trees is lost at once, as if a cache were full or a disk bad.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Final, final

import msgspec

from shoal.blobs import trees
from shoal.core.artifacts.events import (
    CheckpointKept,
    CheckpointMissed,
    DropOutputs,
    FetchCheckpoint,
    FetchKept,
    FetchOutputs,
    KeptFetched,
    KeptMissed,
    OutputsFetched,
    OutputsLost,
    StagingEnded,
)
from shoal.core.events import StageTask, StartTask, TaskStaged
from shoal.model.caches import TREE
from shoal.model.ids import Attempt, BlobId, NodeId, TaskId
from shoal.model.job import Task
from shoal.protocol.limits import PIECE_BYTES_MAX
from shoal.protocol.messages import ALL_OUTPUTS, Outcome
from shoal.sim.faults.cheats import right
from shoal.sim.node.blobs import Done, NodeCalls, SimBlobs, pack_tree

OUTPUT_TRIES: Final = 2
LOST_SHARE: Final = 0.05
FILE_SHARE: Final = 0.3  # share of trees with a file; of others the list says all
FILE_BYTES: Final = (100, 100, 100, PIECE_BYTES_MAX + 7)
SAYS: Final = "says "  # how the folder is called that tells a tree from others
STAGED_BYTES: Final = 1_000_000


@final
class SimStaging:
    """What the tasks of one node need and leave."""

    def __init__(
        self, node: NodeId, calls: NodeCalls, blobs: SimBlobs, rng: Random
    ) -> None:
        self._node = node
        self._calls = calls
        self._blobs = blobs
        self._rng = rng
        self.checkpoints: dict[TaskId, CheckpointKept] = {}  # in a file of their own
        self._made = 0
        self._staging: dict[Attempt, int] = {}  # the token of what it waits for
        self._fetching: dict[Attempt, int] = {}  # the same of outputs

    def crashed(self) -> None:
        """Forget what was under way."""
        self._staging.clear()
        self._fetching.clear()

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
        files: list[bytes] = []
        if self._rng.random() < FILE_SHARE:
            files.append(self._rng.randbytes(self._rng.choice(FILE_BYTES)))
        salt = f"{self._node}/{self._made}".encode()
        tree = pack_tree(salt, files, [f"{SAYS}{inside}"])
        self._blobs.keep(tree, is_lost=self._rng.random() < LOST_SHARE)
        return tree.name

    def inside(self, tree: str) -> str:
        """Return what a tree that is here says."""
        found = trees.decode(self._blobs.whole.get(BlobId(tree), b""))
        if isinstance(found, str):
            return ""
        [said] = [each.path for each in found.entries if each.kind == "folder"]
        return said.removeprefix(SAYS)

    # Effects of the machine.

    def stage(self, effect: StageTask) -> None:
        """Fetch a task's trees one after the other; report progress and the result."""
        attempt, feed = effect.start.attempt, self._calls.feed

        def done(reason: str) -> None:
            if self._staging.pop(attempt, None) is None:
                return  # It was stopped just now.
            if reason:
                reason = f"what it needs cannot be had: {reason}"
            else:
                feed(TaskStaged(attempt, STAGED_BYTES, STAGED_BYTES))
            feed(StagingEnded(attempt, reason))

        self._staging[attempt] = 0
        feed(TaskStaged(attempt, 0, STAGED_BYTES))

        def began(token: int) -> None:
            self._staging[attempt] = token

        self._fetch(attempt.scheduler, needed_by(effect.start), done, began)

    def stop(self, attempt: Attempt) -> None:
        """Stop staging an attempt."""
        self._calls.later(0.0, lambda: self._stop(attempt))

    def _stop(self, attempt: Attempt) -> None:
        token = self._staging.pop(attempt, None)
        if token is not None:
            self._blobs.drop(token)
            self._calls.feed(StagingEnded(attempt, "stopped before it started"))

    def fetch_outputs(self, effect: FetchOutputs) -> None:
        """Fetch outputs; tell the machine what came of it."""
        attempt, outputs = effect.attempt, effect.outcome.outputs

        def done(reason: str) -> None:
            if self._fetching.pop(attempt, None) is None:
                return  # It was dropped just now.
            if reason:
                reason = f"its outputs cannot be had: {reason}"
                self._calls.feed(OutputsLost(attempt, reason))
                return
            is_compared = effect.verify is not None
            digest = self.inside(outputs[ALL_OUTPUTS]) if is_compared else ""
            self._calls.feed(OutputsFetched(attempt, digest))

        def began(token: int) -> None:
            self._fetching[attempt] = token

        def begin() -> None:
            if attempt in self._fetching:  # Else it was dropped before.
                self._fetch(effect.worker, names, done, began, OUTPUT_TRIES)

        names = tuple(map(BlobId, outputs.values()))
        self._fetching[attempt] = 0
        self._soon(begin)

    def drop_outputs(self, effect: DropOutputs) -> None:
        """Fetch outputs no longer, if they are not here yet."""
        token = self._fetching.pop(effect.attempt, None)

        def drop() -> None:
            if token is not None:  # Else it has answered.
                self._blobs.drop(token)
                self._calls.feed(OutputsLost(effect.attempt, "nobody wants them"))

        self._soon(drop)

    def fetch_checkpoint(self, effect: FetchCheckpoint) -> None:
        """Fetch a checkpoint; tell the machine what came of it."""

        def done(reason: str) -> None:
            if reason:
                self._calls.feed(CheckpointMissed(effect.task))
            else:
                kept = CheckpointKept(effect.task, effect.tree, effect.path)
                self.checkpoints[effect.task] = kept
                self._calls.feed(kept)

        self._soon(lambda: self._fetch(effect.worker, (effect.tree,), done))

    def fetch_kept(self, effect: FetchKept) -> None:
        """Fetch a tree of a job of another scheduler; tell what came of it."""
        job, tree = effect.job, effect.tree

        def done(reason: str) -> None:
            missed, fetched = KeptMissed(job, tree, reason), KeptFetched(job, tree)
            self._calls.feed(missed if reason else fetched)

        def begin() -> None:
            self._blobs.fetch_tree(tree, effect.sources, done)

        self._soon(begin)

    def _soon(self, call: Callable[[], None]) -> None:
        """Not at once: no facts are fed while effects are performed."""
        self._calls.later(0.0, call)

    def _fetch(
        self,
        node: NodeId,
        names: tuple[BlobId, ...],
        done: Done,
        began: Callable[[int], None] = lambda _: None,
        tries: int = 1,
    ) -> None:
        """Fetch trees from a node, in this order, until one cannot be had."""
        if not names:
            done("")
            return

        def next_one(reason: str) -> None:
            if reason:
                done(reason)
            else:
                self._fetch(node, names[1:], done, began, tries)

        sources = () if node == self._node else (node,)
        began(self._blobs.fetch_tree(names[0], sources, next_one, tries=tries))


def needed_by(start: StartTask) -> tuple[BlobId, ...]:
    """Return the trees that an attempt needs to start."""
    inputs = (each.tree for each in start.inputs)
    code = start.task.work.workdir.removeprefix(TREE)
    return tuple(BlobId(tree) for tree in (code, *inputs, start.checkpoint) if tree)
