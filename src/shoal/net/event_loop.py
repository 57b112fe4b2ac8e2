"""The event loop of a node: uvloop if installed, else asyncio's."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop]:
    """Return the loop factory for `asyncio.Runner`."""
    try:
        import uvloop  # noqa: PLC0415 - it is not there on every system
    except ImportError:
        return asyncio.new_event_loop
    return uvloop.new_event_loop
