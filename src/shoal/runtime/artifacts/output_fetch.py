"""Perform `FetchOutputs`: fetch the outputs of attempts from their workers.

Each fetch ends in exactly one `OutputsFetched`, with the digest that verification
compares, or one `OutputsLost` with a reason.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, final

from shoal.core.artifacts.events import OutputsFetched, OutputsLost
from shoal.errors import ShoalError
from shoal.model.ids import BlobId
from shoal.model.spec.globs import Globs
from shoal.protocol.blob_hashing import size_of
from shoal.protocol.messages import ALL_OUTPUTS
from shoal.runtime.background_tasks import BackgroundTasks
from shoal.runtime.leasing.task_faults import described

if TYPE_CHECKING:
    from collections.abc import Callable

    from shoal.blobs.trees import Tree
    from shoal.core.artifacts.events import DropOutputs, FetchOutputs
    from shoal.core.events import Event
    from shoal.model.ids import Attempt, NodeId, TaskId
    from shoal.runtime.artifacts.blob_exchange import BlobExchange
    from shoal.runtime.verification.result_check import ResultCheck

TRIES_MAX: Final = 2
DROPPED: Final = "nobody wants its outputs any more"


@final
class OutputFetch:
    """Fetches outputs concurrently and computes their digests."""

    def __init__(
        self,
        node: NodeId,
        blobs: BlobExchange,
        feed: Callable[[Event], None],
        told: Callable[[TaskId, int, int], None],
        checking: ResultCheck,
    ) -> None:
        """Report results to `feed`, and a task's fetch progress to `told`."""
        self._node = node
        self._blobs = blobs
        self._feed = feed
        self._told = told
        self._checking = checking
        self._fetches = BackgroundTasks()
        self._by_attempt: dict[Attempt, asyncio.Task[None]] = {}

    def start(self, effect: FetchOutputs) -> None:
        """Fetch outputs in the background."""
        task = self._fetches.start(self._answer(effect))
        self._by_attempt[effect.attempt] = task
        task.add_done_callback(lambda _: self._by_attempt.pop(effect.attempt, None))

    def drop(self, effect: DropOutputs) -> None:
        """Stop a fetch, if it is still under way."""
        task = self._by_attempt.pop(effect.attempt, None)
        if task is not None and task.cancel():  # Else it has answered.
            self._feed(OutputsLost(effect.attempt, DROPPED))

    async def close(self) -> None:
        """Cancel all fetches; workers will repeat their reports."""
        await self._fetches.close()

    async def _answer(self, effect: FetchOutputs) -> None:
        try:
            await self._fetch(effect)
        except Exception as error:  # noqa: BLE001 - No output ends the node.
            reason = f"its outputs cannot be had: {described(error)}"
            self._feed(OutputsLost(effect.attempt, reason))
            return
        try:
            digest = await self._checking.digest(effect)
        except Exception as error:  # noqa: BLE001 - No output ends the node.
            reason = f"its outputs cannot be read: {described(error)}"
            self._feed(OutputsLost(effect.attempt, reason))
        else:
            self._feed(OutputsFetched(effect.attempt, digest))

    async def _fetch(self, effect: FetchOutputs) -> None:
        names = list(effect.outcome.outputs.values())
        if any(size_of(name) is None for name in names):
            raise ShoalError("the worker names what is no blob")

        def told(fetched: int, total: int) -> None:
            self._told(effect.task.id, fetched, total)

        sources = () if effect.worker == self._node else (effect.worker,)
        holder = f"results {effect.task.job}"
        for name in map(BlobId, names):
            tree = await self._blobs.fetch_tree(
                name, sources, holder, told, tries=TRIES_MAX
            )
            if name == effect.outcome.outputs.get(ALL_OUTPUTS):
                _refuse_other_files(tree, effect.task.work.outputs)
            await asyncio.to_thread(self._blobs.store.sync, (name, *tree.files()))


def _refuse_other_files(tree: Tree, patterns: tuple[str, ...]) -> None:
    """Raise if a worker returns files that the task does not keep.

    The next step would find them in its work directory, in place of its own code.
    """
    globs = Globs(patterns)
    for entry in tree.entries:
        if not globs.meaning(entry.path, is_folder=entry.kind == "folder"):
            raise ShoalError(
                f"the worker returns '{entry.path[:200]}'",
                because="the job does not name it as an output",
            )
