"""Find, notify and kill the descendants of a process.

Supervisors use this, so it may import only the standard library.
"""

from __future__ import annotations

import contextlib
import os
import signal
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

HEARD: Final = (
    signal.SIGPIPE,
    signal.SIGINT,
    signal.SIGQUIT,
    signal.SIGTERM,
    signal.SIGHUP,
)
"""Signals that end a task as usual, though its node was told to ignore some of them:
by `nohup`, or by a shell that started it in the background."""

FREEZE_PASSES_MAX: Final = 50
KILL_PAUSE_S: Final = 0.02
OPEN_FILES_MAX: Final = 4_096
"""Most open files of a task that are examined in one pass."""


def read_text(path: str) -> str:
    """Return the text of a /proc file; empty if the process is gone."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:  # noqa: PTH123
            return file.read()
    except OSError:
        return ""


def _children(pid: int) -> list[int]:
    try:
        threads = os.listdir(f"/proc/{pid}/task")  # noqa: PTH208
    except OSError:
        return []
    texts = [read_text(f"/proc/{pid}/task/{thread}/children") for thread in threads]
    return [int(child) for text in texts for child in text.split()]


def descendants(pid: int) -> list[int]:
    """Return all descendants of `pid`, parents before children."""
    found = _children(pid)
    for each in found:  # grows while we walk
        found += _children(each)
    return found


def open_files(pids: Sequence[int]) -> Iterator[str]:
    """Yield the /proc paths of open files, at most `OPEN_FILES_MAX` of them."""
    left = OPEN_FILES_MAX
    for pid in pids:
        try:
            names = os.listdir(f"/proc/{pid}/fd")[:left]  # noqa: PTH208
        except OSError:
            continue
        left -= len(names)
        for name in names:
            yield f"/proc/{pid}/fd/{name}"


def _signal(pids: Sequence[int], number: int) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def kill_all_below() -> None:
    """Kill and reap all descendants of this process, however fast they fork.

    Waits for processes stuck in the kernel, since their devices are not free before.
    """
    if not _reap():
        return
    me = os.getpid()
    _freeze(me)
    while _reap():
        _signal(descendants(me), signal.SIGKILL)
        signal.sigtimedwait([signal.SIGCHLD], KILL_PAUSE_S)


def _freeze(root: int) -> None:
    """Send SIGSTOP to all descendants of `root` until no new one appears.

    Each is stopped before its children are listed, so that the list is complete.
    """
    stopped: set[int] = set()
    for _ in range(FREEZE_PASSES_MAX):
        before = len(stopped)
        walked = [root]
        for pid in walked:  # grows while we walk
            children = _children(pid)
            _signal(
                [child for child in children if child not in stopped], signal.SIGSTOP
            )
            stopped.update(children)
            walked += children
        if len(stopped) == before:
            return


def _reap() -> bool:
    """Reap dead children; return whether any child is left."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return False
    return True


def give_notice(main: int, *, boxed: bool) -> None:
    """Send SIGTERM to the group of `main`, or if `boxed`, to all processes inside.

    Bubblewrap itself is outside; a signal to it would kill the task without grace.
    """
    if not boxed:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(main, signal.SIGTERM)
        return
    depth = len(_numbers("self"))
    for pid in descendants(main):
        numbers = _numbers(pid)
        if len(numbers) > depth and numbers[-1] != "1":
            _signal([pid], signal.SIGTERM)


def _numbers(pid: int | str) -> list[str]:
    """Return the pids of a process in each of its pid namespaces, ours first."""
    return (
        read_text(f"/proc/{pid}/status").partition("NSpid:")[2].split("\n")[0].split()
    )
