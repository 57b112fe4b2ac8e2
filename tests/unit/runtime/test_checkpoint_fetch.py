"""Checkpoints that come faster than they can be fetched."""

import asyncio
from pathlib import Path
from typing import Any, cast

from shoal.core.artifacts.events import CheckpointKept, FetchCheckpoint
from shoal.core.events import Event
from shoal.model.ids import BlobId, NodeId, TaskId
from shoal.runtime.artifacts.blob_exchange import BlobExchange
from shoal.runtime.artifacts.checkpoint_fetch import CheckpointFetch

TASK = TaskId("j.main.0")


class NoFiles:
    """A tree without files."""

    def files(self) -> tuple[BlobId, ...]:
        return ()


class SlowBlobs:
    """An exchange whose fetches end when the test says so; it keeps everything."""

    def __init__(self) -> None:
        self.asked: list[BlobId] = []
        self.go = asyncio.Semaphore(0)
        self.store = self.shelf = self

    async def fetch_tree(self, tree: BlobId, *_: Any) -> None:  # noqa: ANN401
        self.asked.append(tree)
        await self.go.acquire()

    def tree(self, _: BlobId) -> NoFiles:
        return NoFiles()

    def hold(self, *_: object) -> None:
        pass

    def release(self, _: str) -> None:
        pass


def test_a_fetch_under_way_ends_and_only_the_newest_follows(tmp_path: Path) -> None:
    async def story() -> None:
        blobs, told = SlowBlobs(), list[Event]()
        fetch = CheckpointFetch(
            tmp_path / "f", NodeId("a"), cast("BlobExchange", blobs), told.append
        )
        for name in ("one", "two", "three"):
            fetch.start(FetchCheckpoint(TASK, NodeId("b"), BlobId(name), "ckpt"))
        for _ in range(2):
            blobs.go.release()
        async with asyncio.timeout(10):
            while len(told) < 2:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        await fetch.close()

        kept = [each.tree for each in told if isinstance(each, CheckpointKept)]
        assert blobs.asked == kept == ["one", "three"]
        assert fetch.latest(TASK) == "three"

    asyncio.run(story())
