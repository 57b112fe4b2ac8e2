"""Mail calls of tasks become facts, and the answers of the machine come back."""

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest
from tests.runtime import virtual_time

from shoal.core.events import Event
from shoal.core.mail.events import (
    ConfirmLetter,
    DeliverLetters,
    LetterPosted,
    LettersWanted,
    RefuseMail,
)
from shoal.errors import ShoalError
from shoal.model.ids import Attempt, NodeId
from shoal.runtime.mail.mail_calls import MailCalls

ATTEMPT = Attempt(NodeId("otter"), 1, 1)


class Mailroom:
    """Remembers what the machine would be told."""

    def __init__(self) -> None:
        self.told: list[Event] = []
        self.calls = MailCalls(self.told.append)

    def begin(self, call: dict[str, object]) -> asyncio.Task[dict[str, object]]:
        return asyncio.ensure_future(self.calls.call(ATTEMPT, call))


def in_virtual_time(test: Coroutine[Any, Any, None]) -> None:
    virtual_time.run(test)


def test_a_call_is_answered_when_the_machine_says_so_and_not_before() -> None:
    async def story() -> None:
        room = Mailroom()
        reading = room.begin({"call": "receive", "wait_s": 9})
        sending = room.begin({"call": "send", "to": "main.1", "data": "aGk="})
        await asyncio.sleep(5)

        assert room.told == [
            LettersWanted(1, ATTEMPT, 9),
            LetterPosted(2, ATTEMPT, "main.1", b"hi"),
        ]
        assert not reading.done()
        room.calls.answer(ConfirmLetter(2, 7))
        assert await sending == {"sent": 7}
        room.calls.answer(DeliverLetters(1, (("main.1", b"hi"),), ("main.2",)))
        assert await reading == {
            "mail": [{"from": "main.1", "data": "aGk="}],
            "ended": ["main.2"],
        }

    in_virtual_time(story())


def test_a_refusal_is_an_error_of_the_call() -> None:
    async def story() -> None:
        room = Mailroom()
        sending = room.begin({"call": "send", "to": "main.1", "data": ""})
        await asyncio.sleep(0)

        room.calls.answer(RefuseMail(1, "no", because="never", hint="go"))

        with pytest.raises(ShoalError, match="no: never"):
            await sending

    in_virtual_time(story())


def test_an_answer_to_a_task_that_is_gone_is_dropped() -> None:
    async def story() -> None:
        room = Mailroom()
        reading = room.begin({"call": "receive", "wait_s": 9})
        await asyncio.sleep(0)
        reading.cancel()

        room.calls.answer(DeliverLetters(1))  # Cancelled, and not yet told so.
        await asyncio.sleep(0)
        room.calls.answer(DeliverLetters(1))

        assert reading.cancelled()

    in_virtual_time(story())


@pytest.mark.parametrize(
    ("call", "why"),
    [
        ({"call": "send", "to": 3, "data": ""}, "must be texts"),
        ({"call": "send", "to": "train.0", "data": "!"}, "not base64"),
        ({"call": "receive", "wait_s": "long"}, "not a number"),
    ],
)
def test_nonsense_is_answered_with_what_is_wrong(
    call: dict[str, object], why: str
) -> None:
    async def story() -> None:
        with pytest.raises(ShoalError, match=why):
            await Mailroom().begin(call)

    in_virtual_time(story())
