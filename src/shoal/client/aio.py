"""The client for programs with an event loop."""

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
    from shoal.model.spec import JobSpec

T = TypeVar("T")


@final
class AsyncClient:
    """Like `Client`, with the same options, and nothing that blocks the loop.

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
        """Prepare; the node is looked for, or started, by `async with`."""
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
        """Wait for all calls; after an error wait for none."""
        await asyncio.to_thread(self.client.close, wait=error is None)

    @property
    def client(self) -> Client:
        """The client behind this one."""
        assert self._client is not None, "use it in `async with`"
        return self._client

    def submit(
        self,
        function: Callable[..., T],
        /,
        *args: Any,  # noqa: ANN401 - Whatever the function takes, and options.
        **kwargs: Any,  # noqa: ANN401
    ) -> Future[T]:
        """Call a function in the shoal; `await` what is returned."""
        return self.client.submit(function, *args, **kwargs)

    async def map(
        self,
        function: Callable[..., T],
        *iterables: Iterable[Any],
        chunksize: int | None = None,
    ) -> AsyncIterator[T]:
        """Call a function for each element; return the results in order."""
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
        """Hand in a job; return it when it has ended."""
        job = await asyncio.to_thread(self.client.submit, work)
        await asyncio.to_thread(job.wait)
        return job
