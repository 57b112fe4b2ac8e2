"""The mailbox of one attempt: letters it has sent, and letters it will read.

Letters of one sender are taken in the order in which they were sent. The sender
numbers its letters over all receivers, so a number alone does not show a gap. Each
letter therefore says after which other one it must be taken: the newest earlier letter
to the same receiver that has no receipt yet. A letter that comes too early is held,
without a receipt. Either the missing letter arrives, or the sender has given it up and
says so with the next copy of the held one.

So the number of the last letter taken is all that must be known of a sender: anything
up to it was taken before, or given up and overtaken, and is never delivered.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import TYPE_CHECKING, Final, Literal, final

import msgspec

from shoal.core.mail.events import DeliverLetters
from shoal.protocol.mail import Mail

if TYPE_CHECKING:
    from shoal.model.ids import Attempt, JobId, TaskId

LETTERS_MAX: Final = 256
"""Letters of one task that have no receipt; letters that it has not read; held ones."""

SENDERS_MAX: Final = 4_096
"""Attempts of which the last letter is remembered."""

ENDED_MAX: Final = 1_024
"""Ended tasks of which a task that does not ask is told later."""

READS_MAX: Final = 64
"""Calls of one task that wait for letters."""

ANSWER_BYTES_MAX: Final = 32_768
"""One answer to a task ends with the letter that reaches this size."""


class LetterUnderWay(msgspec.Struct):
    """A letter that has no receipt."""

    mail: Mail
    since: float
    tries: int = 0  # how often it was sent again


@final
class Mailbox:
    """All letters of one attempt that runs on this node."""

    def __init__(self, attempt: Attempt, job: JobId) -> None:
        self.attempt = attempt
        self.job = job
        self.closed = False
        self.under_way: dict[int, LetterUnderWay] = {}  # by number, which rises
        self.reads: dict[int, None] = {}  # calls that wait, by token
        self._seq = 0
        self._inbox: deque[tuple[TaskId, bytes]] = deque()
        self._held: dict[tuple[Attempt, int], Mail] = {}
        self._taken: OrderedDict[Attempt, int] = OrderedDict()  # by sender: the last
        self._ended: dict[str, None] = {}

    @property
    def has_news(self) -> bool:
        """Whether a call for letters can be answered now."""
        return bool(self._inbox or self._ended)

    def name_of(self, task: TaskId) -> str:
        """Return what a task of this job is called within the job."""
        return task.removeprefix(f"{self.job}.")

    # Sending.

    def can_send(self) -> bool:
        """Whether another letter may be under way."""
        return len(self.under_way) < LETTERS_MAX

    def post(self, to: TaskId, data: bytes, now: float) -> int:
        """Put a letter on its way; return its number."""
        self._seq += 1
        mail = Mail(attempt=self.attempt, seq=self._seq, to=to, data=data)
        self.under_way[self._seq] = LetterUnderWay(mail, since=now)
        return self._seq

    def copy_of(self, seq: int) -> Mail:
        """Return a letter as it is sent now: after which other one it comes changes."""
        mail = self.under_way[seq].mail
        after = 0
        for earlier, letter in self.under_way.items():
            if earlier >= seq:
                break
            if letter.mail.to == mail.to:
                after = earlier
        return msgspec.structs.replace(mail, after=after) if after else mail

    def settle(self, seq: int, *, ended: bool) -> None:
        """Forget a letter that was taken, or whose receiver has ended."""
        letter = self.under_way.pop(seq, None)
        if letter is not None and ended:
            self._ended[self.name_of(letter.mail.to)] = None
            if len(self._ended) > ENDED_MAX:
                del self._ended[next(iter(self._ended))]

    # Receiving.

    def receive(self, mail: Mail) -> Literal["taken", "full", "early"]:
        """Take a letter in, if it is new and its turn has come."""
        last = self._taken.get(mail.attempt, 0)
        if mail.seq <= last:
            return "taken"
        key = (mail.attempt, mail.seq)
        if mail.after > last:
            if len(self._held) < LETTERS_MAX or key in self._held:
                self._held[key] = mail
            return "early"
        if self._is_full():
            return "full"
        self._taken[mail.attempt] = mail.seq
        self._taken.move_to_end(mail.attempt)
        if len(self._taken) > SENDERS_MAX:
            self._taken.popitem(last=False)
        self._inbox.append((mail.sender, mail.data))
        for earlier in [key for key in self._held if _is_up_to(key, mail)]:
            del self._held[earlier]
        return "taken"

    def next_held(self, sender: Attempt) -> Mail | None:
        """Return a letter of this sender that was held and whose turn has come."""
        last = self._taken.get(sender, 0)
        ready = [
            mail
            for mail in self._held.values()
            if mail.attempt == sender and mail.after <= last
        ]
        return min(ready, key=lambda mail: mail.seq, default=None)

    def hand_out(self, token: int) -> DeliverLetters:
        """Answer a call for letters with what is here."""
        self.reads.pop(token, None)
        letters: list[tuple[str, bytes]] = []
        size = 0
        while self._inbox and (not letters or size < ANSWER_BYTES_MAX):
            sender, data = self._inbox.popleft()
            size += len(data)
            letters.append((self.name_of(sender), data))
        ended, self._ended = tuple(self._ended), {}
        return DeliverLetters(token, tuple(letters), ended)

    def close(self) -> None:
        """Receive nothing more; letters under way are still sent again."""
        self.closed = True
        self.reads.clear()
        self._inbox.clear()
        self._held.clear()

    def _is_full(self) -> bool:
        return len(self._inbox) >= LETTERS_MAX


def _is_up_to(key: tuple[Attempt, int], mail: Mail) -> bool:
    """Whether a letter is of the same sender as `mail`, and not later."""
    sender, seq = key
    return sender == mail.attempt and seq <= mail.seq
