"""Run a job's compare command, which decides whether two results are equal.

The command runs on this node as a task in a sandbox, without network. Its work
directory holds the two outputs in `a` and `b`, which are its last two arguments, and
the job's code in `workdir`. Exit code 0 means equal. At most `COMPARES_MAX` commands
run at a time, each for at most `COMPARE_S`.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, final

from shoal.blobs import trees, unpacking
from shoal.drivers import RunOrder
from shoal.errors import ShoalError
from shoal.model.ids import Attempt, BlobId, NodeId, TaskId
from shoal.model.job import Task, Work
from shoal.protocol.messages import Outcome
from shoal.runtime.artifacts.staging import tree_of

if TYPE_CHECKING:
    from pathlib import Path

    from shoal.drivers import Driver, Stream
    from shoal.runtime.artifacts.blob_exchange import BlobExchange
    from shoal.runtime.monitoring.output_log import OutputLog

COMPARES_MAX: Final = 2
"""Most commands running at a time; others wait."""

COMPARE_S: Final = 600.0
NOBODY: Final = NodeId("compare")
"""Scheduler id of these attempts; no real scheduler has it."""


@final
class CompareCommands:
    """Compares pairs of outputs with a command."""

    def __init__(self, driver: Driver, blobs: BlobExchange, outputs: OutputLog) -> None:
        """Run commands with `driver`; report their failures to `outputs`."""
        self._driver = driver
        self._blobs = blobs
        self._outputs = outputs
        self._count = 0
        self._free = asyncio.Semaphore(COMPARES_MAX)

    async def same(
        self, task: Task, command: tuple[str, ...], one: BlobId, other: BlobId
    ) -> bool:
        """Whether the command finds two output trees of a task equal."""
        async with self._free:
            self._count += 1
            attempt = Attempt(NOBODY, 0, self._count)
            try:
                async with asyncio.timeout(COMPARE_S):
                    outcome = await self._run(attempt, task, command, one, other)
            except TimeoutError:
                outcome = Outcome("timed-out", reason=f"over {COMPARE_S:.0f} s")
            except (ShoalError, OSError) as error:
                outcome = Outcome("not-started", reason=str(error))
            finally:
                await self._driver.discard(attempt)
        if outcome.kind != "exited":
            why = outcome.reason or outcome.kind
            self._outputs.note_trouble(task.id, f"its results are not compared: {why}")
        return outcome.kind == "exited" and outcome.exit_code == 0

    async def _run(
        self,
        attempt: Attempt,
        task: Task,
        command: tuple[str, ...],
        one: BlobId,
        other: BlobId,
    ) -> Outcome:
        directory = self._driver.prepare(attempt)
        folders = {"a": one, "b": other}
        if (workdir := tree_of(task.work.workdir)) is not None:
            folders["workdir"] = workdir
        await asyncio.to_thread(self._unpack, directory, folders)
        work = Work(argv=(*command, "a", "b"))
        compares = Task(
            id=TaskId(f"{task.job}.compare.{attempt.sequence}"),
            job=task.job,
            group=task.group,
            work=work,
            grace_s=0.0,
        )
        order = RunOrder(
            attempt=attempt, task=compares, directory=directory, foreign=True
        )
        return await self._driver.run(order, _Deaf())

    def _unpack(self, directory: Path, folders: dict[str, BlobId]) -> None:
        for name, blob in folders.items():
            tree = self._blobs.shelf.tree(blob)
            if not isinstance(tree, trees.Tree):
                raise ShoalError(f"what is in '{name}' is not here", because=tree)
            folder = directory / name
            folder.mkdir()
            unpacking.unpack(self._blobs.store, tree, folder)


@final
class _Deaf:
    """Ignores a command's output and progress."""

    async def wrote(self, stream: Stream, offset: int, data: bytes) -> None:
        """Ignore output."""

    def progressed(
        self,
        fraction: float | None,
        metrics: dict[str, float],
        lines: tuple[bytes, ...],
    ) -> None:
        """Ignore progress."""
