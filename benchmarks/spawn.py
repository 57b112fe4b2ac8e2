"""Count the short processes that the driver runs a second, and what it adds to each.

The limit is a bare loop of posix_spawn and waitpid, in the same run: alone, and with
as many loops as the driver has tasks at a time. Rounds of all ways alternate, so that
whatever else the machine does disturbs them alike.

Run: python benchmarks/spawn.py >> benchmarks/results.jsonl
Compare ratios of lines from one run: machines differ, and other work disturbs.
"""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import tempfile
import threading
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from shoal.drivers import RunOrder, Stream
from shoal.drivers.process import ProcessDriver, ProcessSettings
from shoal.model.ids import Attempt, GroupId, JobId, NodeId, TaskId
from shoal.model.job import Task, Work

PROGRAM = "/bin/true"
ROUNDS = 5
TASKS = 400  # in a round
SANDBOX_TASKS = 40
AT_A_TIME = max(2, os.cpu_count() or 1)


class Deaf:
    """Wants to know nothing."""

    async def wrote(self, stream: Stream, offset: int, data: bytes) -> None:
        """Drop it."""

    def progressed(
        self,
        fraction: float | None,
        metrics: dict[str, float],
        lines: tuple[bytes, ...],
    ) -> None:
        """Drop it."""


class Orders:
    """Hands out orders that differ in their attempt only."""

    def __init__(self) -> None:
        self._made = 0
        self._task = Task(
            id=TaskId("j.main.0"),
            job=JobId("j"),
            group=GroupId("j.main"),
            work=Work(argv=(PROGRAM,)),
        )

    def next(self) -> RunOrder:
        """Return the next order."""
        self._made += 1
        attempt = Attempt(NodeId("bench"), 1, self._made)
        return RunOrder(attempt=attempt, task=self._task)


def bare(count: int) -> list[float]:
    """Spawn and wait, one after another; return the time of each in seconds."""
    spent: list[float] = []
    for _ in range(count):
        start = time.perf_counter()
        os.waitpid(os.posix_spawn(PROGRAM, [PROGRAM], {}, setsid=True), 0)
        spent.append(time.perf_counter() - start)
    return spent


def bare_threads(count: int) -> list[float]:
    """Do the same in several threads at a time."""
    spent: list[float] = []
    threads = [
        threading.Thread(target=lambda: spent.extend(bare(count // AT_A_TIME)))
        for _ in range(AT_A_TIME)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return spent


async def driven(
    driver: ProcessDriver, orders: Orders, count: int, at_a_time: int
) -> list[float]:
    """Run tasks through a driver; return the time of each in seconds."""
    spent: list[float] = []
    deaf = Deaf()
    ended: list[Attempt] = []

    async def lane() -> None:
        for _ in range(count // at_a_time):
            order = orders.next()
            start = time.perf_counter()
            outcome = await driver.run(order, deaf)
            spent.append(time.perf_counter() - start)
            assert outcome.exit_code == 0, outcome
            ended.append(order.attempt)

    await asyncio.gather(*(lane() for _ in range(at_a_time)))
    await driver.discard(*ended)
    return spent


def line(way: str, rates: list[float], spent: list[float], limit: float) -> str:
    """Return one figure as JSON; `of_limit` is relative to the first line."""
    cuts = statistics.quantiles(spent, n=100)
    rate = statistics.median(rates)
    figures = {
        "benchmark": "spawn",
        "way": way,
        "tasks_per_s": round(rate),
        "p50_ms": round(cuts[49] * 1e3, 3),
        "p99_ms": round(cuts[98] * 1e3, 3),
        "of_limit": round(rate / (limit or rate), 3),
        "tasks": len(spent),
    }
    return json.dumps(figures)


async def measure(folder: Path) -> None:
    """Run all ways in turn, and print a line for each."""
    orders = Orders()
    plain = ProcessDriver(
        folder / "plain", ProcessSettings(sandbox=False, warm=AT_A_TIME)
    )
    boxed = ProcessDriver(folder / "boxed", ProcessSettings(warm=AT_A_TIME))
    await plain.open()
    await boxed.open()
    ways: dict[str, tuple[int, Callable[[int], Awaitable[list[float]]]]] = {
        "limit": (TASKS, lambda n: asyncio.to_thread(bare, n)),
        "driver": (TASKS, lambda n: driven(plain, orders, n, 1)),
        f"limit x{AT_A_TIME}": (TASKS, lambda n: asyncio.to_thread(bare_threads, n)),
        f"driver x{AT_A_TIME}": (TASKS, lambda n: driven(plain, orders, n, AT_A_TIME)),
    }
    if boxed.sandboxed:
        ways["sandbox"] = (SANDBOX_TASKS, lambda n: driven(boxed, orders, n, 1))
    rates: dict[str, list[float]] = {way: [] for way in ways}
    spent: dict[str, list[float]] = {way: [] for way in ways}
    for _ in range(ROUNDS):
        for way, (count, run) in ways.items():
            start = time.perf_counter()
            spent[way] += await run(count)
            rates[way].append(count / (time.perf_counter() - start))
    limit = statistics.median(rates["limit"])
    for way in ways:
        print(line(way, rates[way], spent[way], limit))
    await plain.close()
    await boxed.close()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        asyncio.run(measure(Path(name)))
