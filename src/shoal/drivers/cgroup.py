"""Limits by cgroup v2, where this user may set them: memory and number of processes.

A service manager must have delegated a group to the node (systemd: `Delegate=yes`).
Each warden lives in a group of its own, with the task that it runs, and the limits
are written anew for each attempt; nothing moves between groups while a task runs.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Final, final

CONTROLLERS: Final = ("memory", "pids")
PIDS_MAX: Final = 4_096
NODE: Final = "shoal-node"
SLOT: Final = "shoal-slot-"


def own_group(cgroup: str | None = None, mountinfo: str | None = None) -> Path | str:
    """Return the folder of the group that this process is in, or why there is none."""
    if cgroup is None:
        cgroup = Path("/proc/self/cgroup").read_text(encoding="utf-8")
    if mountinfo is None:
        mountinfo = Path("/proc/self/mountinfo").read_text(encoding="utf-8")
    groups = [line[3:] for line in cgroup.splitlines() if line.startswith("0::")]
    mounts = [
        line.split()[3:5] for line in mountinfo.splitlines() if " - cgroup2 " in line
    ]
    if not groups or not mounts:
        return "cgroup v2 is not mounted"
    root, mount = mounts[0]
    inside = groups[0].removeprefix(root if root != "/" else "")
    return Path(mount) / inside.lstrip("/")


@final
class Cgroups:
    """Groups below one that was delegated to us."""

    def __init__(self, base: Path) -> None:
        self._base = base

    @classmethod
    def open(cls, base: Path) -> Cgroups | str:
        """Take over `base`, or say why that is not possible."""
        try:
            has = (base / "cgroup.controllers").read_text(encoding="ascii").split()
            if lacking := [name for name in CONTROLLERS if name not in has]:
                return f"cgroup v2 has no control of {' and '.join(lacking)} here"
            node = base / NODE
            node.mkdir(exist_ok=True)
            # A group with groups below it may hold no process itself.
            for pid in (base / "cgroup.procs").read_text(encoding="ascii").split():
                _write(node / "cgroup.procs", pid)
            enabled = " ".join(f"+{name}" for name in CONTROLLERS)
            _write(base / "cgroup.subtree_control", enabled)
        except OSError as error:
            return f"cgroup v2 is not delegated to this user: {error.strerror}"
        return cls(base)

    def place(self, slot: int, pid: int) -> None:
        """Put a warden that has just started into the group of its slot."""
        group = self._base / f"{SLOT}{slot}"
        group.mkdir(exist_ok=True)
        _write(group / "cgroup.procs", str(pid))

    def limit(self, slot: int, memory_bytes: int) -> None:
        """Set the limits of the next attempt; no memory asked for is no limit."""
        group = self._base / f"{SLOT}{slot}"
        _write(group / "memory.max", str(memory_bytes) if memory_bytes else "max")
        with contextlib.suppress(OSError):  # There may be no swap to limit.
            _write(group / "memory.swap.max", "0" if memory_bytes else "max")
        _write(group / "pids.max", str(PIDS_MAX))

    def out_of_memory(self, slot: int) -> int:
        """Return how many processes of a slot the kernel has killed for memory."""
        path = self._base / f"{SLOT}{slot}" / "memory.events"
        try:
            events = path.read_text(encoding="ascii").split()
        except OSError:
            return 0
        counts = dict(zip(events[::2], events[1::2], strict=False))
        return int(counts.get("oom_kill", "0"))

    def remove(self, slot: int) -> None:
        """Remove the group of a slot whose warden is gone."""
        with contextlib.suppress(OSError):
            (self._base / f"{SLOT}{slot}").rmdir()


def _write(path: Path, text: str) -> None:
    path.write_text(text, encoding="ascii")
