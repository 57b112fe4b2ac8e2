"""The output of tasks on its way to their schedulers: whole, once and in order.

Theory of operation. Each scheduler has a queue. Pieces of all its tasks are numbered in
it, sent at once, and held until an `OutputReceipt` says that they were taken. A receipt
that tells of a gap has everything sent again from there; so do a new link, and silence
for a moment, then with growing pauses. At most `WINDOW_BYTES` are on their way.

The report of an ended task has a place after the last piece of it (`stamp`). The
scheduler takes the report only when it has all before that place, so no job is done
before its log is whole.

    TaskWrote --> held, sent --OutputReceipt--> forgotten
              --> no room: given up, and counted in the report as `missing`

- Back-pressure. While a window or more is held for a scheduler, its tasks are paused
  (`PauseOutput`): they wait when they next write. A task that is being stopped is not
  paused, or it could not say what it has to say before it is killed.
- Bounds. A queue holds `QUEUE_BYTES_MAX`; what comes beyond is given up. All together
  hold `ALL_BYTES_MAX`: then the largest queue is given up, so that a scheduler that
  acknowledges nothing takes no room from others. A queue ends with the last of its
  attempts whose report is not acknowledged yet.
- Numbers never repeat in one life of a worker: a new queue begins beyond all that
  ended. A scheduler that does not know where we are believes `held`, since all before
  it was taken, by an earlier life of the scheduler perhaps, or is given up.
- A scheduler that is this node gets output directly, and so does one that is too old to
  send receipts (`Assignment.receipts`): from it lost pieces stay lost.

Nothing is durable: with a worker, its tasks and their output are lost.
"""

from __future__ import annotations

from collections import deque
from itertools import islice
from typing import TYPE_CHECKING, Final, final

import msgspec

from shoal.core.deadlines import DeadlineHeap, Deadlines
from shoal.core.events import PauseOutput, Send
from shoal.core.timing import RESEND
from shoal.model.ids import Attempt, NodeId
from shoal.protocol.messages import Output, OutputPlace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from shoal.core.events import Effect, TaskWrote
    from shoal.protocol.messages import OutputReceipt, OutputStream, Report

WINDOW_BYTES: Final = 2 << 20
"""Less than links queue of output, so that a healthy one drops nothing."""

WINDOW_PIECES: Final = 4_096
QUEUE_BYTES_MAX: Final = 8 << 20
QUEUE_PIECES_MAX: Final = 4 * WINDOW_PIECES
ALL_BYTES_MAX: Final = 128 << 20


class _Queue(msgspec.Struct):
    """What is held for one scheduler."""

    first: int  # the number of the first piece that is held
    held: deque[TaskWrote] = msgspec.field(default_factory=deque["TaskWrote"])
    bytes: int = 0
    sent: int = 0  # how many of these were sent, since the last time from the first
    sent_bytes: int = 0
    tries: int = 0  # resends since anything was taken
    paused: bool = False
    attempts: int = 0  # whose output may be in it

    @property
    def is_full(self) -> bool:
        return self.bytes >= WINDOW_BYTES or len(self.held) >= WINDOW_PIECES


class _End(msgspec.Struct):
    """How far the output of an attempt reaches, until its report is acknowledged."""

    until: int | None = None  # one more than the number of its last piece
    missing: int = 0  # bytes


