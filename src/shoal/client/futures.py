"""The future of a call: that of the standard library, which can also be awaited."""

from __future__ import annotations

import asyncio
import concurrent.futures
from typing import TYPE_CHECKING, Generic, TypeVar, final

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

T = TypeVar("T")


@final
class Future(concurrent.futures.Future[T], Generic[T]):
    """What a call will return. Wait with `result()`, or `await` it.

    `cancel()` keeps a call from being sent; one that was sent counts as running.
    `stop()` also interrupts a call that runs.
    """

    def __init__(self) -> None:
        super().__init__()
        self._drop: Callable[[], None] | None = None
        self._stop: Callable[[], None] | None = None

    def bind(self, drop: Callable[[], None], stop: Callable[[], None]) -> None:
        """Have `drop` called when this is cancelled, and `stop` to interrupt it."""
        self._drop, self._stop = drop, stop

    def cancel(self) -> bool:
        """Keep the call from being sent; return whether that was possible."""
        if not super().cancel():
            return False
        drop, self._drop = self._drop, None
        if drop is not None:
            drop()
        return True

    def stop(self) -> bool:
        """Cancel, or interrupt what runs; return whether it had not ended before.

        A call that was interrupted raises `CallStoppedError`. It notices at the next
        line of Python: a library that computes for long is not interrupted within.
        """
        if self.cancel():
            return True
        if self.done():
            return False
        if self._stop is not None:
            self._stop()
        return True

    def __await__(self) -> Generator[None, None, T]:
        """Wait for the result without blocking the event loop."""
        return asyncio.wrap_future(self).__await__()
