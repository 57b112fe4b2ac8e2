"""The machine is told what the wall clock reads, again and again."""

import asyncio

from tests.runtime.virtual_time import run

from shoal.core.events import Event, WallClockRead
from shoal.runtime.wall_clock import READ_EVERY_S, WallClock


def test_a_clock_that_is_set_is_heard_of_soon() -> None:
    async def story() -> None:
        told: list[Event] = []
        reading = [1_000.0]
        clock = WallClock(told.append, lambda: reading[0])

        clock.start()
        reading[0] = 5_000.0
        await asyncio.sleep(READ_EVERY_S)

        assert told == [WallClockRead(1_000.0), WallClockRead(5_000.0)]

    run(story())


def test_a_clock_that_was_stopped_says_nothing_more() -> None:
    async def story() -> None:
        told: list[Event] = []
        clock = WallClock(told.append, lambda: 1.0)
        clock.start()

        clock.stop()
        await asyncio.sleep(3 * READ_EVERY_S)

        assert len(told) == 1

    run(story())
