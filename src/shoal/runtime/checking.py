"""Says of verified results which are the same, before the machine hears of them.

What a worker claims about its result is never believed: the digest that the machine
compares is made here, of what was fetched. If a job names a command that compares,
a result that it finds to be the same as an earlier one gets the digest of that.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from typing import TYPE_CHECKING, Final, final

import msgspec

from shoal.core.replication import succeeded
from shoal.errors import ShoalError
from shoal.model.ids import BlobId
from shoal.model.verification import STDOUT
from shoal.protocol.messages import Outcome
from shoal.runtime.digests import ALL, digest_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from shoal.core.jobs import TaskRecord
    from shoal.core.scheduler import Scheduler
    from shoal.model.ids import Attempt, TaskId
    from shoal.model.job import Verify
    from shoal.runtime.blobs import Blobs
    from shoal.runtime.comparing import Comparing
    from shoal.runtime.outputs import Outputs

TASKS_MAX: Final = 10_000
"""Tasks whose latest results are remembered until the machine has them."""


@final
class Checking:
    """Makes the digests of results of this node's jobs."""

    def __init__(
        self,
        blobs: Blobs,
        outputs: Outputs,
        scheduler: Callable[[], Scheduler | None],
    ) -> None:
        self.comparing: Comparing | None = None  # set once there are drivers
        self._blobs = blobs
        self._outputs = outputs
        self._scheduler = scheduler
        self._passed: OrderedDict[TaskId, dict[str, BlobId]] = OrderedDict()
        self._locks: dict[TaskId, asyncio.Lock] = {}

    def verify_of(self, task: TaskId) -> Verify | None:
        """Return how the results of a task are checked, if they are."""
        record = self._record(task)
        machine = self._scheduler()
        if record is None or machine is None:
            return None
        return machine.book.groups[record.task.group].group.verify

    async def checked(
        self, attempt: Attempt, task: TaskId, outcome: Outcome
    ) -> Outcome:
        """Return an outcome, whose outputs are here, with the digest of these."""
        verify = self.verify_of(task)
        if verify is None or not succeeded(outcome):
            return unclaimed(outcome)
        try:
            digest = await self._digest(attempt, task, outcome, verify)
        except (ShoalError, OSError) as error:
            return Outcome("lost", reason=f"its outputs cannot be read: {error}")
        return msgspec.structs.replace(outcome, digest=digest)

    async def _digest(
        self, attempt: Attempt, task: TaskId, outcome: Outcome, verify: Verify
    ) -> str:
        digest = await asyncio.to_thread(digest_of, self._blobs.shelf, outcome, verify)
        if verify.compare == STDOUT and digest:
            await self._show(attempt, task, outcome)
        if verify.command and digest:
            digest = await self._alike(task, outcome, verify, digest)
        return digest

    async def _show(self, attempt: Attempt, task: TaskId, outcome: Outcome) -> None:
        """Show what is compared, and not what came in pieces on the way."""
        tree = self._blobs.shelf.tree(BlobId(outcome.outputs[STDOUT]))
        if isinstance(tree, str) or len(tree.files()) != 1:
            return
        blob, store = tree.files()[0], self._blobs.store
        await asyncio.to_thread(
            self._outputs.replace,
            task,
            attempt,
            STDOUT,
            lambda write: store.copy(blob, write),
        )

    async def _alike(
        self, task: TaskId, outcome: Outcome, verify: Verify, digest: str
    ) -> str:
        """Return the digest of an earlier result that is the same, or its own."""
        tree = BlobId(outcome.outputs[ALL])
        async with self._locks.setdefault(task, asyncio.Lock()):
            known = self._known(task)
            if digest not in known:
                for other, seen in known.items():
                    if await self._same(task, verify, seen, tree):
                        return other
            passed = self._passed.setdefault(task, {})
            passed.setdefault(digest, tree)
            while len(self._passed) > TASKS_MAX:
                self._locks.pop(self._passed.popitem(last=False)[0], None)
        return digest

    async def _same(
        self, task: TaskId, verify: Verify, one: BlobId, other: BlobId
    ) -> bool:
        record = self._record(task)
        if record is None or self.comparing is None:
            return False
        return await self.comparing.same(record.task, verify.command, one, other)

    def _known(self, task: TaskId) -> dict[str, BlobId]:
        record = self._record(task)
        found = {
            answer.outcome.digest: BlobId(answer.outcome.outputs[ALL])
            for answer in (() if record is None else record.answers)
            if answer.outcome.digest and ALL in answer.outcome.outputs
        }
        return {**found, **self._passed.get(task, {})}

    def _record(self, task: TaskId) -> TaskRecord | None:
        machine = self._scheduler()
        return None if machine is None else machine.book.tasks.get(task)


def unclaimed(outcome: Outcome) -> Outcome:
    """Return an outcome without the digest that a worker claims."""
    return msgspec.structs.replace(outcome, digest="") if outcome.digest else outcome
