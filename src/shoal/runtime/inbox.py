"""Where the parts of a node leave facts for its machine.

The parts are built before the machine that they report to: each is given `feed`, and
needs to know neither the node nor its host. Facts that come before the machine runs are
kept, up to `EARLY_MAX`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

if TYPE_CHECKING:
    from collections.abc import Iterable

    from shoal.core.events import Event
    from shoal.runtime.host import Host

EARLY_MAX: Final = 10_000
"""Facts that are kept until the machine runs; later ones are dropped."""


@final
class Inbox:
    """Hands facts to a host, once there is one."""

    def __init__(self) -> None:
        self._host: Host | None = None
        self._early: list[Event] = []

    def feed(self, event: Event) -> None:
        """Tell the machine a fact."""
        if self._host is not None:
            self._host.feed(event)
        elif len(self._early) < EARLY_MAX:
            self._early.append(event)

    def feed_now(self, event: Event) -> None:
        """Tell the machine a fact before returning, if it is idle."""
        if self._host is not None:
            self._host.feed_now(event)
        else:
            self.feed(event)

    def open(self, host: Host, first: Iterable[Event]) -> None:
        """Hand `first` to the host, then early events, then the rest."""
        early, self._early = self._early, []
        self._host = host
        for event in (*first, *early):
            host.feed(event)
