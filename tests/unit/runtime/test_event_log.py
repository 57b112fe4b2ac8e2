"""Who follows what happens waits for it, and lets others get on meanwhile."""

import asyncio

from shoal.model.ids import NodeId
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
