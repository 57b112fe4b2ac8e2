"""The lanes of this node's worker: items between interpreters and their schedulers.

A lane obeys nobody but the scheduler whose attempt it is. What it said is kept until
that scheduler has it, also when the lane is over by then, for a while.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, Final, final

from shoal.protocol.batches import CallBatch, ResultBatch
from shoal.runtime.ferry import Ferry

if TYPE_CHECKING:
    from collections.abc import Callable

    from shoal.core.courier import Batch
    from shoal.drivers import Order
    from shoal.drivers.python import LaneLine
    from shoal.model.ids import Attempt, NodeId
    from shoal.protocol.messages import AnyMessage

    Send = Callable[[NodeId, AnyMessage], None]

UNTAKEN_BYTES_HIGH: Final = 16 << 20
"""Results of one lane that wait here before the lane itself has to wait."""

LINGER_S: Final = 30.0
"""How long results are kept of a lane that is over."""


@final
class Lanes:
    """All lanes that run here; the driver announces them."""

    def __init__(self, send: Send) -> None:
        """Say to schedulers by `send` what lanes say."""
        self.counts: Counter[str] = Counter()
        self._send = send
        self._lanes: dict[Attempt, _LaneEnd] = {}

    def came(self, order: Order, line: LaneLine) -> _LaneEnd:
        """Take a new lane."""
        end = _LaneEnd(order, line, self._send, self._forget)
        self._lanes[order.attempt] = end
        return end

    def received(self, peer: NodeId, batch: CallBatch) -> None:
        """Pass on what a scheduler says to one of its lanes."""
        end = self._lanes.get(batch.attempt)
        if end is None or end.attempt.scheduler != peer:
            self.counts["calls for no lane of the sender"] += 1
            return
        end.ferry.receive(batch)
        end.look_at_room()

    def linked(self, peer: NodeId) -> None:
        """Say again what may have been lost with the last link."""
        for end in self._lanes.values():
            if end.attempt.scheduler == peer:
                end.ferry.hasten()

    def close(self) -> None:
        """Forget all lanes; the driver ends them."""
        for end in list(self._lanes.values()):
            end.forget()

    def _forget(self, attempt: Attempt) -> None:
        self._lanes.pop(attempt, None)


@final
class _LaneEnd:
    """This node's end of one lane."""

    def __init__(
        self,
        order: Order,
        line: LaneLine,
        send: Send,
        gone: Callable[[Attempt], None],
    ) -> None:
        self.attempt = order.attempt
        self.ferry = Ferry(self._send_batch, line.write)
        self._task = order.task.id
        self._line = line
        self._send = send
        self._gone = gone
        self._paused = False
        self._linger: asyncio.TimerHandle | None = None

    def said(self, items: list[bytes]) -> None:
        """Pass on what the lane says."""
        self.ferry.put(items)
        self.look_at_room()

    def slowed(self, *, slow: bool) -> None:
        """Take no calls while the lane does not read them."""
        self.ferry.set_open(is_open=not slow)

    def ended(self) -> None:
        """Keep what the lane said last until it has been heard, for a while."""
        loop = asyncio.get_running_loop()
        self._linger = loop.call_later(LINGER_S, self.forget)
        self.look_at_room()

    def look_at_room(self) -> None:
        """Let the lane wait while much of what it said is not taken."""
        waiting = self.ferry.waiting_bytes
        if self._linger is not None and not waiting:
            self.forget()
            return
        paused = waiting > UNTAKEN_BYTES_HIGH
        if paused != self._paused:
            self._paused = paused
            self._line.pause(paused=paused)

    def forget(self) -> None:
        """Say nothing more of this lane."""
        if self._linger is not None:
            self._linger.cancel()
        self.ferry.close()
        self._gone(self.attempt)

    def _send_batch(self, batch: Batch) -> None:
        message = ResultBatch(
            task=self._task,
            attempt=self.attempt,
            first=batch.first,
            taken=batch.taken,
            items=batch.items,
            open=batch.open,
            probe=batch.probe,
        )
        self._send(self.attempt.scheduler, message)
