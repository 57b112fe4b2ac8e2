"""What the host tells the mail machine of its tasks, and what the machine asks for."""

from __future__ import annotations

import msgspec

from shoal.model.ids import Attempt, JobId, TaskId

# Events.


class MailOpened(msgspec.Struct, frozen=True):
    """An attempt runs here now and may send and receive."""

    attempt: Attempt
    task: TaskId
    job: JobId


class MailClosed(msgspec.Struct, frozen=True):
    """An attempt has ended: it sends and receives nothing more."""

    attempt: Attempt


class LetterPosted(msgspec.Struct, frozen=True):
    """A task sends `data` to the task of its job that is called `to` there.

    Answered by `ConfirmLetter` or `RefuseMail`, at once.
    """

    token: int
    attempt: Attempt
    to: str
    data: bytes


class LettersWanted(msgspec.Struct, frozen=True):
    """A task asks for its letters and waits this long if there are none.

    Answered by `DeliverLetters` or `RefuseMail`.
    """

    token: int
    attempt: Attempt
    wait_s: float = 0.0


MailEvent = MailOpened | MailClosed | LetterPosted | LettersWanted

# Effects.


class ConfirmLetter(msgspec.Struct, frozen=True):
    """Tell a task that its letter is on its way, under this number."""

    token: int
    seq: int


class DeliverLetters(msgspec.Struct, frozen=True):
    """Give a task its letters, each with the name of its sender within the job.

    `ended` names tasks that it wrote to and that will never read again.
    """

    token: int
    letters: tuple[tuple[str, bytes], ...] = ()
    ended: tuple[str, ...] = ()


class RefuseMail(msgspec.Struct, frozen=True):
    """Tell a task why its call had no effect."""

    token: int
    what: str
    because: str = ""
    hint: str = ""


MailEffect = ConfirmLetter | DeliverLetters | RefuseMail
