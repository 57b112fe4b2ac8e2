"""Wait for any change."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    from collections.abc import Callable


@final
class ChangeSignal:
    """Wakes all waiters; each looks for itself what has changed."""

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
        """Wait for the next change."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[future] = None
        try:
            await future
        finally:
            self._waiting.pop(future, None)

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until a condition holds; it is checked after every change."""
        while not condition():
            await self.wait()
