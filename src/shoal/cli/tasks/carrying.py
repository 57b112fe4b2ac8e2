"""Carries bytes between this terminal and a channel to a task.

One thread reads standard input, the main thread writes what comes back. The terminal
is raw while a program has it, so that every key goes there, and is restored however
that ends.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import signal
import stat
import sys
import termios
import threading
import tty
from typing import TYPE_CHECKING, Final

from shoal.api import shoal_pb2 as pb
from shoal.cli.display.task_output import Outs
from shoal.errors import ShoalError, UsageError
from shoal.protocol.channels import items

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator

    from shoal.api.client.client import TaskChannel

READ_BYTES: Final = items.BODY_BYTES_MAX


def target_of(job: str) -> pb.ChannelTarget:
    """Return what a user means by JOB or JOB/TASK."""
    job, _, task = job.partition("/")
    return pb.ChannelTarget(job=job or "last", task=task)


def _terminal_size() -> os.terminal_size:
    from shutil import get_terminal_size  # noqa: PLC0415 - Only for people.

    return get_terminal_size()


def terminal_here() -> pb.ChannelTerminal:
    """Return the size and kind of this terminal; raise if there is none."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UsageError(
            "there is no terminal here",
            because="-t needs standard input and output to be one",
            hint="leave -t out: input and output then go through pipes",
        )
    size = _terminal_size()
    kind = os.environ.get("TERM", "")
    return pb.ChannelTerminal(rows=size.lines, columns=size.columns, type=kind)


def has_input() -> bool:
    """Return whether standard input is a pipe or a file, and not empty for good."""
    try:
        fd = sys.stdin.fileno()
        found = os.fstat(fd)
        if stat.S_ISREG(found.st_mode):
            return os.lseek(fd, 0, os.SEEK_CUR) < found.st_size
        if not stat.S_ISFIFO(found.st_mode):
            return False
        poll = select.poll()
        poll.register(fd, select.POLLIN)
        return [(fd, select.POLLHUP)] != poll.poll(0)  # Nobody will write.
    except (OSError, ValueError):
        return False


def has_data() -> bool:
    """Return whether a pipe to this command has something in it that may be meant."""
    try:
        fd = sys.stdin.fileno()
        if not stat.S_ISFIFO(os.fstat(fd).st_mode):
            return False
        waiting = fcntl.ioctl(fd, termios.FIONREAD, b"\0" * 4)
    except (OSError, ValueError):
        return False
    return waiting != b"\0" * 4


def send(channel: TaskChannel, *what: bytes) -> None:
    """Send items; what a channel that is over does not take is lost."""
    with contextlib.suppress(OSError):
        channel.send(pb.ChannelRequest(items=what))


def feed_input(channel: TaskChannel) -> None:
    """Send standard input to its end, in the background."""
    threading.Thread(target=_feed, args=(channel,), daemon=True).start()


def _feed(channel: TaskChannel) -> None:
    fd = sys.stdin.fileno()
    with contextlib.suppress(OSError):
        while data := os.read(fd, READ_BYTES):
            channel.send(pb.ChannelRequest(items=[items.DATA + data]))
        channel.send(pb.ChannelRequest(items=[items.EOF]))


@contextlib.contextmanager
def raw_terminal(
    resized: Callable[[int, int], None], *, stops: bool = True
) -> Generator[None]:
    """Give every key to a program, and tell it when the window changes its size.

    `stops`: signals that end a command end this one.
    """
    fd = sys.stdin.fileno()
    before = termios.tcgetattr(fd)

    def tell(_number: int, _frame: object) -> None:
        size = _terminal_size()
        resized(size.lines, size.columns)

    def stop(number: int, _frame: object) -> None:
        raise SystemExit(128 + number)

    ends = {signal.SIGTERM: stop, signal.SIGHUP: stop} if stops else {}
    handlers = {signal.SIGWINCH: tell, **ends}
    tty.setraw(fd, termios.TCSADRAIN)  # Not FLUSH: keep what was typed ahead.
    old = {number: signal.signal(number, do) for number, do in handlers.items()}
    try:
        yield
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)
        with contextlib.suppress(termios.error):  # As when the window was closed.
            termios.tcsetattr(fd, termios.TCSADRAIN, before)


def on_terminal(channel: TaskChannel) -> int | None:
    """Let a program have this terminal; return its exit code, if it has one."""
    with raw_terminal(lambda rows, cols: send(channel, items.resize(rows, cols))):
        feed_input(channel)
        return _shown(channel, write_raw)


def on_pipes(channel: TaskChannel, *, with_input: bool, raw: bool) -> int | None:
    """Let a program have our pipes; return its exit code, if it has one."""
    if with_input:
        feed_input(channel)
    else:
        send(channel, items.EOF)
    outs = Outs(raw=raw)
    try:
        return _shown(channel, outs.write)
    finally:
        outs.close()


def write_raw(_stream: int, data: bytes) -> None:
    """Write what a program shows on its terminal to ours, as it is."""
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


def _shown(channel: TaskChannel, write: Callable[[int, bytes], None]) -> int | None:
    for kind, body in heard(channel):
        if kind == items.DATA:
            write(pb.STREAM_STDOUT, body)
        elif kind == items.ERRORS:
            write(pb.STREAM_STDERR, body)
        elif kind == items.EXIT:
            return items.code_of(body)
    return None


def heard(channel: TaskChannel) -> Iterator[tuple[bytes, bytes]]:
    """Yield kind and body of each item; raise if the worker refuses."""
    return parts(channel.replies(pb.ChannelReply))


def parts(replies: Iterable[pb.ChannelReply]) -> Iterator[tuple[bytes, bytes]]:
    """Yield kind and body of each item in some replies; raise at a refusal."""
    for reply in replies:
        for item in reply.items:
            if item[:1] == items.FAILED:
                what, because, hint = items.reasons_of(item[1:])
                raise ShoalError(what, because=because, hint=hint)
            yield item[:1], item[1:]


def broken_off(job: str) -> ShoalError:
    """Return the error for a program whose exit code never came."""
    return ShoalError(
        "the program ended without an exit code",
        because="the channel to it ended, and so did the program",
        hint=f"`shoal show {job}` says whether the task still runs",
    )
