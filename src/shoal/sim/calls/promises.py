"""Check promises about calls of functions: C1, C2 and C3.

The interpreters report which call began where, and the client reports which results
came back.
"""

from __future__ import annotations

from typing import Final, final

import msgspec

from shoal.core.calls.call_dispatcher import CallResult
from shoal.core.events import Effect, MessageReceived
from shoal.sim.agenda import Agenda
from shoal.sim.checkers.strangers import done_for_forger
from shoal.sim.checkers.violations import Violations
from shoal.sim.node.host import SimHost

ANSWERED_S: Final = 240.0
"""Time after the last fault by which every present client's call has a result."""


class _Made(msgspec.Struct):
    retries: int
    begun: int = 0
    answer: str = ""


@final
class CallPromises:
    """Follows every call from its client to an interpreter and back."""

    def __init__(self, agenda: Agenda, violations: Violations, heal_s: float) -> None:
        """Expect answers to calls from `heal_s` on."""
        self._agenda = agenda
        self._violations = violations
        self._heal_s = heal_s
        self._made: dict[int, _Made] = {}

    @property
    def answered(self) -> int:
        """Number of calls with a result."""
        return sum(bool(made.answer) for made in self._made.values())

    def made(self, call: int, retries: int) -> None:
        """Note a client's call."""
        self._made[call] = _Made(retries)

    def abandoned(self, call: int) -> None:
        """Expect no result, because the client's node crashed."""
        self._made[call].answer = self._made[call].answer or "abandoned"

    def began(self, call: int) -> None:
        """Check a call as an interpreter begins it."""
        made = self._made[call]
        made.begun += 1
        if made.begun > made.retries + 1:
            what = f"call {call} began {made.begun} times, with {made.retries} retries"
            self._violations.report("C2", what)

    def came(self, result: CallResult) -> None:
        """Check a result as the client gets it."""
        made = self._made.get(result.id)
        if made is None or (result.kind == "value" and not made.begun):
            what = f"a client got a result of call {result.id}, which never ran"
            self._violations.report("C3", what)
            return
        if result.kind == "value" and result.payload != value_of(result.id):
            self._violations.report("C3", f"call {result.id} got a forged result")
        if made.answer:
            what = f"call {result.id} got {result.kind} after {made.answer}"
            self._violations.report("C1", what)
        made.answer = result.kind

    def told(
        self, host: SimHost, event: MessageReceived, effects: list[Effect]
    ) -> None:
        """Check that nobody acts on the forger's calls or results."""
        for what in done_for_forger(host, event, effects):
            self._violations.report("C3", what)

    def sweep(self) -> None:
        """Check that no call waits forever."""
        if self._agenda.now < self._heal_s + ANSWERED_S:
            return
        for call, made in self._made.items():
            if not made.answer:
                self._violations.report("C1", f"call {call} has no result")
                return


def value_of(call: int) -> bytes:
    """Return a call's correct result."""
    return b"value of %d" % call
