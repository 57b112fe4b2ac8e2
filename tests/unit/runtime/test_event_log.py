"""Who follows what happens waits for it, and lets others get on meanwhile."""

import asyncio
from pathlib import Path

import pytest

from shoal.model.ids import NodeId
from shoal.runtime.monitoring import event_file
from shoal.runtime.monitoring.event_file import EventFile
from shoal.runtime.monitoring.event_log import EventLog

NODE = NodeId("12D3KooWQ7xkF3bBkVcEvJxJxT6CkGkYz7qkW3mYw9fGhJkLmNoP")


def test_who_follows_from_the_first_on_gets_each_once_and_waits_between() -> None:
    async def story() -> list[int]:
        event_log = EventLog()
        found: list[int] = []

        async def follow() -> None:
            async for each in event_log.follow(20, on=True):
                found.append(each.number)  # noqa: PERF401 - It never ends.

        following = asyncio.ensure_future(follow())
        for _ in range(3):
            await asyncio.sleep(0)  # Never returns if the follower does not wait.
            event_log.linked(NODE)
        await asyncio.sleep(0)
        following.cancel()
        return found

    assert asyncio.run(story()) == [1, 2, 3]


def test_who_asks_for_the_latest_gets_no_more() -> None:
    async def story() -> list[int]:
        event_log = EventLog()
        for _ in range(5):
            event_log.linked(NODE)
        return [each.number async for each in event_log.follow(2, on=False)]

    assert asyncio.run(story()) == [4, 5]


def test_events_outlive_the_node_and_their_numbers_go_on(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"

    async def life() -> list[int]:
        event_log = EventLog(EventFile(path))
        await event_log.load()
        for _ in range(2):
            event_log.linked(NODE)
        await event_log.close()
        return [each.number async for each in event_log.follow(20, on=False)]

    assert asyncio.run(life()) == [1, 2]
    with path.open("a", encoding="utf-8") as file:
        file.write("[3, 1.0, ")  # A crash cut it off.
        file.write("\n")
    assert asyncio.run(life()) == [1, 2, 3, 4]


def test_events_take_no_more_than_two_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_file, "FILE_BYTES_MAX", 1_000)

    async def life() -> None:
        event_log = EventLog(EventFile(tmp_path / "events.jsonl"))
        for _ in range(5):
            event_log.linked(NODE)
        await event_log.close()

    for _ in range(20):
        asyncio.run(life())

    sizes = [path.stat().st_size for path in tmp_path.iterdir()]
    assert len(sizes) == 2
    assert sum(sizes) < 5_000
