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
        self._event = asyncio.Event()

    def tell(self) -> None:
        """Wake all who wait now."""
        self._event.set()
        self._event = asyncio.Event()

    async def wait(self) -> None:
        """Wait for the next news."""
        await self._event.wait()

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until a condition is met; it is looked at after every news."""
        while not condition():
            await self.wait()
