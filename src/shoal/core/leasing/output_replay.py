"""Replay task output that a broken link may have lost.

Output is not acknowledged: there is much of it, and its offset says where it belongs.
But output in flight is lost when a link breaks, so a worker keeps the latest pieces for
a while and sends them again. More is kept of metrics than of what tasks print: there is
less of it, and a curve with a hole is a wrong curve.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final, final

import msgspec

from shoal.core.deadlines import DeadlineHeap, Deadlines
from shoal.core.timing import LEASE_MAX_S
from shoal.model.ids import NodeId

if TYPE_CHECKING:
    from shoal.protocol.messages import Output

ECHO_BYTES_MAX: Final = 256 << 10
"""What is kept for one scheduler. A link breaks seconds after it stopped to carry."""

METRICS_BYTES_MAX: Final = 4 << 20
"""The same for metrics: a thousand reports a second for about a minute."""


class _Echo(msgspec.Struct):
    said: deque[Output] = msgspec.field(default_factory=deque["Output"])
    bytes: int = 0


@final
class OutputReplay:
    """The latest output per scheduler."""

    def __init__(self, heap: DeadlineHeap, bytes_max: int = ECHO_BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._echoes: dict[NodeId, _Echo] = {}
        self._ends: Deadlines[NodeId] = Deadlines(heap)

    def said(self, output: Output, now: float) -> None:
        """Keep a piece of output that is being sent, and earlier ones as they fit."""
        peer = output.attempt.scheduler
        echo = self._echoes.setdefault(peer, _Echo())
        echo.said.append(output)
        echo.bytes += len(output.data)
        while echo.bytes > self._bytes_max:
            echo.bytes -= len(echo.said.popleft().data)
        self._ends.set(peer, now + LEASE_MAX_S)

    def of(self, peer: NodeId) -> list[Output]:
        """Return the output to send to a peer again, in order."""
        echo = self._echoes.get(peer)
        return [] if echo is None else list(echo.said)

    def due(self, now: float) -> None:
        """Forget old output."""
        for peer in self._ends.pop_due(now):
            del self._echoes[peer]
