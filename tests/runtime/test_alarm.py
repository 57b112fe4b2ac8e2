"""The one timer that hosts put off, move and stop."""

from __future__ import annotations

import asyncio

from tests.runtime.virtual_time import run

from shoal.runtime.alarm import Alarm


def test_an_alarm_rings_once_and_at_its_time() -> None:
    async def watch() -> tuple[list[float], float]:
        loop = asyncio.get_running_loop()
        rung: list[float] = []
        alarm = Alarm(lambda: rung.append(loop.time()))
        due = loop.time() + 0.02
        alarm.set(due)
        alarm.set(due)
        await asyncio.sleep(0.06)
        return rung, due

    rung, due = run(watch())
    assert len(rung) == 1
    assert rung[0] >= due - 0.01


def test_setting_an_alarm_moves_it_both_ways() -> None:
    async def watch(first: float, then: float | None) -> int:
        loop = asyncio.get_running_loop()
        rung: list[None] = []
        alarm = Alarm(lambda: rung.append(None))
        alarm.set(loop.time() + first)
        alarm.set(None if then is None else loop.time() + then)
        await asyncio.sleep(0.05)
        return len(rung)

    assert run(watch(first=60, then=0.01)) == 1
    assert run(watch(first=0.01, then=60)) == 0
    assert run(watch(first=0.01, then=None)) == 0


def test_a_stopped_alarm_can_be_set_again() -> None:
    async def watch() -> tuple[int, int]:
        loop = asyncio.get_running_loop()
        rung: list[None] = []
        alarm = Alarm(lambda: rung.append(None))
        alarm.set(loop.time() + 0.01)
        alarm.stop()
        await asyncio.sleep(0.03)
        stopped = len(rung)
        alarm.set(loop.time() + 0.01)
        await asyncio.sleep(0.03)
        return stopped, len(rung)

    assert run(watch()) == (0, 1)
