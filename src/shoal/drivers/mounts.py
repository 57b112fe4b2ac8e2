"""Mounts of a sandbox that stays, and how a task sees them, but no list of them.

`/proc/self/mountinfo` tells for each mount which folder of its disk it shows, so where
the owner of the machine keeps things, and under which name. It lists the namespace of
mounts that a process is in, as far as its root reaches. So a task is put into a
namespace that holds one empty folder, with its root in another: paths lead through
that one as ever, and the list is empty, for it and for all that it starts.

Wardens use this, so it may import nothing but the standard library.
"""

from __future__ import annotations

import ctypes
import os
from typing import Final, final

from shoal.drivers.rights import call

BASE: Final = "/mnt"
"""Where the folder of all work directories is, if it is not root who mounts one."""

MASKED_FILES: Final = (
    "/proc/cmdline",
    "/proc/interrupts",
    "/proc/kcore",
    "/proc/key-users",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/sched_debug",
    "/proc/swaps",
    "/proc/timer_list",
)
MASKED_FOLDERS: Final = ("/proc/acpi", "/proc/asound", "/proc/fs", "/proc/scsi")
"""What containers hide too, and what names keys, disks and shares of the machine."""

SETTINGS: Final = "/proc/sys"
READ_ONLY: Final = (SETTINGS, "/proc/bus", "/proc/irq", "/proc/sysrq-trigger")
"""A task has the uid that owns some settings: those of its namespace of IPC."""

NEWNS: Final = 0x20000
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_BIND = 1, 2, 4, 8, 4096
MS_REMOUNT, MS_REC, MS_PRIVATE = 32, 16384, 1 << 18
_MNT_DETACH: Final = 2
_SYS_OPEN_TREE, _SYS_MOVE_MOUNT = 428, 429
_AT_FDCWD: Final = -100
_OPEN_TREE_CLONE, _MOVE_EMPTY_PATH = 1, 4
_EMPTY: Final = "/tmp"  # noqa: S108 - Any folder would do; nothing is put there.

_libc = ctypes.CDLL(None, use_errno=True)


def mount(
    source: bytes, place: str, kind: bytes, flags: int, options: bytes = b""
) -> None:
    """Mount something at a place; an error names the place."""
    where = place.encode()
    try:
        call("mount", source, where, kind, ctypes.c_ulong(flags), options)
    except OSError as error:
        raise OSError(error.errno, f"{place}: {error.strerror}") from error


def unmount(place: str) -> None:
    """Unmount what is at a place, if anything is."""
    _libc.umount2(place.encode(), _MNT_DETACH)


def detached(directory: str) -> int:
    """Return a mount of a folder that is in no namespace yet."""
    flags = _OPEN_TREE_CLONE | os.O_CLOEXEC
    path = os.fsencode(directory)
    return call("syscall", _SYS_OPEN_TREE, _AT_FDCWD, path, flags)


def attach(tree: int, place: str) -> None:
    """Mount what is detached."""
    where, flags = place.encode(), _MOVE_EMPTY_PATH
    call("syscall", _SYS_MOVE_MOUNT, tree, b"", _AT_FDCWD, where, flags)


def mount_proc() -> int:
    """Show a task its own processes, and not what it need not know of the machine.

    Return the folder of settings of the kernel, as only its holder can write to it.
    """
    flags = MS_NOSUID | MS_NODEV | MS_NOEXEC
    mount(b"proc", "/proc", b"proc", flags, b"hidepid=invisible")
    settings = os.open(SETTINGS, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    for path in READ_ONLY:
        if os.path.exists(path):  # noqa: PTH110
            mount(path.encode(), path, b"", MS_BIND)
            mount(b"none", path, b"", MS_REMOUNT | MS_BIND | MS_RDONLY | flags)
    for path in MASKED_FILES:
        if os.path.exists(path):  # noqa: PTH110
            mount(b"/dev/null", path, b"", MS_BIND)
    for path in MASKED_FOLDERS:
        if os.path.isdir(path):  # noqa: PTH112
            mount(b"tmpfs", path, b"tmpfs", flags | MS_RDONLY, b"size=4k,mode=555")
    return settings


@final
class Namespaces:
    """The namespaces of mounts of one sandbox. Its keeper is in that of the tasks."""

    def __init__(self, *, root: bool) -> None:
        """Make them; `root` is given work directories, and needs no folder of all."""
        self._all = _here()  # with the folder of all work directories
        if not root:
            call("unshare", NEWNS)
            unmount(BASE)
        self._tasks = _here()
        call("unshare", NEWNS)
        self._empty = _here()
        mount(b"tmpfs", _EMPTY, b"tmpfs", MS_NOSUID | MS_NODEV, b"size=4k,mode=555")
        os.chdir(_EMPTY)
        call("pivot_root", b".", b".")
        call("umount2", b".", _MNT_DETACH)
        self._enter(self._tasks)

    def work(self, name: str) -> int:
        """Return a mount of one work directory, which is in no namespace yet."""
        self._enter(self._all)
        try:
            return detached(f"{BASE}/{name}")
        finally:
            self._enter(self._tasks)

    def hide(self) -> None:
        """Leave the list of mounts behind, and keep what is mounted."""
        root = os.open("/", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        self._enter(self._empty)
        os.fchdir(root)
        os.chroot(".")
        os.close(root)

    def _enter(self, namespace: int) -> None:
        call("setns", namespace, NEWNS)


def _here() -> int:
    return os.open("/proc/self/ns/mnt", os.O_RDONLY | os.O_CLOEXEC)
