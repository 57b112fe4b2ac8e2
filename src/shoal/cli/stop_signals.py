"""Signals that stop a foreground command: Ctrl-C, SIGTERM, a closed terminal."""

from __future__ import annotations

import errno
import signal
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Generator
    from types import FrameType

REASONS: Final = {
    signal.SIGINT: "Ctrl-C in shoal run",
    signal.SIGTERM: "SIGTERM to shoal run",
    signal.SIGHUP: "the terminal of shoal run was closed",
}
UNREAD: Final = "the output of shoal run was closed"

AGAIN_S: Final = 0.5
"""A Ctrl-C this long after the first signal is a second one."""


class StopSignal(KeyboardInterrupt):
    """The command was stopped by a signal; the text says which."""


@contextmanager
def stopped_by_signals() -> Generator[None]:
    """Raise `StopSignal` at the first signal that ends a command, and at no other.

    Signals come in pairs: from a shell and its terminal, or from a service manager.
    Only a second Ctrl-C, some time later, interrupts as usual. Ignored signals stay
    ignored, as with `nohup`.
    """
    first_s: float | None = None

    def heed(number: int, _frame: FrameType | None) -> None:
        nonlocal first_s
        now_s = time.monotonic()
        if first_s is None:
            first_s = now_s
            raise StopSignal(REASONS[signal.Signals(number)])
        if number == signal.SIGINT and now_s - first_s > AGAIN_S:
            raise KeyboardInterrupt

    before = {number: signal.getsignal(number) for number in REASONS}
    heard = {n: old for n, old in before.items() if old is not signal.SIG_IGN}
    for number in heard:
        signal.signal(number, heed)
    try:
        yield
    finally:
        if first_s is None:  # Else nobody wants this to go on.
            for number, handler in heard.items():
                signal.signal(number, handler)


def is_unread(error: OSError) -> bool:
    """Whether output failed because its reader, or its terminal, has gone."""
    return error.errno in (errno.EPIPE, errno.EIO)
