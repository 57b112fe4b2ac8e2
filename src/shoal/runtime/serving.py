"""Answers members that ask for pieces: in turn, within limits, from the disk."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from typing import TYPE_CHECKING, Final, final

from shoal import failpoints
from shoal.protocol.pieces import BlobPiece, PieceRefusal

if TYPE_CHECKING:
    from collections.abc import Callable

    from shoal.model.ids import NodeId
    from shoal.protocol.messages import AnyMessage
    from shoal.protocol.pieces import PieceWanted
    from shoal.runtime.shelf import Shelf

QUESTIONS_MAX: Final = 1_024
"""Questions of one peer that wait; an honest one has fewer pieces under way."""

PIECES_AT_ONCE: Final = 64
READERS_MAX: Final = 4
"""Threads that read for others at a time: a node has other things to do."""


@final
class Serving:
    """One queue for each peer that asks; peers are served side by side."""

    def __init__(
        self, shelf: Shelf, send: Callable[[NodeId, AnyMessage], None]
    ) -> None:
        self.counts: Counter[str] = Counter()
        self.bytes_served = 0
        self._shelf = shelf
        self._send = send
        self._queues: dict[NodeId, deque[PieceWanted]] = {}
        self._serving: dict[NodeId, asyncio.Task[None]] = {}
        self._readers = asyncio.Semaphore(READERS_MAX)

    def ask(self, peer: NodeId, wanted: PieceWanted) -> None:
        """Take a question; beyond the limit it is dropped, and will be repeated."""
        queue = self._queues.setdefault(peer, deque())
        if len(queue) >= QUESTIONS_MAX:
            self.counts["questions dropped"] += 1
            return
        queue.append(wanted)
        if peer not in self._serving:
            loop = asyncio.get_running_loop()
            self._serving[peer] = loop.create_task(self._serve(peer, queue))

    async def close(self) -> None:
        """Answer nobody any more."""
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
        """Return all answers to some questions. In a thread."""
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
    """Take questions that are answered at once: one at least, and not many pieces."""
    questions = [queue.popleft()]
    count = len(questions[0].pieces)
    while queue and count + len(queue[0].pieces) <= PIECES_AT_ONCE:
        count += len(queue[0].pieces)
        questions.append(queue.popleft())
    return questions
