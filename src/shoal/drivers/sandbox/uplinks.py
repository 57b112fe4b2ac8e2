"""Connect the network of a sandbox to the outside, from its supervisor.

Supervisors use this, so it may import only the standard library.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import time
from typing import TYPE_CHECKING, Final, final

from shoal.drivers.sandbox.privileges import call
from shoal.drivers.supervisor.process_tree import read_text

if TYPE_CHECKING:
    from collections.abc import Sequence

NEWUSER, NEWNET = 0x10000000, 0x40000000
NS_GET_USERNS: Final = 0xB701
EXIT_FD: Final = 3
MADE_S: Final = 10.0
LOOK_S: Final = 0.002


@final
class Uplink:
    """A program that connects a process's network; it ends with the supervisor."""

    def __init__(self, argv: Sequence[str], pid: int) -> None:
        """Start `argv` once process `pid` has its own network namespace."""
        _wait_for_network(pid)
        theirs, self._life = os.pipe2(os.O_CLOEXEC)
        self._pid = 0
        null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        files = ((null, 0), (null, 1), (null, 2), (theirs, EXIT_FD))
        try:
            self._pid = os.posix_spawn(
                argv[0],
                [text.replace("{pid}", str(pid)) for text in argv],
                {"PATH": "/usr/bin:/bin"},
                file_actions=[(os.POSIX_SPAWN_DUP2, fd, n) for fd, n in files],
                setsid=True,
                setsigmask=(),
                setsigdef=(signal.SIGPIPE, signal.SIGINT, signal.SIGTERM),
            )
        finally:
            os.close(theirs)
            os.close(null)

    def close(self) -> None:
        """Kill and reap the program."""
        os.close(self._life)
        with contextlib.suppress(ProcessLookupError, ChildProcessError):
            os.kill(self._pid, signal.SIGKILL)
            os.waitpid(self._pid, 0)


def _wait_for_network(pid: int) -> None:
    until = time.monotonic() + MADE_S
    ours = os.stat("/proc/self/ns/net").st_ino  # noqa: PTH116
    while not (
        os.stat(f"/proc/{pid}/ns/net").st_ino != ours  # noqa: PTH116
        # A new user namespace is unusable before its maps are written.
        and read_text(f"/proc/{pid}/uid_map")
        and read_text(f"/proc/{pid}/gid_map")
    ):
        if time.monotonic() > until:
            raise ValueError(f"no network was made within {MADE_S:g} s")
        time.sleep(LOOK_S)


def enter_from_outside(network: int, owner: int) -> bool:
    """Enter `network` if another user namespace than `owner` owns it.

    Return whether it did. A network of `owner` can only be entered after `owner`.
    """
    around = fcntl.ioctl(network, NS_GET_USERNS)
    try:
        if os.path.samestat(os.fstat(around), os.fstat(owner)):
            return False
        if os.geteuid() != 0:
            call("setns", around, NEWUSER)
        call("setns", network, NEWNET)
    finally:
        os.close(around)
    return True
