"""The future of a call: that of the standard library, which can also be awaited."""

from __future__ import annotations

import asyncio
import concurrent.futures
import pickle
from typing import TYPE_CHECKING, Generic, TypeVar, final

from shoal.errors import CallStoppedError, RemoteError
from shoal.protocol import payloads

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

T = TypeVar("T")


class RemoteTracebackError(Exception):
    """Where an exception was raised on the other side; the cause of what is raised."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text

    def __str__(self) -> str:
        """Return the traceback as the interpreter printed it."""
        return f'\n"""\n{self.text}"""'


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


def exception_of(payload: bytes) -> BaseException:
    """Return the exception that an interpreter told of."""
    told: tuple[str, bytes] = pickle.loads(payload)  # noqa: S301 - From our own call.
    text, data = told
    if not text:
        return CallStoppedError(
            "the call was stopped", because="somebody called stop() on its future"
        )
    error: object = None
    if data:
        try:
            error = payloads.loads(data)
        except Exception:  # noqa: BLE001 - Loading runs the user's code.
            error = None
    if not isinstance(error, BaseException):
        last = text.rstrip().rpartition("\n")[2]
        error = RemoteError(
            last,
            because="the exception itself could not be pickled",
            hint="its cause is the traceback of the other side",
        )
    error.__cause__ = RemoteTracebackError(text)
    return error
