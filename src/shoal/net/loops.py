"""The event loop of a node: that of uvloop where it is installed, else asyncio's."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop]:
    """Return what makes the fastest loop here, as `asyncio.Runner` wants it."""
    try:
        import uvloop  # noqa: PLC0415 - it is not there on every system
    except ImportError:
        return asyncio.new_event_loop
    return uvloop.new_event_loop
