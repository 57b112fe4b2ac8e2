"""Perform `FetchCheckpoint`: keep the latest checkpoint of each task on this node.

`core.artifacts.provisions` decides which one is fetched, one of a task at a time. It
replaces the older one once it is complete. The list of checkpoints, at most `KEPT_MAX`,
is written to a file and read at the next start.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, final

import msgspec

from shoal.core.artifacts.events import CheckpointKept, CheckpointMissed
from shoal.runtime.background_tasks import BackgroundTasks
from shoal.runtime.membership.shoal_membership import write_private

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from shoal.core.artifacts.events import FetchCheckpoint
    from shoal.core.events import Event
    from shoal.model.ids import BlobId, JobId, NodeId, TaskId
    from shoal.runtime.artifacts.blob_exchange import BlobExchange

KEPT_MAX: Final = 10_000


@final
class CheckpointFetch:
    """Checkpoints stored here, and fetches in progress."""

    def __init__(
        self,
        file: Path,
        node: NodeId,
        blobs: BlobExchange,
        feed: Callable[[Event], None],
    ) -> None:
        """List checkpoints in `file`; feed one fact for the end of each fetch."""
        self._file = file
        self._node = node
        self._blobs = blobs
        self._feed = feed
        self._kept: dict[TaskId, CheckpointKept] = {}
        self._fetches = BackgroundTasks()

    def read(self) -> None:
        """Load the checkpoints of earlier runs. Blocks."""
        try:
            data = self._file.read_bytes()
            kept = msgspec.json.decode(data, type=list[CheckpointKept])
        except (FileNotFoundError, msgspec.MsgspecError):
            return  # Tasks start over, as without checkpoints.
        self._kept = {each.task: each for each in kept if self._hold(each)}

    def known(self) -> list[CheckpointKept]:
        """Return what the machine must know of checkpoints stored here."""
        return list(self._kept.values())

    def latest(self, task: TaskId) -> BlobId | None:
        """Return a task's latest checkpoint stored here."""
        kept = self._kept.get(task)
        return None if kept is None else kept.tree

    def start(self, effect: FetchCheckpoint) -> None:
        """Fetch a checkpoint in the background."""
        self._fetches.start(self._answer(effect))

    async def _answer(self, effect: FetchCheckpoint) -> None:
        try:
            kept = await self._fetched(effect)
        except Exception:  # noqa: BLE001 - No checkpoint ends the node.
            kept = None
        self._feed(CheckpointMissed(effect.task) if kept is None else kept)

    async def _fetched(self, effect: FetchCheckpoint) -> CheckpointKept | None:
        task = effect.task
        sources = [] if effect.worker == self._node else [effect.worker]
        draft = f"checkpoint {task} new"
        try:
            await self._blobs.fetch_tree(effect.tree, sources, draft)
            kept = CheckpointKept(task, effect.tree, effect.path)
            if not await asyncio.to_thread(self._hold, kept):
                return None
            self._kept[task] = kept
            await asyncio.to_thread(self._write)
            return kept
        finally:
            self._blobs.store.release(draft)

    def forget(self, tasks: Iterable[TaskId]) -> None:
        """Drop the checkpoints of tasks that have ended."""
        gone = [task for task in tasks if task in self._kept]
        for task in gone:
            del self._kept[task]
            self._blobs.store.release(f"checkpoint {task}")
        if gone:
            self._write()

    def forget_job(self, job: JobId) -> None:
        """Drop the checkpoints of a job."""
        self.forget([task for task in self._kept if task.partition(".")[0] == job])

    async def close(self) -> None:
        """Cancel all fetches."""
        await self._fetches.close()

    def _hold(self, kept: CheckpointKept) -> bool:
        found = self._blobs.shelf.tree(kept.tree)
        if isinstance(found, str):
            return False
        holder = f"checkpoint {kept.task}"
        self._blobs.store.release(holder)
        self._blobs.store.hold(holder, (kept.tree, *found.files()))
        return True

    def _write(self) -> None:
        known = list(self._kept.values())[-KEPT_MAX:]
        write_private(self._file, msgspec.json.encode(known))
