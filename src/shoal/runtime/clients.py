"""Clients that wait for the machine to accept a job or a cancellation."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, final

import msgspec

from shoal.core.events import Answer, CancelRequested, JobSubmitted
from shoal.core.housekeeping.events import RemovalRequested

if TYPE_CHECKING:
    from collections.abc import Callable

    from shoal.core.events import Event
    from shoal.model.ids import Attempt, JobId, OwnerId, TaskId
    from shoal.model.job import Job
    from shoal.protocol.messages import Grant
    from shoal.runtime.monitoring.change_signal import ChangeSignal

WAITING_MAX: Final = 10_000
"""Jobs that are handed in at one time; more are refused."""

PATIENCE_S: Final = 10.0
"""How long a job waits for a disk that is behind before it is refused."""


class Submitter(msgspec.Struct, frozen=True, kw_only=True):
    """The owner and grant of a submitted job; by default the node's own."""

    owner: OwnerId | None = None  # None: that of the node
    grant: Grant | None = None  # whose priority and quota hold; None: the node's own
    uses_secrets: bool = True  # those of the node's user
    parent: Attempt | None = None  # the task that submits it


@final
class WaitingClients:
    """Gives each request a token and delivers the answer to its client.

    New jobs wait while `is_behind` says that the disk lags. Other requests pass: a
    cancellation may be what helps.
    """

    def __init__(
        self,
        feed: Callable[[Event], None],
        is_behind: Callable[[], bool],
        news: ChangeSignal,
    ) -> None:
        """Check whether the disk is behind on every `news`."""
        self._feed = feed
        self._is_behind = is_behind
        self._news = news
        self._handing_in = 0
        self._tokens = 0
        self._waiting: dict[int, asyncio.Future[Answer]] = {}

    async def submit(
        self, job: Job, submitter: Submitter | None = None, *, detached: bool = False
    ) -> Answer:
        """Submit a job; return when it is on disk or refused."""
        by = submitter or Submitter()
        if self._handing_in >= WAITING_MAX:
            why = f"{WAITING_MAX} jobs are being handed in already; try again later"
            return Answer(0, job.id, refused=why)
        self._handing_in += 1
        try:
            if self._is_behind() and not await self._caught_up():
                why = f"the disk has been behind for {PATIENCE_S:g} s; try again later"
                return Answer(0, job.id, refused=why)
            return await self._ask(JobSubmitted, job, by.grant, by.parent, detached)
        finally:
            self._handing_in -= 1

    async def cancel(
        self, job: JobId, reason: str, task: TaskId | None = None
    ) -> Answer:
        """Cancel a job, or one task of it; return when that is on disk."""
        return await self._ask(CancelRequested, job, reason, task)

    async def remove(self, job: JobId) -> Answer:
        """Forget an ended job; return when that is on disk."""
        return await self._ask(RemovalRequested, job)

    def answer(self, answer: Answer) -> None:
        """Deliver the machine's answer to its client."""
        waiting = self._waiting.pop(answer.token, None)
        if waiting is not None and not waiting.done():
            waiting.set_result(answer)

    async def _caught_up(self) -> bool:
        try:
            async with asyncio.timeout(PATIENCE_S):
                await self._news.until(lambda: not self._is_behind())
        except TimeoutError:
            return False
        return True

    async def _ask(self, kind: Callable[..., Event], *fields: object) -> Answer:
        """Feed an event with a token of its own; wait for the answer to that."""
        self._tokens = token = self._tokens + 1
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._waiting[token] = future
        self._feed(kind(token, *fields))
        try:
            return await future
        finally:
            self._waiting.pop(token, None)
