"""Clients of this node that wait for an answer of its machine."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, final

from shoal.core.events import Answer, CancelRequested, JobSubmitted

if TYPE_CHECKING:
    from collections.abc import Callable

    from shoal.core.events import Event
    from shoal.model.ids import JobId
    from shoal.model.job import Job
    from shoal.protocol.messages import Grant


@final
class Clients:
    """Gives each request a token and finds whoever asked when the answer comes."""

    def __init__(self, feed: Callable[[Event], None]) -> None:
        self._feed = feed
        self._tokens = 0
        self._waiting: dict[int, asyncio.Future[Answer]] = {}

    async def submit(self, job: Job, grant: Grant | None = None) -> Answer:
        """Hand a job in; the answer comes when it is on disk, or refused."""
        token = self._next()
        return await self._ask(token, JobSubmitted(token, job, grant))

    async def cancel(self, job: JobId, reason: str) -> Answer:
        """Cancel a job; the answer comes when that is on disk."""
        token = self._next()
        return await self._ask(token, CancelRequested(token, job, reason))

    def answer(self, answer: Answer) -> None:
        """Give the machine's answer to whoever waits for it."""
        waiting = self._waiting.pop(answer.token, None)
        if waiting is not None and not waiting.done():
            waiting.set_result(answer)

    def _next(self) -> int:
        self._tokens += 1
        return self._tokens

    async def _ask(self, token: int, event: Event) -> Answer:
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._waiting[token] = future
        self._feed(event)
        try:
            return await future
        finally:
            self._waiting.pop(token, None)
