"""The future of a call: a standard library future that can also be awaited."""

from __future__ import annotations

import asyncio
import concurrent.futures
from typing import TYPE_CHECKING, Generic, TypeVar, final

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

T = TypeVar("T")


@final
class Future(concurrent.futures.Future[T], Generic[T]):
    """The result of a call, once it has one. Use `result()`, or `await` it.

    `cancel()` works only until the call is sent; after that it counts as running.
    `stop()` also interrupts a running call.
    """

    def __init__(self) -> None:
        super().__init__()
        self._drop: Callable[[], None] | None = None
        self._stop: Callable[[], None] | None = None

    def bind(self, drop: Callable[[], None], stop: Callable[[], None]) -> None:
        """Set the callbacks: `drop` on cancellation, `stop` to interrupt the call."""
        self._drop, self._stop = drop, stop

    def cancel(self) -> bool:
        """Cancel the call if it was not sent yet; return whether it was cancelled."""
        if not super().cancel():
            return False
        drop, self._drop = self._drop, None
        if drop is not None:
            drop()
        return True

    def stop(self) -> bool:
        """Cancel or interrupt the call; return False if it had already ended.

        An interrupted call raises `CallStoppedError`. The interrupt takes effect at the
        next line of Python, so a long call into native code finishes first.
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
