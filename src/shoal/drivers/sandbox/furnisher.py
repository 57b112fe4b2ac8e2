"""The furnisher: mounts the folders of each task of a reusable sandbox.

It is a fork of the supervisor in the mount namespace of the tasks, and the parent of
their keeper (`keeper.py`). It keeps the privileges in the outer user namespace that the
keeper gives up, and no task can see or signal it: it is outside their pid namespace.

Before a task enters, it mounts a new `/tmp`, a new `/dev/shm` and the work directory,
and answers with descriptors of the first two, whose use the supervisor measures. They
are unmounted after a task that left files there.

Supervisors use this, so it may import only the standard library.
"""

from __future__ import annotations

import os
import signal
import socket
from typing import TYPE_CHECKING, Final, NoReturn, final

from shoal.drivers.sandbox import mounts
from shoal.drivers.sandbox.privileges import call
from shoal.drivers.sandbox.room_frames import (
    FAILED,
    MESSAGE_BYTES_MAX,
    NOTHING,
    STARTED,
    RoomAnswer,
    pack_answer,
    unpack_furnishing,
)
from shoal.drivers.supervisor.frame_fields import FrameError

if TYPE_CHECKING:
    from shoal.drivers.sandbox.room_frames import Furnishing

WORK: Final = "/job"
"""The work directory inside: a name that hides no folder with users' programs."""

SCRATCH: Final = ("/dev/shm", "/tmp")  # noqa: S108 - Each task has its own.
SHOWN: Final = "/shown"
"""Where readable folders below `SCRATCH` are mounted, by number, until needed."""

_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE = 1, 4
_FLAGS: Final = mounts.MS_NOSUID | mounts.MS_NODEV


@final
class Furnisher:
    """Serves one supervisor until that is gone."""

    def __init__(self, line: socket.socket, namespaces: mounts.Namespaces) -> None:
        self._line = line
        self._namespaces = namespaces

    def serve(self) -> NoReturn:
        """Mount what the supervisor asks for, for one task after another."""
        call("prctl", _PR_SET_DUMPABLE, 0, 0, 0, 0)
        call("prctl", _PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        while True:
            data, fds, flags, _ = socket.recv_fds(self._line, MESSAGE_BYTES_MAX, 1)
            if not data:
                os._exit(0)
            try:
                if flags & socket.MSG_TRUNC:
                    raise FrameError("a furnishing is too long")
                scratch = self._obey(unpack_furnishing(data), fds[0] if fds else -1)
            except (OSError, FrameError) as error:
                self._line.send(pack_answer(RoomAnswer(FAILED, reason=str(error))))
            else:
                said = pack_answer(RoomAnswer(STARTED))
                socket.send_fds(self._line, [said], scratch)
                fds += scratch
            finally:
                for fd in fds:
                    os.close(fd)

    def _obey(self, wanted: Furnishing, tree: int) -> list[int]:
        """Mount what is wanted; return descriptors of the folders in memory."""
        for place in SCRATCH:
            mounts.unmount(place)  # Nothing is mounted before the first task.
        if wanted == NOTHING:
            return []
        self._furnish(wanted, tree)
        return [os.open(place, os.O_PATH | os.O_CLOEXEC) for place in SCRATCH]

    def _furnish(self, wanted: Furnishing, tree: int) -> None:
        size = b"mode=1777,size=%d" % max(1 << 20, wanted.scratch_bytes)
        for place in SCRATCH:
            mounts.mount(b"tmpfs", place, b"tmpfs", _FLAGS, size)
        for number, path in enumerate(wanted.shown):
            os.makedirs(path, exist_ok=True)  # noqa: PTH103
            mounts.mount(f"{SHOWN}/{number}".encode(), path, b"", mounts.MS_BIND)
        mounts.unmount(WORK)
        if tree >= 0:
            mounts.attach(tree, WORK)
            flags = _FLAGS | mounts.MS_REMOUNT | mounts.MS_BIND
            mounts.mount(b"none", WORK, b"", flags)
            return
        name = os.path.basename(wanted.directory)  # noqa: PTH119
        own = self._namespaces.work(name)
        mounts.attach(own, WORK)
        os.close(own)
