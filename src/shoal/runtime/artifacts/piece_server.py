"""Answer members' requests for pieces from the disk, in order and within limits.

Each peer has a queue of at most `QUESTIONS_MAX` requests and one task that serves it,
up to `PIECES_AT_ONCE` pieces per read. At most `READERS_MAX` threads read at a time.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from typing import TYPE_CHECKING, Final, final

from shoal import failpoints
from shoal.protocol.blobs import BlobPiece, PieceRefusal

if TYPE_CHECKING:
    from collections.abc import Callable

    from shoal.model.ids import NodeId
    from shoal.protocol.blobs import PieceWanted
    from shoal.protocol.messages import AnyMessage
    from shoal.runtime.artifacts.blob_access import BlobAccess

QUESTIONS_MAX: Final = 1_024
"""Most queued requests of one peer; an honest peer has fewer in flight."""

PIECES_AT_ONCE: Final = 64
READERS_MAX: Final = 4
"""Most threads that read for peers at a time; the node has other work."""


@final
class PieceServer:
    """One request queue per peer; peers are served concurrently."""

    def __init__(
        self, shelf: BlobAccess, send: Callable[[NodeId, AnyMessage], None]
    ) -> None:
        self.counts: Counter[str] = Counter()
        self.bytes_served = 0
        self._shelf = shelf
        self._send = send
        self._queues: dict[NodeId, deque[PieceWanted]] = {}
        self._serving: dict[NodeId, asyncio.Task[None]] = {}
        self._readers = asyncio.Semaphore(READERS_MAX)

    def ask(self, peer: NodeId, wanted: PieceWanted) -> None:
        """Queue a request; drop it if the queue is full, as the peer retries."""
        queue = self._queues.setdefault(peer, deque())
        if len(queue) >= QUESTIONS_MAX:
            self.counts["questions dropped"] += 1
            return
        queue.append(wanted)
        if peer not in self._serving:
            loop = asyncio.get_running_loop()
            self._serving[peer] = loop.create_task(self._serve(peer, queue))

    async def close(self) -> None:
        """Stop answering."""
        tasks = list(self._serving.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _serve(self, peer: NodeId, queue: deque[PieceWanted]) -> None:
        try:
            while queue:
                questions = _some(queue)
                async with self._readers:
                    answers = await asyncio.to_thread(self._read, questions)
                for answer in answers:
                    failpoints.reach("blob.served")
                    self._count(answer)
                    self._send(peer, answer)
        finally:
            del self._serving[peer]
            del self._queues[peer]

    def _count(self, answer: BlobPiece | PieceRefusal) -> None:
        if isinstance(answer, PieceRefusal):
            self.counts["refused"] += 1
        else:
            self.bytes_served += len(answer.data)

    def _read(self, questions: list[PieceWanted]) -> list[BlobPiece | PieceRefusal]:
        """Return the answers to some requests. Runs in a thread."""
        answers: list[BlobPiece | PieceRefusal] = []
        for wanted in questions:
            blob = wanted.blob
            found = self._shelf.pieces(blob, wanted.under, wanted.pieces)
            if isinstance(found, str):
                answers.append(PieceRefusal(blob=blob, reason=found))
                continue
            answers += (
                BlobPiece(blob=blob, level=level, index=index, data=data)
                for level, index, data in found
            )
        return answers


def _some(queue: deque[PieceWanted]) -> list[PieceWanted]:
    """Pop requests for one read: at least one, else up to `PIECES_AT_ONCE` pieces."""
    questions = [queue.popleft()]
    count = len(questions[0].pieces)
    while queue and count + len(queue[0].pieces) <= PIECES_AT_ONCE:
        count += len(queue[0].pieces)
        questions.append(queue.popleft())
    return questions
