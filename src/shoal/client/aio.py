"""The client for asyncio programs.

`AsyncClient` wraps a `Client`. Whatever would block the event loop (finding or starting
the node, closing, submitting and awaiting jobs) runs in a thread; futures are awaited.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Self, TypeVar, Unpack, final

from shoal.client.client import Client

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Mapping
    from pathlib import Path
    from types import TracebackType

    from shoal.client.futures import Future
    from shoal.client.jobs import Job
    from shoal.client.options import ClientOptions
    from shoal.model.spec.spec import JobSpec

T = TypeVar("T")


@final
class AsyncClient:
    """An asyncio `Client`: same options, and it never blocks the event loop.

    ```python
    async with shoal.AsyncClient() as client:
        print(await client.submit(pow, 2, 10))
        async for result in client.map(abs, [-1, -2]):
            print(result)
    ```
    """

    def __init__(
        self, node: str | None = None, **options: Unpack[ClientOptions]
    ) -> None:
        """Store the options; `async with` finds the node or starts one."""
        self._node = node
        self._options = options
        self._client: Client | None = None

    async def __aenter__(self) -> Self:
        self._client = await asyncio.to_thread(Client, self._node, **self._options)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close the client; wait for all calls unless the block raised."""
        await asyncio.to_thread(self.client.close, wait=error is None)

    @property
    def client(self) -> Client:
        """The synchronous client that this one wraps."""
        assert self._client is not None, "use it in `async with`"
        return self._client

    def submit(
        self,
        function: Callable[..., T],
        /,
        *args: Any,  # noqa: ANN401 - Arguments of any function, and options.
        **kwargs: Any,  # noqa: ANN401
    ) -> Future[T]:
        """Call a function in the shoal; return a future to `await`."""
        return self.client.submit(function, *args, **kwargs)

    async def map(
        self,
        function: Callable[..., T],
        *iterables: Iterable[Any],
        chunksize: int | None = None,
    ) -> AsyncIterator[T]:
        """Call a function for each element; yield the results in order."""
        chunks = self.client.executor().chunks(
            function, *iterables, chunksize=chunksize
        )
        try:
            while chunks:
                for result in await chunks.pop(0):
                    yield result
        finally:
            for chunk in chunks:
                chunk.cancel()

    async def run(self, work: str | Path | Mapping[str, Any] | JobSpec, /) -> Job:
        """Submit a job, wait until it ends, and return it."""
        job = await asyncio.to_thread(self.client.submit, work)
        await asyncio.to_thread(job.wait)
        return job
