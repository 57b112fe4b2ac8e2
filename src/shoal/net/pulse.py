"""Whether the other end of a link is alive, and how far away it is.

Who has heard nothing for a second asks; who has heard nothing for five takes the
peer for lost, so a peer that stops is missed three and a half to six seconds later.
If we stood still ourselves, that is no fault of the peer's.
"""

from __future__ import annotations

from typing import Final, Literal, final

TICK_S: Final = 0.5
"""How often to ask `due`."""

ASK_AFTER_S: Final = 1.0
SILENT_AFTER_S: Final = 5.0
MEASURE_EVERY_S: Final = 10.0
"""Ask this often even while there is traffic: the way may have become longer."""

LATE_S: Final = 1.0
"""A tick that comes so much later than it should means that we stood still."""


@final
class Pulse:
    """Keeps the time of one link. It has no clock of its own."""

    __slots__ = ("_asked_at", "_heard_at", "_nonce", "_open")

    def __init__(self, now: float) -> None:
        self._heard_at = now
        self._asked_at = now - MEASURE_EVERY_S  # So the first tick asks.
        self._nonce = 0
        self._open = False  # Whether the last question is unanswered.

    def hear(self, now: float) -> None:
        """Note that something came from the peer."""
        self._heard_at = now

    def due(self, now: float) -> Literal["ask", "lost"] | None:
        """Say what is to be done about a peer, if anything."""
        if now - self._heard_at >= SILENT_AFTER_S:
            return "lost"
        if self._open and now - self._asked_at < ASK_AFTER_S:
            return None
        if now - self._heard_at >= ASK_AFTER_S - TICK_S / 2:
            return "ask"
        return "ask" if now - self._asked_at >= MEASURE_EVERY_S else None

    def ask(self, now: float) -> bytes:
        """Return what to send as a ping."""
        self._nonce += 1
        self._asked_at, self._open = now, True
        return self._nonce.to_bytes(8, "big")

    def answer(self, payload: bytes, now: float) -> float | None:
        """Return how long the round trip took, if this answers the last question."""
        if not self._open or payload != self._nonce.to_bytes(8, "big"):
            return None
        self._open = False
        return now - self._asked_at

    def excuse(self, late_s: float) -> None:
        """Leave out a time in which we could not have heard anything."""
        self._heard_at += late_s
