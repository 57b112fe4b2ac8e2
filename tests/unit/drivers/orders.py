"""Orders for drivers, and a watcher that remembers what it was told."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

from shoal.drivers import RunOrder, Stream, TaskMount
from shoal.drivers.process import ProcessDriver, ProcessSettings
from shoal.model.ids import Attempt, GroupId, JobId, NodeId, TaskId
from shoal.model.job import Task, Work
from shoal.model.resources import Allocation
from shoal.protocol.messages import Outcome

T = TypeVar("T")
_NUMBERS = itertools.count(1)


class Watched:
    """Remembers output by stream, and figures."""

    def __init__(self) -> None:
        self.pieces: list[tuple[Stream, int, bytes]] = []
        self.figures: list[tuple[float | None, dict[str, float]]] = []
        self.lines: list[bytes] = []
        self.spoke = asyncio.Event()

    async def wrote(self, stream: Stream, offset: int, data: bytes) -> None:
        self.pieces.append((stream, offset, data))
        self.spoke.set()

    def progressed(
        self,
        fraction: float | None,
        metrics: dict[str, float],
        lines: tuple[bytes, ...],
    ) -> None:
        self.figures.append((fraction, metrics))
        self.lines += lines

    def text(self, stream: Stream = "stdout") -> str:
        return b"".join(data for s, _, data in self.pieces if s == stream).decode()


def order(
    *argv: str,
    allocation: Allocation | None = None,
    directory: Path | None = None,
    addresses: tuple[str, ...] = (),
    given: dict[str, str] | None = None,
    index: int = 0,
    params: dict[str, Any] | None = None,
    seen: tuple[TaskMount, ...] = (),
    **work: Any,  # noqa: ANN401 - Whatever `Work` has.
) -> RunOrder:
    """Return an order to run `argv`; keywords go into its `Work`.

    `given` are the values of its secrets, and `seen` its mounts.
    """
    return RunOrder(
        attempt=Attempt(NodeId("otter"), 1, next(_NUMBERS)),
        task=Task(
            id=TaskId(f"j.main.{index}"),
            job=JobId("j"),
            group=GroupId("j.main"),
            index=index,
            params=params or {},
            work=Work(argv=argv, **work),
        ),
        allocation=allocation or Allocation(),
        directory=directory,
        mounts=seen,
        addresses=addresses,
        secrets=given or {},
    )


def shell(script: str, **work: Any) -> RunOrder:  # noqa: ANN401
    """Return an order to run a shell script."""
    return order("/bin/sh", "-c", script, **work)


@asynccontextmanager
async def opened(
    root: Path, settings: ProcessSettings | None = None
) -> AsyncIterator[ProcessDriver]:
    """Open a driver, without a sandbox unless told otherwise, and close it."""
    driver = ProcessDriver(root, settings or ProcessSettings(sandbox=False))
    await driver.open()
    try:
        yield driver
    finally:
        await driver.close()


def with_driver(
    root: Path,
    act: Callable[[ProcessDriver], Awaitable[T]],
    settings: ProcessSettings | None = None,
) -> T:
    """Do something with an open driver, on a loop of its own."""

    async def main() -> T:
        async with asyncio.timeout(30), opened(root, settings) as driver:
            return await act(driver)

    return asyncio.run(main())


def run(
    root: Path, one: RunOrder, settings: ProcessSettings | None = None
) -> tuple[Outcome, Watched]:
    """Run one order; return how it ended and what it said."""

    async def act(driver: ProcessDriver) -> tuple[Outcome, Watched]:
        watched = Watched()
        return await driver.run(one, watched), watched

    return with_driver(root, act, settings)
