"""What a worker tells of its cache: news, once, and never what has gone."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

from shoal.core.events import CacheChanged, Event
from shoal.model.caches import MARKS_MAX, mark_of
from shoal.model.ids import BlobId
from shoal.runtime.artifacts.cache_report import CacheReport


class Worker:
    """A worker's cache, and what it told."""

    def __init__(self, folder: Path) -> None:
        self.whole = {BlobId(f"{n}-1") for n in range(2 * MARKS_MAX)}
        self.told: list[tuple[str, ...]] = []
        self._folder = folder

    def live(self, act: Callable[[CacheReport], Awaitable[None]]) -> None:
        """Do something in one life."""

        async def main() -> None:
            file = self._folder / "warm.json"
            warmth = CacheReport(file, self.whole.__contains__, self._feed)
            await warmth.look(0)
            await act(warmth)
            await warmth.close()

        asyncio.run(main())

    def _feed(self, event: Event) -> None:
        assert isinstance(event, CacheChanged)
        self.told.append(event.marks)


def marks(*names: str) -> tuple[str, ...]:
    return tuple(mark_of(name) for name in names)


async def _nothing(_: CacheReport) -> None:
    """Live and end."""


def test_only_news_is_told_the_newest_first(tmp_path: Path) -> None:
    worker = Worker(tmp_path)

    async def act(warmth: CacheReport) -> None:
        for name in ("tree:1-1", "tree:1-1", "image:x", "tree:1-1"):
            warmth.note(name)

    worker.live(act)

    assert worker.told == [marks("tree:1-1"), marks("image:x", "tree:1-1")]


def test_no_more_than_the_newest_are_told(tmp_path: Path) -> None:
    worker = Worker(tmp_path)

    async def act(warmth: CacheReport) -> None:
        for n in range(MARKS_MAX):
            warmth.note(f"tree:{n}-1")
        warmth.note("tree:0-1")  # It is in use again, so another is the oldest.
        warmth.note("tree:40-1")

    worker.live(act)

    assert len(worker.told[-1]) == MARKS_MAX
    assert worker.told[-1][:2] == marks("tree:40-1", "tree:0-1")
    assert mark_of("tree:1-1") not in worker.told[-1]


def test_the_next_life_knows_it_except_for_what_has_gone(tmp_path: Path) -> None:
    worker = Worker(tmp_path)

    async def act(warmth: CacheReport) -> None:
        warmth.note("tree:1-1")
        warmth.note("image:x")
        warmth.note("tree:2-1")

    worker.live(act)
    worker.whole.discard(BlobId("2-1"))
    worker.told.clear()

    worker.live(_nothing)

    assert worker.told == [marks("image:x", "tree:1-1")]


def test_a_file_that_is_damaged_counts_as_none(tmp_path: Path) -> None:
    (tmp_path / "warm.json").write_bytes(b"\xff")
    worker = Worker(tmp_path)

    worker.live(_nothing)

    assert worker.told == []


def test_what_was_evicted_is_told_no_longer(tmp_path: Path) -> None:
    worker = Worker(tmp_path)

    async def act(warmth: CacheReport) -> None:
        warmth.note("tree:1-1")
        warmth.note("tree:2-1")
        worker.whole.discard(BlobId("1-1"))
        await warmth.look(0)
        assert len(worker.told) == 2, "nobody looks if nothing was evicted"
        await warmth.look(1)

    worker.live(act)

    assert worker.told[-1] == marks("tree:2-1")
