"""Perform `FetchKept` and `DropKept`: the files of jobs that are kept for others.

They are held like those of own jobs, under the same names: so nothing changes when this
node takes a job up.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, final

from shoal.core.artifacts.events import KeptFetched, KeptMissed
from shoal.errors import ShoalError
from shoal.runtime.background_tasks import BackgroundTasks
from shoal.runtime.leasing.task_faults import described

if TYPE_CHECKING:
    from collections.abc import Callable

    from shoal.core.artifacts.events import DropKept, FetchKept, TreeKind
    from shoal.core.events import Event
    from shoal.model.ids import JobId
    from shoal.runtime.artifacts.blob_exchange import BlobExchange

_HOLDERS: Final[dict[TreeKind, str]] = {"code": "job", "outputs": "results"}


def holder_of(job: JobId, kind: TreeKind) -> str:
    """Return the name under which the store holds files of a job."""
    return f"{_HOLDERS[kind]} {job}"


@final
class KeptFiles:
    """Files of kept jobs on their way to this node."""

    def __init__(self, blobs: BlobExchange, feed: Callable[[Event], None]) -> None:
        """Feed one fact for the end of each fetch."""
        self._blobs = blobs
        self._feed = feed
        self._fetches = BackgroundTasks()
        self._by_job: dict[JobId, dict[asyncio.Task[None], None]] = {}

    def start(self, effect: FetchKept) -> None:
        """Fetch a tree in the background."""
        fetch = self._fetches.start(self._answer(effect))
        under_way = self._by_job.setdefault(effect.job, {})
        under_way[fetch] = None
        fetch.add_done_callback(lambda done: under_way.pop(done, None))

    def drop(self, effect: DropKept) -> None:
        """Fetch nothing more of a job; what is here may make room for others."""
        self._fetches.start(self._drop(effect.job))

    async def _drop(self, job: JobId) -> None:
        under_way = list(self._by_job.pop(job, {}))
        for fetch in under_way:
            fetch.cancel()
        await asyncio.gather(*under_way, return_exceptions=True)
        for kind in _HOLDERS:
            self._blobs.store.release(holder_of(job, kind))

    async def close(self) -> None:
        """Cancel all fetches; they begin anew at the next start."""
        await self._fetches.close()

    async def _answer(self, effect: FetchKept) -> None:
        job, tree = effect.job, effect.tree
        holder = holder_of(job, effect.kind)
        try:
            found = await self._blobs.fetch_tree(tree, effect.sources, holder)
            blobs = (tree, *found.files())
            self._blobs.store.hold(holder, blobs)
            await asyncio.to_thread(self._blobs.store.sync, blobs)
        except (ShoalError, OSError) as error:
            self._feed(KeptMissed(job, tree, described(error)))
        else:
            self._feed(KeptFetched(job, tree))
