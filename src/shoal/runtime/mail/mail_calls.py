"""Mail calls of tasks: turned into facts for the mail machine, and answered by it."""

from __future__ import annotations

import asyncio
import base64
import functools
from typing import TYPE_CHECKING, Final, final

from shoal.core.mail.events import (
    ConfirmLetter,
    DeliverLetters,
    LetterPosted,
    LettersWanted,
    MailClosed,
    MailOpened,
    RefuseMail,
)
from shoal.errors import ShoalError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from shoal.core.events import Effect, Event
    from shoal.core.mail.events import MailEffect
    from shoal.drivers import Calls
    from shoal.model.ids import Attempt
    from shoal.model.job import Task

MAIL_CALLS: Final = ("send", "receive")
MAIL_ANSWERS: Final = (ConfirmLetter, DeliverLetters, RefuseMail)


@final
class MailCalls:
    """Holds each mail call of a task until the machine answers it."""

    def __init__(self, feed: Callable[[Event], None]) -> None:
        """Tell the machine facts by `feed`."""
        self._feed = feed
        self._token = 0
        self._waiting: dict[int, asyncio.Future[dict[str, object]]] = {}

    @property
    def performers(self) -> dict[type[Effect], Callable[..., None]]:
        """Who performs which effect of the mail machine."""
        return dict.fromkeys(MAIL_ANSWERS, self.answer)

    def open(self, attempt: Attempt, task: Task) -> None:
        """Let an attempt send and receive."""
        self._feed(MailOpened(attempt, task.id, task.job))

    def end(self, attempt: Attempt) -> None:
        """Receive nothing more for an attempt; its letters are still sent again."""
        self._feed(MailClosed(attempt))

    def calls_of(self, attempt: Attempt) -> Calls:
        """Return what answers the mail calls of an attempt between `open` and `end`."""
        return functools.partial(self.call, attempt)

    async def call(
        self, attempt: Attempt, call: Mapping[str, object]
    ) -> dict[str, object]:
        """Answer `send` or `receive`; raise `ShoalError` if it cannot be done."""
        self._token = token = self._token + 1
        event = _event_of(token, attempt, call)
        answer: asyncio.Future[dict[str, object]]
        answer = asyncio.get_running_loop().create_future()
        self._waiting[token] = answer
        try:
            self._feed(event)
            return await answer
        finally:
            del self._waiting[token]

    def answer(self, answer: MailEffect) -> None:
        """Answer a call, unless its task is gone."""
        waiting = self._waiting.get(answer.token)
        if waiting is None or waiting.done():
            return
        match answer:
            case ConfirmLetter():
                waiting.set_result({"sent": answer.seq})
            case RefuseMail():
                because, hint = answer.because, answer.hint
                error = ShoalError(answer.what, because=because, hint=hint)
                waiting.set_exception(error)
            case DeliverLetters():
                letters = [
                    {"from": sender, "data": base64.b64encode(data).decode()}
                    for sender, data in answer.letters
                ]
                waiting.set_result({"mail": letters, "ended": list(answer.ended)})


def _event_of(token: int, attempt: Attempt, call: Mapping[str, object]) -> Event:
    if call.get("call") == "send":
        to, text = call.get("to"), call.get("data")
        if not isinstance(to, str) or not isinstance(text, str):
            raise ShoalError("'to' and 'data' must be texts")
        try:
            data = base64.b64decode(text, validate=True)
        except ValueError as error:  # Of base64, or a letter beyond ASCII.
            raise ShoalError("'data' is not base64", because=str(error)) from error
        return LetterPosted(token, attempt, to, data)
    wait_s = call.get("wait_s", 0.0)
    if not isinstance(wait_s, int | float):
        raise ShoalError("'wait_s' is not a number")
    return LettersWanted(token, attempt, wait_s)
