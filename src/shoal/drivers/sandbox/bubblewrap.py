"""Build bubblewrap commands that confine tasks to their work directory and devices.

Inside are system folders (read-only), the work directory (`/job`), the task's devices,
its own `/tmp` and `/dev/shm`, and its socket to the worker. A task has its own pid
namespace, its own network (none, unless the job asks for one), no home, and no
capability or way to gain one. It dies with its supervisor.

A root node gives each slot its own uid. That uid may be unable to reach the work
directory and readable folders, such as those below root's home, so an outer bubblewrap
first mounts them in a place that it can reach.

Where the kernel allows it, bubblewrap builds one sandbox for each supervisor, which
tasks enter (`rooms.py`); elsewhere it builds one for each task.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from shoal.drivers.sandbox import furnisher, mounts, seccomp
from shoal.drivers.sandbox.furnisher import SCRATCH, SHOWN
from shoal.drivers.sandbox.keeper import INNER_UID
from shoal.drivers.sandbox.names import HOSTNAME, Names
from shoal.drivers.sandbox.rooms import (
    ARGS_FD,
    FILTER_FD,
    INFO_FD,
    SLEEPER,
    TRIAL,
    in_memory,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

WORK: Final = furnisher.WORK
SOCKET: Final = "/run/shoal.sock"
OUTER: Final = "/mnt"
TASK_UID_FIRST: Final = 1_900_000_000
"""First of the slots' uids, above those of users, services and containers."""

TRY: Final = """
import sys
for name in ("shoal", "shoal.drivers"):
    sys.modules[name] = type(sys)(name)
sys.modules["shoal.drivers"].__path__ = [sys.argv[1]]
from shoal.drivers.sandbox.rooms import try_out
try_out(sys.argv[2], sys.argv[3:])
"""
"""Tests a reusable sandbox in a new process: only a single thread may enter one."""

