"""The mailbox of one attempt: letters it has sent, and letters it will read.

Letters of one sender are taken in the order in which they were sent. The sender
numbers its letters over all receivers, so a number alone does not show a gap. Each
letter therefore says after which other one it must be taken: the newest earlier letter
to the same receiver that has no receipt yet. A letter that comes too early is held,
without a receipt. Either the missing letter arrives, or the sender has given it up and
says so with the next copy of the held one.

So the number of the last letter taken is all that must be known of a sender: anything
up to it was taken before, or given up and overtaken, and is never delivered. A sender
is known by its task, which the scheduler vouches for, and by the first name of its
attempt, as another scheduler may give it a new one.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import TYPE_CHECKING, Final, Literal, final

import msgspec

from shoal.core.mail.events import DeliverLetters
from shoal.protocol.mail import Mail

if TYPE_CHECKING:
    from typing import TypeAlias

    from shoal.model.ids import Attempt, JobId, TaskId

    _Sender: TypeAlias = tuple[TaskId, Attempt]

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
        self.name = attempt  # by which the host knows it
        self.attempt = attempt  # its name now
        self.job = job
        self.closed = False
        self.under_way: dict[int, LetterUnderWay] = {}  # by number, which rises
        self.reads: dict[int, None] = {}  # calls that wait, by token
        self._seq = 0
        self._inbox: deque[tuple[TaskId, bytes]] = deque()
        self._held: dict[tuple[_Sender, int], Mail] = {}
        self._taken: OrderedDict[_Sender, int] = OrderedDict()  # by sender: the last
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
        origin = None if self.attempt == self.name else self.name
        return msgspec.structs.replace(
            mail, attempt=self.attempt, after=after, origin=origin
        )

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
        sender = _sender(mail)
        last = self._taken.get(sender, 0)
        if mail.seq <= last:
            return "taken"
        key = (sender, mail.seq)
        if mail.after > last:
            if len(self._held) < LETTERS_MAX or key in self._held:
                self._held[key] = mail
            return "early"
        if self._is_full():
            return "full"
        self._taken[sender] = mail.seq
        self._taken.move_to_end(sender)
        if len(self._taken) > SENDERS_MAX:
            self._taken.popitem(last=False)
        self._inbox.append((mail.sender, mail.data))
        for earlier in [key for key in self._held if _is_up_to(key, mail)]:
            del self._held[earlier]
        return "taken"

    def next_held(self, taken: Mail) -> Mail | None:
        """Return a letter that was held, and whose turn comes after this one."""
        sender = _sender(taken)
        last = self._taken.get(sender, 0)
        ready = [
            mail
            for mail in self._held.values()
            if _sender(mail) == sender and mail.after <= last
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


def _sender(mail: Mail) -> _Sender:
    return mail.sender, mail.origin or mail.attempt


def _is_up_to(key: tuple[_Sender, int], mail: Mail) -> bool:
    """Whether a letter is of the same sender as `mail`, and not later."""
    sender, seq = key
    return sender == _sender(mail) and seq <= mail.seq
