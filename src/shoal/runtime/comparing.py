"""Runs the commands of jobs that say whether two results are the same.

Such a command is a task of this node, in its sandbox, without a network. Its work
directory has the outputs of both, in `a` and `b`, which are its last two arguments,
and the code of the job in `workdir`. It exits with 0 if they are the same.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, final

from shoal.blobs import trees, unpacking
from shoal.drivers import Order
from shoal.errors import ShoalError
from shoal.model.ids import Attempt, BlobId, NodeId, TaskId
from shoal.model.job import Task, Work
from shoal.protocol.messages import Outcome
from shoal.runtime.staging import tree_of

if TYPE_CHECKING:
    from pathlib import Path

    from shoal.drivers import Driver, Stream
    from shoal.runtime.blobs import Blobs
    from shoal.runtime.outputs import Outputs

COMPARES_MAX: Final = 2
"""Commands that run at a time; others wait."""

COMPARE_S: Final = 600.0
NOBODY: Final = NodeId("compare")
"""In whose name these attempts are: no scheduler has it."""


@final
class Comparing:
    """Compares outputs two by two."""

    def __init__(self, driver: Driver, blobs: Blobs, outputs: Outputs) -> None:
        """Run commands by `driver`; say in `outputs` what went wrong with them."""
        self._driver = driver
        self._blobs = blobs
        self._outputs = outputs
        self._count = 0
        self._free = asyncio.Semaphore(COMPARES_MAX)

    async def same(
        self, task: Task, command: tuple[str, ...], one: BlobId, other: BlobId
    ) -> bool:
        """Whether a command says that two trees of outputs of a task are the same."""
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
        order = Order(attempt=attempt, task=compares, directory=directory, foreign=True)
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
    """Takes no notice of what a command writes."""

    async def wrote(self, stream: Stream, offset: int, data: bytes) -> None:
        """Drop it."""

    def progressed(self, fraction: float | None, metrics: dict[str, float]) -> None:
        """Drop it."""
