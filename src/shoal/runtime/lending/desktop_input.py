"""Ask logind whether somebody uses a desktop of this machine.

A desktop tells logind when nobody has used it for some minutes (its idle hint) or when
it is locked, and at once when somebody is there again. So a session that is active and
neither idle nor locked counts as used now. One whose desktop never gives the hint is
used until it is locked or closed.

Text consoles are left out: their devices tell more exactly.
"""

from __future__ import annotations

import time
from typing import Any, Final, NamedTuple, final

from shoal.runtime.lending.system_bus import (
    BusCallError,
    BusError,
    SystemBus,
    Target,
)

LOGIND: Final = "org.freedesktop.login1"
SESSION: Final = f"{LOGIND}.Session"
PROPERTIES: Final = "org.freedesktop.DBus.Properties"
LIST: Final = Target(
    LOGIND, "/org/freedesktop/login1", f"{LOGIND}.Manager", "ListSessions"
)
GRAPHICAL: Final = ("x11", "wayland", "mir")
RETRY_S: Final = 30.0
SESSIONS_MAX: Final = 64


class LatestInput(NamedTuple):
    """The latest input: how long ago, and where."""

    idle_s: float
    at: str


@final
class DesktopInput:
    """Looks at the desktop sessions of this machine. Blocks."""

    def __init__(self) -> None:
        self._bus: SystemBus | None = None
        self._retry_at = 0.0
        self._locked_at: dict[str, float] = {}  # of sessions that are locked

    def latest(self) -> LatestInput | None:
        """Return the latest input at a desktop; None without a desktop, or logind."""
        try:
            return self._latest()
        except (BusError, BusCallError):
            self.close()
            return None

    def close(self) -> None:
        """Let go of the bus."""
        if self._bus is not None:
            self._bus.close()
            self._bus = None

    def _latest(self) -> LatestInput | None:
        if self._bus is None:
            if time.monotonic() < self._retry_at:
                return None
            self._retry_at = time.monotonic() + RETRY_S
            self._bus = SystemBus()
            self._retry_at = 0.0  # If logind starts anew, it is asked again at once.
        [sessions] = self._bus.call(LIST, "a(susso)")
        found: dict[str, LatestInput] = {}
        for _, _, _, seat, path in sessions[:SESSIONS_MAX]:
            ask = Target(LOGIND, path, PROPERTIES, "GetAll")
            try:
                [told] = self._bus.call(ask, "a{sv}", SESSION)
            except BusCallError:
                continue  # It was closed meanwhile.
            if (idle_s := self._idle_s(path, dict(told))) is not None:
                found[path] = LatestInput(
                    idle_s, f"the desktop at {seat or 'a screen'}"
                )
        self._locked_at = {p: at for p, at in self._locked_at.items() if p in found}
        return min(found.values(), default=None)

    def _idle_s(self, path: str, told: dict[str, Any]) -> float | None:
        """Return for how long nobody used a session; None if it is no desktop's."""
        is_users = str(told.get("Class", "")).startswith("user")
        is_shown = told.get("Active") is True and told.get("State") != "closing"
        if told.get("Type") not in GRAPHICAL or not is_users or not is_shown:
            return None
        found: list[float] = []
        if told.get("IdleHint"):
            since_us = int(told.get("IdleSinceHint", 0))
            found.append(max(0.0, time.time() - since_us / 1e6))
        if told.get("LockedHint"):
            now = time.monotonic()
            found.append(now - self._locked_at.setdefault(path, now))
        else:
            self._locked_at.pop(path, None)
        return max(found, default=0.0)