@final
class OutputOutbox:
    """Output that schedulers have not acknowledged."""

    def __init__(self, node: NodeId, epoch: int, heap: DeadlineHeap) -> None:
        self._node = node
        self._epoch = epoch
        self._queues: dict[NodeId, _Queue] = {}
        self._ends: dict[Attempt, _End] = {}
        self._bytes = 0
        self._begin = 0  # beyond all numbers of queues that ended
        self._resends: Deadlines[NodeId] = Deadlines(heap)

    def begin(self, attempt: Attempt, *, receipts: bool) -> None:
        """Expect output of an attempt; hold it if its scheduler sends receipts."""
        if receipts and attempt.scheduler != self._node:
            peer = attempt.scheduler
            queue = self._queues.get(peer)
            if queue is None:
                queue = self._queues[peer] = _Queue(self._begin)
            queue.attempts += 1
            self._ends[attempt] = _End()

    def begins(self, attempt: Attempt) -> dict[OutputStream, int]:
        """Return where the output that is held of an attempt begins, by stream."""
        queue = self._queues.get(attempt.scheduler)
        held = queue.held if queue is not None else ()
        mine = [piece for piece in held if piece.attempt == attempt]
        return {piece.stream: piece.offset for piece in reversed(mine)}

    def rename(self, was: Attempt, attempt: Attempt, now: float) -> list[Effect]:
        """Hold and send output under the new name of its attempt."""
        end = self._ends.get(was)
        if end is None:
            self.begin(attempt, receipts=True)
            return []
        held = [
            piece for piece in self._queues[was.scheduler].held if piece.attempt == was
        ]
        missing, first = end.missing, self.begins(was)
        effects = self.forget(was)
        self.begin(attempt, receipts=True)
        if (new := self._ends.get(attempt)) is not None:
            new.missing = missing
        for piece in held:
            offset = piece.offset - first[piece.stream]
            renamed = msgspec.structs.replace(piece, attempt=attempt, offset=offset)
            effects += self.wrote(renamed, now)
        return effects

    def wrote(self, piece: TaskWrote, now: float) -> list[Effect]:
        """Send a piece and hold it; pause its scheduler's tasks if much is held."""
        attempt = piece.attempt
        end = self._ends.get(attempt)
        if end is None:
            return [Send(attempt.scheduler, _output(piece, None))]
        peer, size = attempt.scheduler, len(piece.data)
        queue = self._queues[peer]
        effects = self._room_for(queue, size)
        if effects is None:
            end.missing += size
            return []
        end.until = queue.first + len(queue.held) + 1
        queue.held.append(piece)
        queue.bytes += size
        self._bytes += size
        effects += self._flush(peer, queue, now)
        if queue.is_full and not queue.paused:
            queue.paused = True
            effects.append(PauseOutput(peer, paused=True))
        return effects

    def on_receipt(
        self, peer: NodeId, receipt: OutputReceipt, now: float
    ) -> list[Effect]:
        """Forget what was taken; send on, or again what was lost."""
        queue = self._queues.get(peer)
        if queue is None or receipt.epoch != self._epoch:
            return []
        count = receipt.taken - queue.first
        if count < 0 or count > len(queue.held):
            return []  # Old news, or nonsense.
        if count:
            self._forget(queue, count)
            queue.tries = 0
            self._resends.drop(peer)
        if receipt.gap:
            queue.sent = queue.sent_bytes = 0
        effects = self._flush(peer, queue, now)
        if queue.bytes <= WINDOW_BYTES // 2 and not queue.is_full:
            effects += _resume(peer, queue)
        return effects

    def stamp(self, report: Report) -> Report:
        """Return a report with the place of its attempt's output, as it is now."""
        end = self._ends.get(report.attempt)
        if end is None or (end.until is None and not end.missing):
            return report
        queue = self._queues[report.attempt.scheduler]
        until = queue.first if end.until is None else end.until
        place = OutputPlace(self._epoch, queue.first, until)
        return msgspec.structs.replace(report, place=place, missing=end.missing)

    def forget(self, attempt: Attempt) -> list[Effect]:
        """Forget an attempt whose report needs no answer any more."""
        if self._ends.pop(attempt, None) is None:
            return []
        peer = attempt.scheduler
        queue = self._queues[peer]
        queue.attempts -= 1
        if queue.attempts:
            return []
        self._forget(queue, len(queue.held))
        self._begin = max(self._begin, queue.first)
        del self._queues[peer]
        self._resends.drop(peer)
        return _resume(peer, queue)

    def hasten(self, peer: NodeId, now: float) -> list[Effect]:
        """Send again what is held for a peer: its link is new."""
        queue = self._queues.get(peer)
        if queue is None:
            return []
        queue.tries = 0
        return self._again(peer, queue, now)

    def due(self, now: float, is_out: Callable[[NodeId], bool]) -> list[Effect]:
        """Send again what was not taken for long.

        Who is out of the shoal is told nothing more.
        """
        effects: list[Effect] = []
        for peer in self._resends.pop_due(now):
            queue = self._queues[peer]
            if is_out(peer):
                effects += self._give_up(peer, queue)
                continue
            queue.tries += 1
            effects += self._again(peer, queue, now)
        return effects

    def _again(self, peer: NodeId, queue: _Queue, now: float) -> list[Effect]:
        queue.sent = queue.sent_bytes = 0
        self._resends.drop(peer)
        return self._flush(peer, queue, now)

    def _flush(self, peer: NodeId, queue: _Queue, now: float) -> list[Effect]:
        """Send what was not sent yet, as far as the window allows."""
        effects: list[Effect] = []
        held: Iterable[TaskWrote] = islice(queue.held, queue.sent, None)
        if queue.sent == len(queue.held) - 1:
            held = (queue.held[-1],)  # As it mostly is: nothing is skipped.
        for piece in held:
            if queue.sent_bytes >= WINDOW_BYTES or queue.sent >= WINDOW_PIECES:
                break
            place = OutputPlace(self._epoch, queue.first, queue.first + queue.sent)
            effects.append(Send(peer, _output(piece, place)))
            queue.sent += 1
            queue.sent_bytes += len(piece.data)
        if queue.sent and peer not in self._resends:
            self._resends.set(peer, now + RESEND.pause_s(queue.tries))
        return effects

    def _forget(self, queue: _Queue, count: int) -> None:
        for _ in range(count):
            size = len(queue.held.popleft().data)
            queue.bytes -= size
            self._bytes -= size
            if queue.sent:
                queue.sent -= 1
                queue.sent_bytes -= size
        queue.first += count

    def _room_for(self, queue: _Queue, size: int) -> list[Effect] | None:
        """Return None if a piece does not fit; the largest queue may go for it."""
        if queue.bytes + size > QUEUE_BYTES_MAX or len(queue.held) >= QUEUE_PIECES_MAX:
            return None
        if self._bytes + size <= ALL_BYTES_MAX:
            return []
        peer, largest = max(self._queues.items(), key=lambda each: each[1].bytes)
        if largest is queue:
            return None
        return self._give_up(peer, largest)

    def _give_up(self, peer: NodeId, queue: _Queue) -> list[Effect]:
        """Forget all that is held for a scheduler; reports say how much it was."""
        for piece in queue.held:
            if end := self._ends.get(piece.attempt):
                end.missing += len(piece.data)
        self._forget(queue, len(queue.held))
        self._resends.drop(peer)
        return _resume(peer, queue)


def _resume(peer: NodeId, queue: _Queue) -> list[Effect]:
    if not queue.paused:
        return []
    queue.paused = False
    return [PauseOutput(peer, paused=False)]


def _output(piece: TaskWrote, place: OutputPlace | None) -> Output:
    return Output(
        attempt=piece.attempt,
        stream=piece.stream,
        offset=piece.offset,
        data=piece.data,
        place=place,
    )
