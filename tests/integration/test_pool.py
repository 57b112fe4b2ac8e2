"""Nodes of one process find each other, and share jobs and gangs."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.integration.pool_nodes import Reef, end, job, written

from shoal.model.ids import TaskId
from shoal.runtime.node import Node

pytestmark = pytest.mark.integration


@asynccontextmanager
async def boss_and_two(folder: Path) -> AsyncIterator[tuple[Reef, Node, list[Node]]]:
    """Run a scheduler and two workers."""
    reef = Reef(folder)
    try:
        boss = await reef.join("boss", "scheduler")
        yield reef, boss, [await reef.join(f"w{n}", "worker") for n in range(2)]
    finally:
        await reef.close()


def test_a_job_runs_on_workers_that_were_found_and_linked(tmp_path: Path) -> None:
    async def story() -> None:
        async with boss_and_two(tmp_path) as (_, boss, _):
            spec = "command: [sh, -c, 'sleep 0.3; echo {index}']\narray: 8"
            await boss.clients.submit(job("j1", spec))

            assert await end(boss, "j1") == "done"
            for n in range(8):
                assert written(boss, f"j1.main.{n}") == f"{n}\n"

    asyncio.run(story())


def test_a_gang_starts_on_two_nodes_at_once(tmp_path: Path) -> None:
    async def story() -> None:
        async with boss_and_two(tmp_path) as (_, boss, _):
            spec = "command: [sh, -c, 'echo $RANK of $WORLD_SIZE']\nnodes: 4"
            await boss.clients.submit(job("j1", spec))

            assert await end(boss, "j1") == "done"
            told = sorted(written(boss, f"j1.main.{n}") for n in range(4))
            assert told == [f"{n} of 4\n" for n in range(4)]

    asyncio.run(story())


def test_the_task_of_a_worker_that_vanishes_runs_elsewhere(tmp_path: Path) -> None:
    async def story() -> None:
        async with boss_and_two(tmp_path) as (reef, boss, workers):
            await boss.clients.submit(job("j1", "command: [sleep, '2']"))
            assert boss.peer.scheduler is not None
            record = boss.peer.scheduler.book.tasks[TaskId("j1.main.0")]
            async with asyncio.timeout(10):
                await boss.news.until(lambda: bool(record.live))
            [run] = record.live.values()

            [runner] = [node for node in workers if node.id == run.worker]
            await reef.leave(runner)

            assert await end(boss, "j1") == "done"
            assert record.attempts == 2

    asyncio.run(story())