PROCESSES_MAX: Final = 4_096
SCRATCH_BYTES_DEFAULT: Final = 4 << 30
PROBE_TIMEOUT_S: Final = 30.0
SYSTEM: Final = ("/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
SETTINGS: Final = (
    "/etc/alternatives",
    "/etc/ca-certificates",
    "/etc/ld.so.cache",
    "/etc/ld.so.conf",
    "/etc/ld.so.conf.d",
    "/etc/localtime",
    "/etc/OpenCL",
    "/etc/pki/tls/certs",
    "/etc/ssl/certs",
)
MACHINE: Final = ("/sys/devices/system/cpu", "/sys/devices/system/node")
GPU_MACHINE: Final = ("/sys/bus/pci", "/sys/class/drm", "/sys/devices", "/sys/module")

GPU_MASKED: Final = ("/sys/devices/virtual/dmi", "/sys/devices/virtual/powercap")
"""Serial numbers, and power use, which reveals what other processes compute."""


class Box(msgspec.Struct, frozen=True, kw_only=True):
    """What one task gets to see; `readable` are folders besides the system's.

    `directory` is its work directory; for a reusable sandbox, the folder of all.
    """

    directory: str
    socket: str = ""
    devices: tuple[str, ...] = ()
    readable: tuple[str, ...] = ()
    mounts: tuple[tuple[str, str, bool], ...] = ()  # source, place, whether writable
    network: bool = False
    names: Names = ()  # files by which it resolves names
    scratch_bytes: int = SCRATCH_BYTES_DEFAULT
    slot: int = 0


class Sandbox(msgspec.Struct, frozen=True, kw_only=True):
    """A tested way to run bubblewrap on this machine."""

    bwrap: str
    prlimit: str = ""  # empty: the number of processes is not limited
    setpriv: str = ""  # empty: tasks keep the uid of the node
    closed: bool = True  # user namespaces are disabled inside
    stays: bool = False  # reusable: one per supervisor, which tasks enter
    processes_max: int = PROCESSES_MAX

    @property
    def not_isolated(self) -> tuple[str, ...]:
        """Gaps in the isolation of tasks, one sentence each."""
        said = ["a task shares the kernel and the GPU driver with the machine"]
        if os.geteuid() == 0 and not self.setpriv:
            said += [
                "tasks are root in their namespaces, since no other uid works here",
                "the number of processes of a task has no limit",
            ]
        elif not self.prlimit and not self.stays:
            said.append("the number of processes of a task has no limit: no prlimit")
        if not self.stays:
            said.append("a task can read where its folders lie on this machine")
        if not seccomp.PROGRAM:
            said.append("system calls of a task are not filtered on such a machine")
            if not self.closed and not self.stays:
                said.append("a task may make namespaces of its own: bubblewrap is old")
        return tuple(said)

    @property
    def processes_most(self) -> int:
        """Process limit of a task in a reusable sandbox; 0 means none."""
        has_uid = os.geteuid() != 0 or bool(self.setpriv)
        return self.processes_max if has_uid else 0

    def uid_of(self, slot: int) -> int | None:
        """Return the uid that must own work directory and socket; None for ours."""
        return TASK_UID_FIRST + slot if self.setpriv else None

    def _moved(self, box: Box, directory: str) -> Box:
        """Return what the inner bubblewrap mounts: what the outer one has put there."""
        return msgspec.structs.replace(
            box,
            directory=directory,
            socket=f"{OUTER}/task.sock" if box.socket else "",
            names=_reachable(box.names),
            mounts=tuple(
                (f"{OUTER}/mount{n}", place, writable)
                for n, (_, place, writable) in enumerate(box.mounts)
            ),
        )

    def room(self, box: Box) -> list[str]:
        """Return the command that builds a reusable sandbox."""
        if not self.setpriv:
            shown = {path: path for path in box.readable}
            directory = "" if os.geteuid() == 0 else box.directory
            own = msgspec.structs.replace(box, directory=directory)
            return [*self._inner(own, shown, stays=True), "--", SLEEPER]
        moved = self._moved(box, "")
        shown = {path: f"{OUTER}/{n}" for n, path in enumerate(box.readable)}
        outer = self._outer(msgspec.structs.replace(box, directory=""), shown)
        return [*outer, *self._inner(moved, shown, stays=True), "--", SLEEPER]

    def argv(
        self, box: Box, argv: Sequence[str], fds: tuple[int, int] = (ARGS_FD, FILTER_FD)
    ) -> list[str]:
        """Return the command that runs `argv` in a one-task sandbox.

        It reads further arguments and the system-call filter from `fds`.
        """
        program = list(argv)
        if self.prlimit:
            program = [self.prlimit, f"--nproc={self.processes_max}", "--", *program]
        if not self.setpriv:
            shown = {path: path for path in box.readable}
            return [*self._inner(box, shown), *_given(fds), "--", *program]
        moved = self._moved(box, f"{OUTER}/work")
        shown = {path: f"{OUTER}/{n}" for n, path in enumerate(box.readable)}
        inner = self._inner(moved, shown)
        return [*self._outer(box, shown), *inner, *_given(fds), "--", *program]

    def _outer(self, box: Box, shown: dict[str, str]) -> list[str]:
        uid = str(self.uid_of(box.slot))
        binds: list[str] = []
        if box.directory:
            work = f"{OUTER}/work"
            binds += ["--dir", work, "--bind", box.directory, work]
        if box.socket:
            binds += ["--bind", box.socket, f"{OUTER}/task.sock"]
        for (_, file), (_, place) in zip(box.names, _reachable(box.names), strict=True):
            binds += ["--ro-bind", file, place]
        for path, place in shown.items():
            binds += ["--ro-bind-try", path, place]
        for n, (source, _, writable) in enumerate(box.mounts):
            binds += _bind(source, f"{OUTER}/mount{n}", writable=writable)
        return [
            *(self.bwrap, "--die-with-parent", "--dev-bind", "/", "/"),
            *("--tmpfs", OUTER, *binds, "--chdir", "/", "--"),
            *(self.setpriv, "--reuid", uid, "--regid", uid, "--clear-groups"),
            *("--inh-caps=-all", "--bounding-set=-all", "--"),
        ]

    def _inner(
        self, box: Box, shown: dict[str, str], *, stays: bool = False
    ) -> list[str]:
        """Return the inner command; `shown` maps readable folders to where they are."""
        uid = str(INNER_UID)
        return [
            *(self.bwrap, "--unshare-all", "--unshare-user", "--die-with-parent"),
            *("--new-session", "--cap-drop", "ALL", "--hostname", HOSTNAME),
            *("--uid", uid, "--gid", uid),
            *(["--disable-userns"] if self.closed and not stays else []),
            *(["--info-fd", str(INFO_FD)] if stays else []),
            *(["--share-net"] if box.network else []),
            *_system(),
            *_read_only(SETTINGS),
            *(t for place, file in box.names for t in ("--ro-bind", file, place)),
            *("--proc", "/proc", "--dev", "/dev"),
            *(_masked() if not stays else ()),
            *_devices(box.devices),
            *(_scratch(box) if not stays else ("--dir", "/tmp")),  # noqa: S108
            *_shown(box, shown, stays=stays),
            *(t for at, to, rw in box.mounts for t in _bind(at, to, writable=rw)),
            *(_places(box) if stays else ("--bind", box.directory, WORK)),
            *("--chdir", WORK),
            *(["--bind", box.socket, SOCKET] if box.socket else []),
            *("--remount-ro", "/dev", "--remount-ro", "/"),
        ]


def _bind(source: str, place: str, *, writable: bool) -> tuple[str, str, str]:
    return ("--bind" if writable else "--ro-bind", source, place)


def _given(fds: tuple[int, int]) -> list[str]:
    args, rules = map(str, fds)
    return ["--args", args, *(["--seccomp", rules] if seccomp.PROGRAM else [])]


def _masked() -> list[str]:
    args = _read_only(mounts.READ_ONLY)
    for path in mounts.MASKED_FILES:
        if Path(path).exists():
            args += ["--dev-bind", "/dev/null", path]
    for path in mounts.MASKED_FOLDERS:
        if Path(path).exists():
            args += ["--tmpfs", path, "--remount-ro", path]
    return args


def _system() -> list[str]:
    args = ["--ro-bind", "/usr", "/usr"]
    for name in SYSTEM:
        path = Path(name)
        if path.is_symlink():
            args += ["--symlink", str(path.readlink()), name]
        elif path.exists():
            args += ["--ro-bind", name, name]
    return args


def hidden(readable: Sequence[str]) -> list[str]:
    """Return the readable folders that a task's `/tmp` or `/dev/shm` would hide.

    Each once: the environment that a worker offers may be that of the node itself.
    """
    below = (path for path in readable if _is_below(path, SCRATCH))
    return list(dict.fromkeys(below))


def _is_below(path: str, folders: Sequence[str]) -> bool:
    return any(path == folder or path.startswith(f"{folder}/") for folder in folders)


def _shown(box: Box, shown: dict[str, str], *, stays: bool) -> list[str]:
    """Return the mounts of readable folders, at their path or below `SHOWN`."""
    numbers = {path: n for n, path in enumerate(hidden(box.readable))} if stays else {}
    args: list[str] = []
    for path, at in shown.items():
        if path in numbers:
            place = f"{SHOWN}/{numbers[path]}"
            args += ["--dir", place, "--ro-bind-try", at, place]
        else:
            args += ["--ro-bind-try", at, path]
    return args


def _scratch(box: Box) -> list[str]:
    size = str(max(1 << 20, box.scratch_bytes))
    own = ["--perms", "1777", "--size", size, "--tmpfs"]
    return [*own, "/dev/shm", *own, "/tmp"]  # noqa: S108


def _places(box: Box) -> list[str]:
    """Return the mount point of work directories and, unless root, their source."""
    base = ["--bind", box.directory, mounts.BASE] if box.directory else []
    return ["--dir", WORK, *base]


def _reachable(names: Names) -> Names:
    """Return the places where the outer bubblewrap mounts files that resolve names."""
    return tuple((place, f"{OUTER}/name{n}") for n, (place, _) in enumerate(names))


def _read_only(paths: Sequence[str]) -> list[str]:
    return [text for path in paths for text in ("--ro-bind-try", path, path)]


def _devices(devices: Sequence[str]) -> list[str]:
    machine = MACHINE + (GPU_MACHINE if devices else ())
    binds = [text for path in devices for text in ("--dev-bind-try", path, path)]
    covers = [path for path in GPU_MASKED if devices and Path(path).is_dir()]
    masks = [t for path in covers for t in ("--tmpfs", path, "--remount-ro", path)]
    return [*_read_only(machine), *masks, *binds]


def program_missing(
    name: str,
    path: str,
    directory: Path,
    readable: Mapping[str, str] | None = None,
) -> str | None:
    """Return why a program cannot be run inside; None if it can.

    `readable` says which folder of this machine is where inside.
    """
    inside = (
        [name] if "/" in name else [f"{folder}/{name}" for folder in path.split(":")]
    )
    for each in inside:
        found = _outside(each, directory, readable or {})
        if found is not None and found.is_symlink() and not found.exists():
            return None  # It leads to a place that only the sandbox has.
        if found is not None and found.exists():
            if found.is_file() and os.access(found, os.X_OK):
                return None
            if "/" in name:
                return f"not executable: '{name}'"
    return f"no such program in the sandbox: '{name}'"


def _outside(inside: str, directory: Path, readable: Mapping[str, str]) -> Path | None:
    """Return the outside path of a file of the sandbox; None if it is not shown."""
    path = Path(os.path.normpath(f"{WORK}/{inside}" if inside[:1] != "/" else inside))
    if path.is_relative_to(WORK):
        return directory / path.relative_to(WORK)
    for place, source in readable.items():
        if path.is_relative_to(place):
            return Path(source) / path.relative_to(place)
    shown = ("/usr", *SYSTEM)
    return path if any(path.is_relative_to(folder) for folder in shown) else None


def find(folder: Path, *, processes_max: int = PROCESSES_MAX) -> Sandbox | str:
    """Return the best sandbox that works here, or why none does.

    Runs each candidate with a work directory below `folder`. Blocks for some
    milliseconds, or seconds if something is wrong: call it in a thread.
    """
    bwrap = shutil.which("bwrap")
    if bwrap is None:
        return "bubblewrap is not installed"
    why = ""
    for sandbox in _candidates(bwrap, processes_max):
        why = _try(sandbox, folder)
        if not why:
            return sandbox
    return f"bubblewrap does not work here: {why}"


def _candidates(bwrap: str, processes_max: int) -> list[Sandbox]:
    best = Sandbox(
        bwrap=bwrap,
        prlimit=shutil.which("prlimit") or "",
        setpriv=(shutil.which("setpriv") or "") if os.geteuid() == 0 else "",
        processes_max=processes_max,
    )
    replace = msgspec.structs.replace
    same_uid = replace(best, setpriv="")
    plain = [best, same_uid] if best.setpriv else [best]
    return [
        replace(best, stays=True),
        *plain,
        *(replace(each, closed=False) for each in plain),
    ]


def _trial(sandbox: Sandbox, directory: str, fds: tuple[int, int]) -> list[str]:
    if not sandbox.stays:
        return sandbox.argv(Box(directory=directory), TRIAL, fds)
    room = sandbox.room(Box(directory=str(Path(directory).parent)))
    here = str(Path(__file__).parents[1])
    return [sys.executable, "-I", "-S", "-c", TRY, here, directory, *room]


def _try(sandbox: Sandbox, folder: Path) -> str:
    with tempfile.TemporaryDirectory(dir=folder, prefix="probe-") as directory:
        uid = sandbox.uid_of(0)
        if uid is not None:
            os.chown(directory, uid, uid)
        fds = (in_memory(b""), in_memory(seccomp.PROGRAM))
        try:
            done = subprocess.run(
                _trial(sandbox, directory, fds),
                check=False,
                capture_output=True,
                timeout=PROBE_TIMEOUT_S,
                env={"PATH": "/usr/bin:/bin"},
                pass_fds=fds,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            return str(error)
        finally:
            for fd in fds:
                os.close(fd)
        said = done.stderr.decode(errors="replace").strip()
        return "" if done.returncode == 0 else said or f"exit code {done.returncode}"
