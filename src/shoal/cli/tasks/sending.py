"""Sends standard input of this command to the task of a job, while that runs.

One thread waits for the task and hears what becomes of the channel, another reads. A
task that runs a second time needs its input a second time: a file is read again from
where it began, and of a pipe that was read the job is cancelled.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import stat
import sys
import threading
from typing import TYPE_CHECKING, Any, Final, final

from shoal.api import shoal_pb2 as pb
from shoal.cli.display.printing import has_ended
from shoal.cli.options import talk
from shoal.cli.tasks import carrying
from shoal.errors import ShoalError, UnreachableError
from shoal.protocol.channels import items

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from shoal.api.client.client import Client, TaskChannel

    Show = Callable[[Iterable[pb.LogPiece]], None]

AGAIN_S: Final = 0.5
TOLD_S: Final = 2.0
READ_ONCE: Final = (
    "its task starts again, and its standard input, which was read from a pipe, cannot "
    "be read again"
)
SHELL_LOST: Final = "its terminal was lost with the attempt that had it"


def with_stdin(spec: str, *, asked: bool, tty: bool, quiet: bool) -> str:
    """Return a spec, as JSON, whose task reads what this command is given.

    That is a terminal, or standard input if the user `asked` for it or it is a pipe or
    a file. Raises `SpecError` if the user asked and the job cannot have one.
    """
    if not (asked or tty or carrying.has_input()):
        return spec
    from shoal.model.spec.canonical import (  # noqa: PLC0415 - Takes a third of a run.
        why_no_stdin,
    )
    from shoal.model.spec.submission import load_spec  # noqa: PLC0415 - Likewise.

    document: dict[str, Any] = json.loads(spec)
    given = load_spec(spec, "json")
    if not (asked or tty) and (why := why_no_stdin(given)):
        if carrying.has_data():
            talk(f"note: standard input is not sent: {why}", quiet=quiet)
        return spec
    document["stdin"] = "terminal" if tty else "pipe"
    if tty and "TERM" in os.environ:
        document["env"] = {"TERM": os.environ["TERM"], **document.get("env", {})}
    text = json.dumps(document)
    load_spec(text, "json")  # Raises if it cannot.
    return text


def sending(
    client: Client,
    job: str,
    show: Show,
    terminal: pb.ChannelTerminal | None,
    telling: threading.Thread,
) -> Show:
    """Begin to send a job its input; return what shows its output meanwhile.

    A terminal is left to the task once that has it, and `telling` has told.
    """
    sender = InputSender(client, job, terminal)
    sender.start()
    if terminal is None:
        return show

    def on_terminal(pieces: Iterable[pb.LogPiece]) -> None:
        sender.wait()
        telling.join(TOLD_S)
        last = b"\n"
        try:
            with carrying.raw_terminal(sender.resize, stops=False):
                for piece in pieces:
                    carrying.write_raw(piece.stream, piece.data)
                    last = piece.data
        finally:
            if not last.endswith(b"\n"):
                talk("")

    return on_terminal


@final
class InputSender:
    """The standard input of this command, on its way to the task of a job."""

    def __init__(
        self, client: Client, job: str, terminal: pb.ChannelTerminal | None = None
    ) -> None:
        self._client = client
        self._job = job
        self._terminal = terminal
        self._fd = sys.stdin.fileno()
        self._begin = _place(self._fd)  # where a file was when we got it
        self._sent = 0
        self._channel: TaskChannel | None = None
        self._answered = threading.Event()  # the task takes input, or it never will

    def start(self) -> None:
        """Begin, in the background."""
        threading.Thread(target=self._serve, daemon=True).start()

    def wait(self) -> None:
        """Wait until the task takes input, or never will."""
        self._answered.wait()

    def resize(self, rows: int, columns: int) -> None:
        """Tell the task the size of the terminal."""
        if (channel := self._channel) is not None:
            carrying.send(channel, items.resize(rows, columns))

    def _serve(self) -> None:
        after = ""
        try:
            while True:
                try:
                    after = self._serve_attempt(after)
                except UnreachableError:
                    return  # The main thread meets it as well.
                except ShoalError as error:
                    if has_ended(self._client.get(self._job, tasks_max=1)):
                        return
                    talk(f"note: {error}")
                    threading.Event().wait(AGAIN_S)
        except ShoalError:
            return  # Likewise.
        finally:
            self._answered.set()

    def _serve_attempt(self, after: str) -> str:
        """Send one attempt its input; return which that was, once it takes no more."""
        asked = pb.ChannelInput(after=after, terminal=self._terminal)
        channel = self._client.channel(pb.ChannelTarget(job=self._job, input=asked))
        attempt = ""
        try:
            replies = iter(channel.replies(pb.ChannelReply))
            attempt = next(replies).attempt
            if after and (why := self._why_not_again()):
                self._client.cancel(self._job, why)
            else:
                self._carry(channel, replies)
        except ShoalError:
            if self._channel is None:
                raise
            return attempt  # It was cut off: perhaps there is another attempt.
        finally:
            self._channel = None
            channel.close()
        return attempt

    def _carry(self, channel: TaskChannel, replies: Iterator[pb.ChannelReply]) -> None:
        woken, wake = os.pipe()
        reading = threading.Thread(target=self._read, args=(channel, woken))
        try:
            for kind, body in carrying.parts(replies):
                if kind == items.READY:
                    self._channel = channel
                    self._answered.set()
                    reading.start()
                del body
        finally:
            os.close(wake)
            if reading.ident is not None:
                reading.join()
            os.close(woken)

    def _read(self, channel: TaskChannel, woken: int) -> None:
        """Send what is read until its end, or until nobody wants it any more."""
        with contextlib.suppress(OSError):
            while True:
                ready, _, _ = select.select([self._fd, woken], [], [])
                if woken in ready:
                    return
                data = os.read(self._fd, carrying.READ_BYTES)
                if not data:
                    channel.send(pb.ChannelRequest(items=[items.EOF]))
                    return
                self._sent += len(data)
                channel.send(pb.ChannelRequest(items=[items.DATA + data]))

    def _why_not_again(self) -> str:
        """Go back to the beginning of the input; return why that cannot be done."""
        if self._terminal is not None:
            return SHELL_LOST
        if self._sent == 0:
            return ""
        if self._begin is None:
            return READ_ONCE
        os.lseek(self._fd, self._begin, os.SEEK_SET)
        self._sent = 0
        return ""


def _place(fd: int) -> int | None:
    """Return where a file is read from next; None if it is no file."""
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        return None
    return os.lseek(fd, 0, os.SEEK_CUR)
