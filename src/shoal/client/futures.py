"""The future of a call: a standard library future that can also be awaited."""

from __future__ import annotations

import asyncio
import concurrent.futures
from typing import TYPE_CHECKING, Final, Generic, TypeVar, final

from shoal.client.notebook import table

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

T = TypeVar("T")

SHOWN_MAX: Final = 200


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
        self._name = ""

    def bind(
        self, drop: Callable[[], None], stop: Callable[[], None], name: str = ""
    ) -> None:
        """Name the function, and set what cancels and what interrupts its call."""
        self._drop, self._stop, self._name = drop, stop, name

    def __repr__(self) -> str:
        """Show the function, and how its call stands."""
        return f"<Future {self._name or 'call'}: {self._standing()}>"

    def _repr_html_(self) -> str:
        """Show the call as a table in a notebook."""
        return table(f"Future {self._name or 'call'}", [(self._standing(),)])

    def _standing(self) -> str:
        if self.cancelled():
            return "cancelled"
        if not self.done():
            return "running" if self.running() else "waiting"
        error = self.exception(0)
        if error is not None:
            return f"raised {type(error).__name__}: {error}"[:SHOWN_MAX]
        return f"returned {type(self.result(0)).__name__}"

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
