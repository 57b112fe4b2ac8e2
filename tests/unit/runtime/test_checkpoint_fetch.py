"""What the machine is told of a checkpoint that it wants to keep."""

import asyncio
from pathlib import Path
from typing import Any, cast

import pytest

from shoal.core.artifacts.events import (
    CheckpointKept,
    CheckpointMissed,
    FetchCheckpoint,
)
from shoal.core.events import Event
from shoal.errors import ShoalError
from shoal.model.ids import BlobId, NodeId, TaskId
from shoal.runtime.artifacts.blob_exchange import BlobExchange
from shoal.runtime.artifacts.checkpoint_fetch import CheckpointFetch

TASK, TREE = TaskId("j.main.0"), BlobId("tree")
WANTED = FetchCheckpoint(TASK, NodeId("b"), TREE, "ckpt")


class NoFiles:
    """A tree without files."""

    def files(self) -> tuple[BlobId, ...]:
        return ()


class OneFetch:
    """An exchange whose fetches end in one way; it keeps everything."""

    def __init__(self, error: Exception | None) -> None:
        self.error = error
        self.released: list[str] = []
        self.store = self.shelf = self

    async def fetch_tree(self, *_: Any) -> None:  # noqa: ANN401
        if self.error is not None:
            raise self.error

    def tree(self, _: BlobId) -> NoFiles:
        return NoFiles()

    def hold(self, *_: object) -> None:
        pass

    def release(self, holder: str) -> None:
        self.released.append(holder)


async def fetched(path: Path, error: Exception | None) -> tuple[list[Event], bool]:
    told: asyncio.Queue[Event] = asyncio.Queue()
    blobs = OneFetch(error)
    fetch = CheckpointFetch(
        path, NodeId("a"), cast("BlobExchange", blobs), told.put_nowait
    )
    fetch.start(WANTED)
    async with asyncio.timeout(10):
        first = await told.get()
    await fetch.close()
    assert f"checkpoint {TASK} new" in blobs.released
    return [first, *iter_now(told)], fetch.latest(TASK) == TREE


def iter_now(queue: asyncio.Queue[Event]) -> list[Event]:
    return [queue.get_nowait() for _ in range(queue.qsize())]


def test_a_checkpoint_that_came_is_kept_and_listed(tmp_path: Path) -> None:
    told, is_kept = asyncio.run(fetched(tmp_path / "list", None))

    assert told == [CheckpointKept(TASK, TREE, "ckpt")]
    assert is_kept
    assert b"tree" in (tmp_path / "list").read_bytes()


@pytest.mark.parametrize("error", [ShoalError("no"), OSError(28, "full"), KeyError()])
def test_each_fetch_that_fails_is_told_once(tmp_path: Path, error: Exception) -> None:
    told, is_kept = asyncio.run(fetched(tmp_path / "list", error))

    assert told == [CheckpointMissed(TASK)]
    assert not is_kept
