"""Make the mounts of a reusable sandbox, and hide the list of them from tasks.

`/proc/self/mountinfo` names the source folder of each mount, and so reveals where the
owner of the machine keeps things. It lists the mounts of a process's mount namespace
below its root. So a task runs in a mount namespace that holds one empty folder, while
its root is in another namespace: paths resolve through the root as usual, but the list
is empty, for the task and all its children.

Supervisors use this, so it may import only the standard library.
"""

from __future__ import annotations

import ctypes
import os
from typing import Final, final

from shoal.drivers.sandbox.privileges import call

BASE: Final = "/mnt"
"""Where the folder of all work directories is mounted, unless the node is root."""

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
"""Hidden from tasks, as in containers, or because it names keys, disks or shares."""

SETTINGS: Final = "/proc/sys"
READ_ONLY: Final = (SETTINGS, "/proc/bus", "/proc/irq", "/proc/sysrq-trigger")
"""Read-only because a task's uid owns some settings: those of its IPC namespace."""

NEWNS: Final = 0x20000
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_BIND = 1, 2, 4, 8, 4096
MS_REMOUNT, MS_REC, MS_PRIVATE = 32, 16384, 1 << 18
_MNT_DETACH: Final = 2
_SYS_OPEN_TREE, _SYS_MOVE_MOUNT = 428, 429
_SYS_FSOPEN, _SYS_FSCONFIG, _SYS_FSMOUNT = 430, 431, 432
_CREATE, _CLOEXEC = 6, 1
_AT_FDCWD: Final = -100
_OPEN_TREE_CLONE, _MOVE_EMPTY_PATH = 1, 4
_EMPTY: Final = "/tmp"  # noqa: S108 - Any folder would do.

_libc = ctypes.CDLL(None, use_errno=True)


def mount(
    source: bytes, place: str, kind: bytes, flags: int, options: bytes = b""
) -> None:
    """TaskMount `source` at `place`; an error names the place."""
    where = place.encode()
    try:
        call("mount", source, where, kind, ctypes.c_ulong(flags), options)
    except OSError as error:
        raise OSError(error.errno, f"{place}: {error.strerror}") from error


def unmount(place: str) -> None:
    """Unmount `place` if something is mounted there."""
    _libc.umount2(place.encode(), _MNT_DETACH)


def detached(directory: str) -> int:
    """Return a detached mount of a folder, to be attached elsewhere."""
    flags = _OPEN_TREE_CLONE | os.O_CLOEXEC
    path = os.fsencode(directory)
    return call("syscall", _SYS_OPEN_TREE, _AT_FDCWD, path, flags)


def attach(tree: int, place: str) -> None:
    """Attach a detached mount at `place`."""
    where, flags = place.encode(), _MOVE_EMPTY_PATH
    call("syscall", _SYS_MOVE_MOUNT, tree, b"", _AT_FDCWD, where, flags)


def mount_proc() -> int:
    """TaskMount `/proc` with the task's own processes, and mask details of the machine.

    Return a descriptor of `/proc/sys`, through which only the caller can write.
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


def message_queues() -> int:
    """Return the folder of POSIX message queues of our IPC namespace; -1 if unknown.

    It is mounted nowhere.
    """
    try:
        made = call("syscall", _SYS_FSOPEN, b"mqueue", _CLOEXEC)
        try:
            call("syscall", _SYS_FSCONFIG, made, _CREATE, None, None, 0)
            mounted = call("syscall", _SYS_FSMOUNT, made, _CLOEXEC, 0)
        finally:
            os.close(made)
        try:
            return os.open(".", os.O_RDONLY | os.O_CLOEXEC, dir_fd=mounted)
        finally:
            os.close(mounted)
    except OSError:
        return -1


@final
class Namespaces:
    """The mount namespaces of one sandbox, made by its furnisher in that of tasks."""

    def __init__(self, proc: int, *, root: bool) -> None:
        """Create them; a `root` furnisher gets work directories from outside.

        `proc` is the `/proc` that shows this process: that of the sandbox does not.
        """
        self._all = _here(proc)  # has the folder of all work directories
        if not root:
            call("unshare", NEWNS)
            unmount(BASE)
        self._tasks = _here(proc)
        call("unshare", NEWNS)
        self._empty = _here(proc)
        mount(b"tmpfs", _EMPTY, b"tmpfs", MS_NOSUID | MS_NODEV, b"size=4k,mode=555")
        os.chdir(_EMPTY)
        call("pivot_root", b".", b".")
        call("umount2", b".", _MNT_DETACH)
        self._enter(self._tasks)

    def work(self, name: str) -> int:
        """Return a detached mount of one work directory."""
        self._enter(self._all)
        try:
            return detached(f"{BASE}/{name}")
        finally:
            self._enter(self._tasks)

    def hide(self) -> None:
        """Move into the empty namespace, and keep the current root."""
        root = os.open("/", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        self._enter(self._empty)
        os.fchdir(root)
        os.chroot(".")
        os.close(root)

    @property
    def files(self) -> tuple[int, ...]:
        """The open descriptors."""
        return self._all, self._tasks, self._empty

    def close(self) -> None:
        """Close them: this process moves no more."""
        for fd in self.files:
            os.close(fd)

    def _enter(self, namespace: int) -> None:
        call("setns", namespace, NEWNS)


def _here(proc: int) -> int:
    return os.open("self/ns/mnt", os.O_RDONLY | os.O_CLOEXEC, dir_fd=proc)
