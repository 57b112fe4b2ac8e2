"""Record broken promises. The first one stops the world."""

from __future__ import annotations

from typing import final

import msgspec

from shoal.sim.agenda import Agenda


class Violation(msgspec.Struct, frozen=True):
    """Which promise was broken, when, and how."""

    id: str
    at_s: float
    what: str

    def __str__(self) -> str:
        return f"{self.id} at {self.at_s:.3f} s: {self.what}"


@final
class Violations:
    """Collects violations found in one world."""

    def __init__(self, agenda: Agenda) -> None:
        self.found: list[Violation] = []
        self._agenda = agenda

    def report(self, id_: str, what: str) -> None:
        """Record a broken promise and stop the world."""
        self.found.append(Violation(id_, self._agenda.now, what))
        self._agenda.stopped = True
