"""Fetches the outputs of a task before its report is believed.

A worker repeats its report until it is acknowledged. So a report whose outputs are not
here is kept back, the outputs are fetched, and only then the machine hears of it: a
result that was accepted outlives the worker. If the outputs cannot be had, the machine
is told that the attempt is lost, and tries the task again.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from typing import TYPE_CHECKING, Final, final

import msgspec

from shoal.blobs.hashing import size_of
from shoal.core.events import Event, MessageReceived
from shoal.errors import ShoalError
from shoal.model.ids import BlobId
from shoal.protocol.messages import Outcome, Staging

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from shoal.model.ids import Attempt, JobId, NodeId, TaskId
    from shoal.protocol.messages import Report
    from shoal.runtime.blobs import Blobs
    from shoal.runtime.checking import Checking

TRIES_MAX: Final = 2
PULLED_MAX: Final = 10_000
PULLS_MAX: Final = 256
"""Reports whose outputs are fetched at a time; others are repeated anyway."""

AGAIN_S: Final = 2.0


@final
class Pulling:
    """The reports that wait for their outputs."""

    def __init__(
        self,
        blobs: Blobs,
        feed: Callable[[Event], None],
        told: Callable[[TaskId, int, int], None],
        checking: Checking,
    ) -> None:
        """Tell facts by `feed`, and by `told` how much of a task's outputs is here.

        `checking` says what results are compared by.
        """
        self._blobs = blobs
        self._feed = feed
        self._told = told
        self._checking = checking
        self._pulls: dict[Attempt, asyncio.Task[None]] = {}
        self._pulled: OrderedDict[Attempt, None] = OrderedDict()

    def keeps_back(
        self, peer: NodeId, report: Report, task: TaskId, job: JobId
    ) -> bool:
        """Whether a report of a live attempt must wait until its outputs are here."""
        attempt = report.attempt
        if attempt in self._pulled:
            return False
        # The machine hears that it is not lost, or would try it again meanwhile.
        alive = Staging(attempt=attempt, seq=0, fetched_bytes=0, total_bytes=0)
        self._feed(MessageReceived(peer, alive))
        if attempt in self._pulls or len(self._pulls) >= PULLS_MAX:
            return True
        loop = asyncio.get_running_loop()
        pull = self._pull(peer, report, task, job)
        self._pulls[attempt] = loop.create_task(pull)
        return True

    async def close(self) -> None:
        """Fetch nothing any more; the reports will come again."""
        pulls = list(self._pulls.values())
        for pull in pulls:
            pull.cancel()
        await asyncio.gather(*pulls, return_exceptions=True)

    async def _pull(
        self, peer: NodeId, report: Report, task: TaskId, job: JobId
    ) -> None:
        attempt = report.attempt
        try:
            why = await self._fetch(peer, report, task, job)
            outcome = Outcome("lost", reason=f"its outputs cannot be had: {why}")
            if not why:
                outcome = await self._checking.checked(attempt, task, report.outcome)
        finally:
            del self._pulls[attempt]
        report = msgspec.structs.replace(report, outcome=outcome)
        self._pulled[report.attempt] = None
        if len(self._pulled) > PULLED_MAX:
            self._pulled.popitem(last=False)
        self._feed(MessageReceived(peer, report))

    async def _fetch(
        self, peer: NodeId, report: Report, task: TaskId, job: JobId
    ) -> str:
        """Fetch all outputs; return why that cannot be, if it cannot."""
        names = list(report.outcome.outputs.values())
        if any(size_of(name) is None for name in names):
            return "the worker names what is no blob"
        why = ""
        for attempt in range(TRIES_MAX):
            if attempt:
                await asyncio.sleep(AGAIN_S)
            try:
                await self._fetch_all(peer, map(BlobId, names), task, job)
            except (ShoalError, OSError) as error:
                why = str(error)
            else:
                return ""
        return why

    async def _fetch_all(
        self, peer: NodeId, names: Iterable[BlobId], task: TaskId, job: JobId
    ) -> None:
        def told(fetched: int, total: int) -> None:
            self._told(task, fetched, total)

        for name in names:
            holder = f"results {job}"
            tree = await self._blobs.fetch_tree(name, (peer,), holder, told)
            await asyncio.to_thread(self._blobs.store.sync, (name, *tree.files()))
