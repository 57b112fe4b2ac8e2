"""Connect the call exchange to the sockets of interpreters that run here."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from shoal.core.calls.events import (
    LaneDown,
    LaneSlowed,
    LaneUp,
    LaneWrote,
    PauseLane,
    WriteLane,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from shoal.core.events import Effect
    from shoal.drivers import RunOrder
    from shoal.drivers.python import LaneLine
    from shoal.model.ids import Attempt
    from shoal.runtime.host import Host


@final
class Lanes:
    """The interpreters running here; the driver announces each."""

    def __init__(self, host: Host) -> None:
        """Report facts to the machine through `host`."""
        self._host = host
        self._lines: dict[Attempt, LaneLine] = {}

    @property
    def performers(self) -> dict[type[Effect], Callable[..., None]]:
        """The performer of each effect."""
        return {WriteLane: self._write, PauseLane: self._pause}

    def came(self, order: RunOrder, line: LaneLine) -> LaneSocket:
        """Register a new interpreter; return the receiver of its events."""
        self._lines[order.attempt] = line
        self._host.feed(LaneUp(order.attempt, order.task.id))
        return LaneSocket(order.attempt, self._host, self._gone)

    def _gone(self, attempt: Attempt) -> None:
        self._lines.pop(attempt, None)

    def _write(self, effect: WriteLane) -> None:
        if (line := self._lines.get(effect.attempt)) is not None:
            line.write(effect.items)

    def _pause(self, effect: PauseLane) -> None:
        if (line := self._lines.get(effect.attempt)) is not None:
            line.pause(paused=effect.paused)


@final
class LaneSocket:
    """Reports one interpreter's socket events to the machine."""

    def __init__(
        self,
        attempt: Attempt,
        host: Host,
        gone: Callable[[Attempt], None],
    ) -> None:
        self._attempt = attempt
        self._host = host
        self._gone = gone

    def said(self, items: list[bytes]) -> None:
        """Report items the interpreter wrote."""
        self._host.feed_now(LaneWrote(self._attempt, items))

    def slowed(self, *, slow: bool) -> None:
        """Report that the interpreter stopped or resumed reading."""
        self._host.feed(LaneSlowed(self._attempt, slow))

    def ended(self) -> None:
        """Report that the interpreter ended."""
        self._gone(self._attempt)
        self._host.feed(LaneDown(self._attempt))
