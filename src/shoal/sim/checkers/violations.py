"""Record broken promises. The first one stops the world."""

from __future__ import annotations

import traceback
from collections.abc import Callable
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
        self.traceback = ""  # of a machine's exception, if any
        self._agenda = agenda

    def found_in(self, run: Callable[[], None]) -> tuple[Violation, ...]:
        """Run a world to its end; a machine that raises has broken a promise, too."""
        try:
            run()
        except Exception as error:  # noqa: BLE001 - A machine never raises.
            self.traceback = traceback.format_exc()
            place = traceback.extract_tb(error.__traceback__)[-1]
            where = f"{place.filename.rpartition('/')[2]}:{place.lineno}"
            self.report("RAISED", f"{type(error).__name__} in {where} {place.line}")
        return tuple(self.found)

    def report(self, id_: str, what: str) -> None:
        """Record a broken promise and stop the world."""
        self.found.append(Violation(id_, self._agenda.now, what))
        self._agenda.stopped = True
