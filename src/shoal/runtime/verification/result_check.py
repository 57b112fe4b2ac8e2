"""Compute the digests by which fetched results are compared.

If a job has a compare command, a result that the command finds equal to an earlier
one gets the earlier result's digest.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from typing import TYPE_CHECKING, Final, final

from shoal.model.ids import BlobId
from shoal.model.spec.verification import STDOUT
from shoal.protocol.messages import ALL_OUTPUTS
from shoal.runtime.verification.result_digests import digest_of

if TYPE_CHECKING:
    from shoal.core.artifacts.events import FetchOutputs
    from shoal.model.ids import TaskId
    from shoal.model.job import Verify
    from shoal.runtime.artifacts.blob_exchange import BlobExchange
    from shoal.runtime.monitoring.output_log import OutputLog
    from shoal.runtime.verification.compare_command import CompareCommands

TASKS_MAX: Final = 10_000
"""Most tasks whose recent results are remembered for comparison."""


@final
class ResultCheck:
    """Computes digests of the results of this node's jobs."""

    def __init__(
        self,
        blobs: BlobExchange,
        outputs: OutputLog,
        compares: CompareCommands | None,
    ) -> None:
        """Compare by commands with `compares`, if this node can run commands."""
        self._compares = compares
        self._blobs = blobs
        self._outputs = outputs
        self._passed: OrderedDict[TaskId, dict[str, BlobId]] = OrderedDict()
        self._locks: dict[TaskId, asyncio.Lock] = {}

    async def digest(self, effect: FetchOutputs) -> str:
        """Return the digest of fetched outputs; empty if not verified."""
        verify, outcome = effect.verify, effect.outcome
        if verify is None:
            return ""
        digest = await asyncio.to_thread(digest_of, self._blobs.shelf, outcome, verify)
        if verify.compare == STDOUT and digest:
            await self._show(effect)
        if verify.command and digest:
            digest = await self._alike(effect, verify, digest)
        return digest

    async def _show(self, effect: FetchOutputs) -> None:
        """Replace the streamed stdout shown to users by the one compared."""
        tree = self._blobs.shelf.tree(BlobId(effect.outcome.outputs[STDOUT]))
        if isinstance(tree, str) or len(tree.files()) != 1:
            return
        blob, store = tree.files()[0], self._blobs.store
        await asyncio.to_thread(
            self._outputs.replace,
            effect.task.id,
            effect.attempt,
            STDOUT,
            lambda write: store.copy(blob, write),
        )

    async def _alike(self, effect: FetchOutputs, verify: Verify, digest: str) -> str:
        """Return the digest of an equal earlier result, or else `digest`."""
        task, compares = effect.task, self._compares
        tree = BlobId(effect.outcome.outputs[ALL_OUTPUTS])
        async with self._locks.setdefault(task.id, asyncio.Lock()):
            known = {**effect.earlier, **self._passed.get(task.id, {})}
            if digest not in known and compares is not None:
                for other, seen in known.items():
                    if await compares.same(task, verify.command, seen, tree):
                        return other
            passed = self._passed.setdefault(task.id, {})
            passed.setdefault(digest, tree)
            while len(self._passed) > TASKS_MAX:
                self._locks.pop(self._passed.popitem(last=False)[0], None)
        return digest
