"""Asks the API of other nodes, for clients of this one."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, Literal, final

import msgspec

from shoal.core.api_calls import SILENT_S, Answers
from shoal.errors import NotAllowedError, ShoalError, UnreachableError, UsageError
from shoal.net.petname import petname
from shoal.protocol.api_calls import ApiCall, ApiReceipt
from shoal.protocol.limits import API_REQUEST_BYTES_MAX

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import AsyncGenerator, Callable

    from shoal.core.api_calls import End, Key
    from shoal.model.ids import NodeId
    from shoal.protocol.api_calls import ApiPiece
    from shoal.protocol.messages import AnyMessage

ASKED_MAX: Final = 256
"""Calls that clients of this node have under way elsewhere."""

HEARD_S: Final = 5.0
"""How long the other side has to say that it has heard a call."""

Answer = tuple[Literal["message", "error"], bytes]


class _Asked(msgspec.Struct):
    """A call that is under way."""

    answers: Answers
    news: asyncio.Event


@final
class Asking:
    """The calls that clients of this node make elsewhere."""

    def __init__(
        self, send: Callable[[NodeId, AnyMessage], None], counts: Counter[str]
    ) -> None:
        self._send = send
        self._counts = counts
        self._asked: dict[Key, _Asked] = {}
        self._number = 0

    async def ask(
        self, peer: NodeId, method: str, request: bytes
    ) -> AsyncGenerator[Answer]:
        """Call a linked peer; return its answers, at last an error if it says one.

        Raises `ShoalError` if the call was not answered to its end. Whoever stops
        before that ends the call over there.
        """
        self._check(request)
        self._number += 1
        key = (peer, self._number)
        asked = self._asked[key] = _Asked(Answers(), asyncio.Event())
        answers = asked.answers
        self._send(peer, ApiCall(number=key[1], method=method, request=request))
        try:
            while True:
                while len(answers):
                    data = answers.pop()
                    if answers.is_receipt_due():
                        self._tell(key, answers)
                    yield "message", data
                if (end := answers.end) is not None:
                    break
                await _news(asked)
        finally:
            del self._asked[key]
            if answers.end is None or answers.end.kind == "broken":
                self._tell(key, answers, stop=True)
        if end.kind == "error":
            yield "error", end.data
        elif end.kind != "end":
            raise _failed(peer, end)

    def received(self, peer: NodeId, piece: ApiPiece) -> None:
        """Take in a piece; one that nobody waits for is answered by a stop."""
        key = (peer, piece.number)
        asked = self._asked.get(key)
        if asked is None:
            self._counts["pieces for nobody"] += 1
            if piece.kind in ("part", "message", "alive"):
                stop = ApiReceipt(number=piece.number, taken=0, stop=True)
                self._send(peer, stop)
            return
        answers = asked.answers
        if not answers.put(piece):
            self._counts["pieces out of turn"] += 1
        elif piece.kind == "alive" or answers.is_receipt_due():
            self._tell(key, answers)
        asked.news.set()

    def part(self, peer: NodeId) -> None:
        """End the calls at a peer whose link is gone, or new."""
        for key, asked in self._asked.items():
            if key[0] == peer:
                asked.answers.break_off("the link to it broke")
                asked.news.set()

    def close(self) -> None:
        """End all calls."""
        for asked in self._asked.values():
            asked.answers.break_off("this node ends")
            asked.news.set()

    def _check(self, request: bytes) -> None:
        if len(request) > API_REQUEST_BYTES_MAX:
            raise UsageError(
                f"a request of {len(request)} bytes is too long for another node",
                because=f"{API_REQUEST_BYTES_MAX} bytes are the most",
                hint="run the command on that node itself",
            )
        if len(self._asked) >= ASKED_MAX:
            raise ShoalError(
                f"{ASKED_MAX} calls to other nodes are under way",
                because="that is the most",
                hint="end some of the commands that follow a job of another node",
            )

    def _tell(self, key: Key, answers: Answers, *, stop: bool = False) -> None:
        receipt = ApiReceipt(number=key[1], taken=answers.receipt(), stop=stop)
        self._send(key[0], receipt)


async def _news(asked: _Asked) -> None:
    """Wait for the next piece; break off if the other side has fallen silent."""
    limit_s = SILENT_S if asked.answers.heard else HEARD_S
    try:
        async with asyncio.timeout(limit_s):
            await asked.news.wait()
    except TimeoutError:
        why = f"nothing came from it for {limit_s:g} s"
        if not asked.answers.heard:
            why += "; it may run an older shoal, which cannot do this"
        asked.answers.break_off(why)
    asked.news.clear()


def _failed(peer: NodeId, end: End) -> ShoalError:
    name = petname(peer)
    if end.kind == "refusal":
        return NotAllowedError(
            f"{name} refused the call",
            because=end.reason,
            hint="`shoal ping` says whether it is there; on it, all commands work",
        )
    return UnreachableError(
        f"{name} did not answer to the end",
        because=end.reason,
        hint=f"`shoal ping {name}` says whether it is there; then ask again",
    )
