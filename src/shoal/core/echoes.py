"""Output of tasks that a link may have lost, said again when there is a link again.

Nobody acknowledges output: there is much of it, and it says by its offset where it
belongs. But what is under way when a link breaks is lost without a word, so a worker
keeps the last of it for a while.
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


class _Echo(msgspec.Struct):
    said: deque[Output] = msgspec.field(default_factory=deque["Output"])
    bytes: int = 0


@final
class Echoes:
    """The latest output for every scheduler that got some of late."""

    def __init__(self, heap: DeadlineHeap) -> None:
        self._echoes: dict[NodeId, _Echo] = {}
        self._ends: Deadlines[NodeId] = Deadlines(heap)

    def said(self, output: Output, now: float) -> None:
        """Keep a piece of output that is being sent, and as many before it as fit."""
        peer = output.attempt.scheduler
        echo = self._echoes.setdefault(peer, _Echo())
        echo.said.append(output)
        echo.bytes += len(output.data)
        while echo.bytes > ECHO_BYTES_MAX:
            echo.bytes -= len(echo.said.popleft().data)
        self._ends.set(peer, now + LEASE_MAX_S)

    def of(self, peer: NodeId) -> list[Output]:
        """Return what to say again to a peer, in the order in which it was said."""
        echo = self._echoes.get(peer)
        return [] if echo is None else list(echo.said)

    def due(self, now: float) -> None:
        """Forget what was said so long ago that nothing of it runs any more."""
        for peer in self._ends.pop_due(now):
            del self._echoes[peer]
