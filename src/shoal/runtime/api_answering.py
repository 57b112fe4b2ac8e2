"""Answers calls that other nodes make at the API of this one.

Who may call what, `api.rights` decides. Here a call is refused if too many are open,
and ended as soon as its asker stops, is gone, or its grant does not hold any more.
"""

from __future__ import annotations

import asyncio
import traceback
from contextlib import aclosing
from typing import TYPE_CHECKING, Literal, NamedTuple, final

from shoal.core.api_calls import BEAT_S, CALLS_PER_PEER_MAX, OpenCalls
from shoal.protocol.api_calls import ApiPiece
from shoal.protocol.limits import OUTPUT_BYTES_MAX
from shoal.runtime.alarm import Alarm

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Iterator

    from shoal.core.api_calls import Key
    from shoal.core.membership import Admission
    from shoal.model.ids import NodeId
    from shoal.protocol.api_calls import ApiCall, ApiReceipt
    from shoal.protocol.messages import AnyMessage
    from shoal.runtime.api_asking import Answer

    Service = Callable[[Admission, str, bytes], AsyncGenerator[Answer]]
    """Answers a call of a member; an error is the last answer. Never raises."""

    Kind = Literal["part", "message", "error", "end", "refusal", "alive"]


class _Serving(NamedTuple):
    """What answers a call, and what tells it that there is room to go on."""

    task: asyncio.Task[None]
    room: asyncio.Event


@final
class Answering:
    """The calls that peers have open here, each a task."""

    def __init__(
        self,
        send: Callable[[NodeId, AnyMessage], None],
        admission: Callable[[NodeId], Admission | str],
    ) -> None:
        """Ask by `admission` what a linked peer may do now, or why nothing."""
        self.service: Service | None = None  # There is none before the API is up.
        self.book = OpenCalls()
        self._send = send
        self._admission = admission
        self._loop = asyncio.get_running_loop()
        self._serving: dict[Key, _Serving] = {}
        self._beat = Alarm(self._on_beat)

    def called(self, peer: NodeId, call: ApiCall) -> None:
        """Begin to answer."""
        key = (peer, call.number)
        opened = self.book.open(peer, call.number, self._loop.time())
        if opened == "full":
            reason = f"{CALLS_PER_PEER_MAX} calls are open, which is the most"
            refusal = ApiPiece(number=call.number, seq=0, kind="refusal", reason=reason)
            self._send(peer, refusal)
        elif opened == "opened":
            self._say(key, "alive")
            room = asyncio.Event()
            task = self._loop.create_task(self._answer(key, call, room))
            self._serving[key] = _Serving(task, room)
            self._beat.set_by(self._loop.time() + BEAT_S)

    def told(self, peer: NodeId, receipt: ApiReceipt) -> None:
        """Go on, or stop."""
        key, now = (peer, receipt.number), self._loop.time()
        if receipt.stop and key in self._serving:
            self._stop(key)
        elif receipt.stop:
            self.book.counts["stops too late"] += 1  # Often: who has enough hangs up.
        elif self.book.take(peer, receipt.number, receipt.taken, now):
            self._serving[key].room.set()

    def part(self, peer: NodeId) -> None:
        """End the calls of a peer whose link is gone, or new."""
        for key in self.book.part(peer):
            self._stop(key)

    async def close(self) -> None:
        """Answer nobody any more."""
        self._beat.stop()
        tasks = [one.task for one in self._serving.values()]
        for key in self.book:
            self._stop(key)
        await asyncio.gather(*tasks, return_exceptions=True)

    def _stop(self, key: Key) -> None:
        """Forget a call at once: a task may be cancelled before it has begun."""
        self.book.end(key)
        self._serving.pop(key).task.cancel()

    async def _answer(self, key: Key, call: ApiCall, room: asyncio.Event) -> None:
        try:
            await self._serve(key, call, room)
        except Exception as error:  # noqa: BLE001 - A peer gets an answer.
            traceback.print_exception(error)  # Into the node's log.
            self._refuse(key, f"a bug of the node: {type(error).__name__}")
        self.book.end(key)
        del self._serving[key]

    async def _serve(self, key: Key, call: ApiCall, room: asyncio.Event) -> None:
        admission = self._admission(key[0])
        if isinstance(admission, str):
            self._refuse(key, admission)
            return
        if self.service is None:
            self._refuse(key, "the node is starting; ask again")
            return
        async with aclosing(
            self.service(admission, call.method, call.request)
        ) as answers:
            async for kind, data in answers:
                if not await self._pass_on(key, kind, data, room) or kind == "error":
                    return
        self._say(key, "end")

    async def _pass_on(
        self,
        key: Key,
        kind: Literal["message", "error"],
        data: bytes,
        room: asyncio.Event,
    ) -> bool:
        """Send an answer, as fast as it is taken; return False if none may follow."""
        opened = self.book[key]
        for is_last, part in _cut(data):
            while not opened.has_room:
                room.clear()
                await room.wait()
            if isinstance(reason := self._admission(key[0]), str):
                self._refuse(key, reason)
                return False
            self._say(key, kind if is_last else "part", part)
            opened.sent += 1
        return True

    def _refuse(self, key: Key, reason: str) -> None:
        self.book.counts["calls refused"] += 1
        self._say(key, "refusal", reason=reason)

    def _say(self, key: Key, kind: Kind, data: bytes = b"", reason: str = "") -> None:
        peer, number = key
        seq = self.book[key].sent
        piece = ApiPiece(number=number, seq=seq, kind=kind, data=data, reason=reason)
        self._send(peer, piece)

    def _on_beat(self) -> None:
        """Say of each call that it goes on, and end those that nobody follows."""
        for key in self.book.silent(self._loop.time()):
            self.book.counts["calls ended, silent"] += 1
            self._stop(key)
        for key in self.book:
            if isinstance(reason := self._admission(key[0]), str):
                self._refuse(key, reason)
                self._stop(key)
            else:
                self._say(key, "alive")
        if len(self.book):
            self._beat.set(self._loop.time() + BEAT_S)


def _cut(data: bytes) -> Iterator[tuple[bool, bytes]]:
    """Return an answer in pieces, and which of them is the last."""
    for begin in range(0, len(data) or 1, OUTPUT_BYTES_MAX):
        end = begin + OUTPUT_BYTES_MAX
        yield end >= len(data), data[begin:end]
