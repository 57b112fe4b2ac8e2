"""Takes the output of tasks from their workers: each piece once, and in order.

Theory of operation. A worker numbers its pieces of output for this scheduler and sends
them until they are acknowledged (`core/leasing/output_outbox`). What is kept here for a
worker is the number of the next piece:

    its turn        taken; a receipt follows soon, or at once after `RECEIPT_BYTES`
    a later one     a gap: dropped, and a receipt asks for what is missing
    an earlier one  a repeat: dropped, and a receipt says where we are

The report of an attempt is taken when all pieces before its place are (`has_all`).
Until then its repeats say that the attempt is not lost, and ask for what is missing.

Nothing is durable. After a restart, or for a worker that was forgotten, the next
message says from where on the worker holds its pieces: all before was taken. Pieces in
between that are taken again are written to the same place again. Only workers that run
something for us are remembered, `WORKERS_MAX` at most.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

import msgspec

from shoal.core.deadlines import DeadlineHeap, Deadlines
from shoal.core.events import Send
from shoal.model.ids import NodeId
from shoal.protocol.messages import OutputReceipt

if TYPE_CHECKING:
    from shoal.core.events import Effect
    from shoal.protocol.messages import Output, OutputPlace

RECEIPT_S: Final = 0.1
RECEIPT_BYTES: Final = 256 << 10
GAP_S: Final = 0.3
"""A gap is told so often at most: more is on its way when the first word leaves."""

WORKERS_MAX: Final = 10_000


class _Worker(msgspec.Struct):
    epoch: int
    taken: int  # pieces, in order: the number of the next one
    untold_bytes: int = 0
    asked_at: float = float("-inf")


@final
class OutputIntake:
    """How much output of each worker was taken."""

    def __init__(self, heap: DeadlineHeap) -> None:
        self._workers: dict[NodeId, _Worker] = {}
        self._receipts: Deadlines[NodeId] = Deadlines(heap)

    def knows(self, peer: NodeId) -> bool:
        """Whether anything of this worker is expected."""
        return peer in self._workers

    def take(
        self, peer: NodeId, output: Output, now: float
    ) -> tuple[bool, list[Effect]]:
        """Return whether a piece is new and has its turn, and what to answer."""
        place = output.place
        if place is None:
            return True, []  # Its worker is too old to repeat it, or this node.
        worker = self._worker(peer, place)
        if worker is None:
            return False, []
        if place.number > worker.taken:
            return False, self._ask(peer, worker, now)
        is_new = place.number == worker.taken
        worker.taken += is_new
        worker.untold_bytes += len(output.data)
        if worker.untold_bytes >= RECEIPT_BYTES:
            return is_new, [self._receipt(peer, worker)]
        self._receipts.set_earlier(peer, now + RECEIPT_S)
        return is_new, []

    def has_all(self, peer: NodeId, place: OutputPlace | None) -> bool:
        """Whether all output before a report was taken."""
        if place is None:
            return True
        worker = self._worker(peer, place)
        return worker is None or worker.taken >= place.number

    def ask(self, peer: NodeId, now: float) -> list[Effect]:
        """Have a worker send again what is missing."""
        worker = self._workers.get(peer)
        return [] if worker is None else self._ask(peer, worker, now)

    def due(self, now: float) -> list[Effect]:
        """Tell workers what was taken."""
        return [
            self._receipt(peer, self._workers[peer])
            for peer in self._receipts.pop_due(now)
            if peer in self._workers
        ]

    def _worker(self, peer: NodeId, place: OutputPlace) -> _Worker | None:
        """Return what is known of a worker; None if it is of an earlier life."""
        worker = self._workers.get(peer)
        if worker is None or worker.epoch < place.epoch:
            if worker is None and len(self._workers) >= WORKERS_MAX:
                del self._workers[next(iter(self._workers))]
            worker = self._workers[peer] = _Worker(place.epoch, place.held)
        elif worker.epoch > place.epoch:
            return None
        worker.taken = max(worker.taken, place.held)
        return worker

    def _ask(self, peer: NodeId, worker: _Worker, now: float) -> list[Effect]:
        if now - worker.asked_at < GAP_S:
            return []
        worker.asked_at = now
        return [self._receipt(peer, worker, gap=True)]

    def _receipt(self, peer: NodeId, worker: _Worker, *, gap: bool = False) -> Send:
        worker.untold_bytes = 0
        self._receipts.drop(peer)
        taken = worker.taken
        return Send(peer, OutputReceipt(epoch=worker.epoch, taken=taken, gap=gap))
