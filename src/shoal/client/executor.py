"""A `concurrent.futures.Executor` whose functions run in the shoal."""

from __future__ import annotations

import concurrent.futures
import itertools
import secrets
import threading
import time
import weakref
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeVar, cast, final

from shoal.client.code.initializers import Initialized
from shoal.client.futures import Future

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from shoal.client.client import Client
    from shoal.client.options import CallOptions

P = ParamSpec("P")
T = TypeVar("T")
U = TypeVar("U")

CALLS_PER_LANE: Final = 4
CHUNK_MAX: Final = 1_000
PREPARED_MAX: Final = 1_000
"""Functions of one executor that are kept with its initializer."""

LANES_GUESS: Final = 8
"""Interpreters that `map` assumes unless it knows of more."""


@final
class Executor(concurrent.futures.Executor):
    """An executor from `Client.executor`; shutdown leaves the client open."""

    def __init__(
        self,
        client: Client,
        options: CallOptions,
        initializer: Callable[..., object] | None = None,
        initargs: tuple[Any, ...] = (),
    ) -> None:
        """Run `initializer(*initargs)` once in each interpreter, before its calls."""
        self._client = client
        self._options = options
        self._initializer = initializer
        self._initargs = initargs
        self._key = secrets.token_hex(8)
        self._prepared: dict[int, Initialized] = {}  # by id; at most PREPARED_MAX
        self._broken = ""
        self._lock = threading.Lock()
        self._futures: weakref.WeakSet[Future[Any]] = weakref.WeakSet()
        self._ended = False

    def submit(
        self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs
    ) -> Future[T]:
        """Call a function; pass it all arguments unchanged."""
        with self._lock:
            self._refuse_when_ended()
            prepared = self._prepare(fn)
            future = self._client.call_with(self._options, prepared, args, kwargs)
            return self._note(future)

    def map(
        self,
        fn: Callable[..., T],
        *iterables: Iterable[Any],
        timeout: float | None = None,
        chunksize: int | None = 1,
    ) -> Iterator[T]:
        """Call a function for each element; return the results in order.

        Each call handles `chunksize` elements; None picks a size that gives each
        interpreter a few calls. The stream batches calls anyway: chunks only save the
        cost of one future per element, about 30 microseconds.
        """
        if chunksize is not None and chunksize < 1:
            raise ValueError("chunksize must be >= 1.")
        ends_at = None if timeout is None else time.monotonic() + timeout
        if chunksize == 1:
            futures = [self.submit(fn, *args) for args in zip(*iterables, strict=False)]
            return self._results(futures, ends_at)
        chunks = self.chunks(fn, *iterables, chunksize=chunksize)
        found: Iterator[list[T]] = self._results(chunks, ends_at)
        return itertools.chain.from_iterable(found)

    def chunks(
        self,
        fn: Callable[..., T],
        *iterables: Iterable[Any],
        chunksize: int | None = None,
    ) -> list[Future[list[T]]]:
        """Call a function for each element; return one future per chunk."""
        rows = list(zip(*iterables, strict=False))
        if chunksize is None:
            lanes = max(self._client.lanes, self._options.lanes or LANES_GUESS)
            chunksize = -(-len(rows) // (lanes * CALLS_PER_LANE))
            chunksize = max(1, min(chunksize, CHUNK_MAX))
        return [self._call_many(fn, chunk) for chunk in _cut(rows, chunksize)]

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Refuse new calls; wait for the existing ones if `wait` is true."""
        with self._lock:
            self._ended = True
            futures = list(self._futures)
        if cancel_futures:
            for future in futures:
                future.cancel()
        if wait:
            concurrent.futures.wait(futures)

    def _call_many(
        self, fn: Callable[..., T], rows: list[tuple[Any, ...]]
    ) -> Future[list[T]]:
        with self._lock:
            self._refuse_when_ended()
            future = self._client.call_many(self._options, self._prepare(fn), rows)
            return self._note(future)

    def _prepare(self, fn: Callable[P, T]) -> Callable[P, T]:
        """Return a function that runs after the initializer, if there is one."""
        if self._initializer is None:
            return fn
        found = self._prepared.get(id(fn))
        if found is None or found.function is not fn:
            if len(self._prepared) >= PREPARED_MAX:
                self._prepared.clear()
            found = Initialized(self._key, self._initializer, self._initargs, fn)
            self._prepared[id(fn)] = found
        return cast("Callable[P, T]", found)

    def _note(self, future: Future[T]) -> Future[T]:
        self._futures.add(future)
        if self._initializer is not None:
            future.add_done_callback(self._look)
        return future

    def _look(self, future: concurrent.futures.Future[Any]) -> None:
        """Note that the initializer failed: no further call can succeed."""
        error = None if future.cancelled() else future.exception()
        if isinstance(error, concurrent.futures.BrokenExecutor):
            self._broken = str(error)

    def _refuse_when_ended(self) -> None:
        if self._broken:
            raise concurrent.futures.BrokenExecutor(self._broken)
        if self._ended:
            raise RuntimeError("cannot schedule new futures after shutdown")

    def _results(self, futures: list[Future[U]], ends_at: float | None) -> Iterator[U]:
        """Yield results in order; cancel unsent calls if the caller stops early."""
        futures.reverse()
        try:
            while futures:
                # Pop before waiting, so that only the consumer keeps the result alive.
                future = futures.pop()
                if ends_at is None:
                    yield future.result()
                else:
                    yield future.result(ends_at - time.monotonic())
        finally:
            for future in futures:
                future.cancel()


def _cut(rows: list[tuple[Any, ...]], size: int) -> Iterator[list[tuple[Any, ...]]]:
    for start in range(0, len(rows), size):
        yield rows[start : start + size]
