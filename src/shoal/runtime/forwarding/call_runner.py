"""Runs forwarded API calls: answers peers, and hands answers to clients.

`core.forwarding.forwarded_calls` decides everything; this does what it asks for.
"""

from __future__ import annotations

import asyncio
import traceback
from contextlib import aclosing
from typing import TYPE_CHECKING, Literal, NamedTuple, final

from shoal.core.forwarding.events import (
    AnswerTaken,
    CallAbandoned,
    CallAnswered,
    CallAsked,
    ContinueCall,
    DeliverAnswer,
    EndCall,
    RefuseCall,
    RunCall,
    StopCall,
)
from shoal.core.forwarding.forwarded_calls import ASKED_MAX
from shoal.errors import NotAllowedError, ShoalError, UnreachableError, UsageError
from shoal.net.identity.petname import petname
from shoal.protocol.limits import API_REQUEST_BYTES_MAX

Answer = tuple[Literal["message", "error"], bytes]

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Mapping

    from shoal.core.events import Effect, Event
    from shoal.core.membership.members import Admission
    from shoal.model.ids import NodeId

    Service = Callable[[Admission, str, bytes], AsyncGenerator[Answer]]
    """Answers a call of a member; an error is the last answer. Never raises."""

    Refuse = Callable[[Admission, str], bytes]
    """Returns the error for a member of another owner that called this method."""


class ApiAnswers(NamedTuple):
    """How the API of this node answers other nodes."""

    serve: Service
    refuse: Refuse


class _Run(NamedTuple):
    """A call that is answered here, and what tells it to go on."""

    task: asyncio.Task[None]
    room: asyncio.Event


@final
class CallRunner:
    """Performs the effects of the machine that carries calls."""

    def __init__(self, feed: Callable[[Event], None]) -> None:
        """Tell the machine facts by `feed`."""
        self._api: ApiAnswers | None = None  # There is none before the API is up.
        self._feed = feed
        self._runs: dict[int, _Run] = {}
        self._answers: dict[int, asyncio.Queue[DeliverAnswer | EndCall]] = {}
        self._token = 0

    @property
    def performers(self) -> Mapping[type[Effect], Callable[..., None]]:
        """What performs each effect of the machine."""
        return {
            RunCall: self._run,
            RefuseCall: self._refuse,
            ContinueCall: self._continue,
            StopCall: self._stop,
            DeliverAnswer: self._deliver,
            EndCall: self._deliver,
        }

    def open(self, api: ApiAnswers) -> None:
        """Answer other nodes by this API from now on."""
        self._api = api

    async def ask(
        self, peer: NodeId, method: str, request: bytes
    ) -> AsyncGenerator[Answer]:
        """Call a linked peer; yield its answers, and at last its error if there is one.

        Raises `ShoalError` if the call was not answered to its end. To stop before
        that, close the generator: that ends the call over there.
        """
        _check_length(request)
        self._token += 1
        token = self._token
        queue = self._answers[token] = asyncio.Queue()
        self._feed(CallAsked(token, peer, method, request))
        try:
            while isinstance(answer := await queue.get(), DeliverAnswer):
                self._feed(AnswerTaken(token))
                yield "message", answer.data
        finally:
            del self._answers[token]
            self._feed(CallAbandoned(token))
        if answer.kind == "error":
            yield "error", answer.data
        elif answer.kind != "end":
            raise _failure(peer, answer)

    async def close(self) -> None:
        """End all calls, both ways."""
        for token, queue in self._answers.items():
            queue.put_nowait(EndCall(token, "broken", reason="this node ends"))
        tasks = [run.task for run in self._runs.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _run(self, effect: RunCall) -> None:
        room = asyncio.Event()
        task = asyncio.get_running_loop().create_task(self._answer(effect, room))
        self._runs[effect.run] = _Run(task, room)
        task.add_done_callback(lambda _: self._runs.pop(effect.run, None))

    def _refuse(self, effect: RefuseCall) -> None:
        if self._api is None:
            self._feed(_too_early(effect.run))
        else:
            error = self._api.refuse(effect.caller, effect.method)
            self._feed(CallAnswered(effect.run, "error", error))

    def _continue(self, effect: ContinueCall) -> None:
        if (run := self._runs.get(effect.run)) is not None:
            run.room.set()

    def _stop(self, effect: StopCall) -> None:
        if (run := self._runs.get(effect.run)) is not None:
            run.task.cancel()

    def _deliver(self, effect: DeliverAnswer | EndCall) -> None:
        if (queue := self._answers.get(effect.token)) is not None:
            queue.put_nowait(effect)  # At most AHEAD_MAX wait: the machine sees to it.

    async def _answer(self, call: RunCall, room: asyncio.Event) -> None:
        if self._api is None:
            self._feed(_too_early(call.run))
            return
        serving = self._api.serve(call.caller, call.method, call.request)
        try:
            async with aclosing(serving) as answers:
                async for kind, data in answers:
                    self._feed(CallAnswered(call.run, kind, data))
                    if kind == "error":
                        return
                    await room.wait()
                    room.clear()
        except Exception as error:  # noqa: BLE001 - A peer gets an answer.
            traceback.print_exception(error)  # Into the node's log.
            reason = f"a bug of the node: {type(error).__name__}"
            self._feed(CallAnswered(call.run, "bug", reason=reason))
        else:
            self._feed(CallAnswered(call.run, "end"))


def _too_early(run: int) -> CallAnswered:
    return CallAnswered(run, "bug", reason="the node is starting; ask again")


def _check_length(request: bytes) -> None:
    if len(request) > API_REQUEST_BYTES_MAX:
        raise UsageError(
            f"a request of {len(request)} bytes is too long for another node",
            because=f"{API_REQUEST_BYTES_MAX} bytes are the most",
            hint="run the command on that node itself",
        )


def _failure(peer: NodeId, end: EndCall) -> ShoalError:
    name = petname(peer)
    if end.kind == "full":
        return ShoalError(
            f"{ASKED_MAX} calls to other nodes are under way",
            because="that is the most",
            hint="end some of the commands that follow a job of another node",
        )
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
