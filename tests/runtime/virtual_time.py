"""An event loop in which waiting takes no time: the clock jumps to what is next."""

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class _JumpingSelector(selectors.SelectSelector):
    """Never waits; tells how long it would have waited."""

    def __init__(self) -> None:
        super().__init__()
        self.waited_s = 0.0

    def select(
        self, timeout: float | None = None
    ) -> list[tuple[selectors.SelectorKey, int]]:
        """Return what is ready now, and count the time as spent."""
        ready = super().select(0)
        if not ready and timeout is not None and timeout > 0:
            self.waited_s += timeout
        return ready


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """A real event loop whose time passes only when nothing is left to do."""

    def __init__(self) -> None:
        self._jumping = _JumpingSelector()
        super().__init__(self._jumping)

    def time(self) -> float:
        """Return the virtual time, which begins at 0."""
        return self._jumping.waited_s


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end in virtual time."""
    loop = VirtualTimeLoop()
    try:
        return loop.run_until_complete(coroutine)
    finally:
        loop.close()
