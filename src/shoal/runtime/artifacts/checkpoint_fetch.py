"""Perform `FetchCheckpoint`: keep the latest checkpoint of each task on this node.

A newer checkpoint waits for the fetch under way, in place of any other that waits: a
task that saves faster than its link carries must not keep each fetch from its end. It
replaces the older one once it is complete. The list of checkpoints, at most `KEPT_MAX`,
is written to a file and read at the next start. A fetch that fails is not reported: the
previous checkpoint serves.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, final

import msgspec

from shoal.core.artifacts.events import CheckpointKept
from shoal.errors import ShoalError
from shoal.runtime.membership.shoal_membership import write_private

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from shoal.core.artifacts.events import FetchCheckpoint
    from shoal.core.events import Event
    from shoal.model.ids import BlobId, NodeId, TaskId
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
        """List checkpoints in `file`; feed `CheckpointKept` for each new one."""
        self._file = file
        self._node = node
        self._blobs = blobs
        self._feed = feed
        self._kept: dict[TaskId, CheckpointKept] = {}
        self._fetching: dict[TaskId, asyncio.Task[None]] = {}
        self._next: dict[TaskId, FetchCheckpoint] = {}  # after the fetch under way

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
        """Fetch a checkpoint in the background, after an older one of the task."""
        if effect.task in self._fetching:
            self._next[effect.task] = effect
            return
        loop = asyncio.get_running_loop()
        self._fetching[effect.task] = loop.create_task(self._fetch(effect))

    async def _fetch(self, effect: FetchCheckpoint) -> None:
        task = effect.task
        sources = [] if effect.worker == self._node else [effect.worker]
        draft = f"checkpoint {task} new"
        try:
            await self._blobs.fetch_tree(effect.tree, sources, draft)
            kept = CheckpointKept(task, effect.tree, effect.path)
            if await asyncio.to_thread(self._hold, kept):
                self._kept[task] = kept
                await asyncio.to_thread(self._write)
                self._feed(kept)
        except (ShoalError, OSError):
            pass  # Another follows, or the previous one serves.
        finally:
            self._blobs.store.release(draft)
            del self._fetching[task]
        if (newer := self._next.pop(task, None)) is not None:
            self.start(newer)

    def forget(self, tasks: Iterable[TaskId]) -> None:
        """Drop the checkpoints of tasks that have ended."""
        gone = [task for task in tasks if task in self._kept]
        for task in gone:
            del self._kept[task]
            self._blobs.store.release(f"checkpoint {task}")
        if gone:
            self._write()

    async def close(self) -> None:
        """Cancel all fetches."""
        self._next.clear()
        fetching = list(self._fetching.values())
        for task in fetching:
            task.cancel()
        await asyncio.gather(*fetching, return_exceptions=True)

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
