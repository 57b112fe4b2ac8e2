"""Waiting for something to have changed, whatever it is."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    from collections.abc import Callable


@final
class News:
    """Wakes everybody who waits; they look for themselves what is new."""

    def __init__(self) -> None:
        self._waiting: dict[asyncio.Future[None], None] = {}

    def tell(self) -> None:
        """Wake all who wait now."""
        if not self._waiting:
            return
        waiting, self._waiting = self._waiting, {}
        for each in waiting:
            if not each.done():
                each.set_result(None)

    async def wait(self) -> None:
        """Wait for the next news."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[future] = None
        try:
            await future
        finally:
            self._waiting.pop(future, None)

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until a condition is met; it is looked at after every news."""
        while not condition():
            await self.wait()
