"""What a scheduler is told of environments that an attempt waits for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from shoal.protocol.messages import Staging

if TYPE_CHECKING:
    from shoal.core.environments.events import Kind
    from shoal.model.ids import Attempt

MAKING: Final[dict[Kind, str]] = {
    "python": "building its Python environment",
    "setup": "running its setup",
    "cache": "",  # It is there at once.
}
AWAITING: Final[dict[Kind, str]] = {
    "python": "its Python environment is being built here for another task",
    "setup": "its setup runs here for another task",
    "cache": "",
}
_MADE: Final[dict[Kind, str]] = {
    "python": "its Python environment was built",
    "setup": "its setup ran",
    "cache": "",
}


def made_in(kind: Kind, took_s: float) -> str:
    """Say what was made, and in what time; nothing if it is not worth it."""
    return f"{_MADE[kind]} in {took_s:.1f} s" if _MADE[kind] else ""


def told_of(attempt: Attempt, seq: int, note: str, made: str) -> Staging:
    """Return the message about an attempt that has not started."""
    return Staging(
        attempt=attempt,
        seq=seq,
        fetched_bytes=0,
        total_bytes=0,
        note=note,
        made=made,
    )
