"""Limit memory, CPU and processes by cgroups, where this user may set them.

With cgroup v2, root makes its own group; other users need one that a service manager
has delegated to them (systemd: `Delegate=yes`). Root falls back to v1 where controllers
are still bound to it.

All groups are below one named for the node. Each supervisor slot has a group for the
tasks that it runs one after another; supervisors themselves stay in the node's group.
Tasks that get only the CPU time that is left over are in a second set of groups beside
it: weights count between neighbours, so a group inside would weigh nothing outside.
A supervisor enters the slot's group while it forks a task or sandbox, and then
leaves (`cgroup_entry.py`). So it never moves another process.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol, final

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable

CONTROLLERS: Final = ("cpu", "memory", "pids")
PERIOD_US: Final = 100_000
QUOTA_MIN_US: Final = 1_000
NAME: Final = "shoal-"
NODE: Final = "node"
SLOT: Final = "slot-"
SPARE: Final = "-spare"
LEAST, USUAL = "1", "100"
LEAST_V1, USUAL_V1 = "10", "1024"
"""Weights of all tasks with spare CPU time, and of any other group.

Not `cpu.idle`: what is idle can wait seconds for the CPU that it needs to end.
"""

UNLIMITED_V1: Final = "-1"
LIMITED_V1: Final = 1 << 62
"""Values of cgroup v1 from here on mean no limit."""

ENTRY_V1: Final = "tasks"
"""Where a thread enters a group of v1. A supervisor has only one. `cgroup.procs` stops
all forks of the machine meanwhile, which takes about 15 ms if nobody did so just now;
to move oneself here takes 0.04 ms."""

COUNTS_BYTES: Final = 4_096
"""More than a file of counts has."""


class CgroupLimits(msgspec.Struct, frozen=True):
    """Limits of one task; 0 means no limit."""

    memory_bytes: int = 0
    cpu_milli: int = 0
    processes: int = 0
    spare: bool = False  # it gets only the CPU time that nobody else wants

    @property
    def quota_us(self) -> int:
        """CPU time in each period."""
        return max(QUOTA_MIN_US, self.cpu_milli * PERIOD_US // 1_000)


class Cgroups(Protocol):
    """The cgroups of all slots."""

    @property
    def home(self) -> tuple[str, ...]:
        """Files that move who writes "0" to them back into the node's group."""
        ...

    def doors(self, slot: int, *, spare: bool = False) -> tuple[str, ...]:
        """Make a slot's group; return the files to enter it in the same way."""
        ...

    def limit(self, slot: int, limits: CgroupLimits) -> None:
        """Set the limits for the next attempt of a slot."""
        ...

    def out_of_memory(self, slot: int, *, spare: bool = False) -> int:
        """Return how many processes of a slot were killed for lack of memory."""
        ...

    def hurry(self, *, really: bool) -> None:
        """Let tasks with spare CPU time end like others, or no longer."""
        ...

    def close(self) -> None:
        """Remove all groups, which must be empty."""
        ...


def find(mark: str, cgroup: str = "", mountinfo: str = "") -> Cgroups | str:
    """Return the cgroups of the node `mark`, or why there can be none.

    Removes groups left by an earlier run of the node, whose processes are dead by now.
    """
    cgroup = cgroup or Path("/proc/self/cgroup").read_text(encoding="utf-8")
    mountinfo = mountinfo or Path("/proc/self/mountinfo").read_text(encoding="utf-8")
    name = f"{NAME}{mark}"
    second = _second(name, cgroup, mountinfo)
    if not isinstance(second, str):
        return second
    first = _first(name, cgroup, mountinfo)
    if not isinstance(first, str):
        return first
    return second if "0::" in cgroup and os.geteuid() != 0 else first


def mounts(mountinfo: str, kind: str) -> list[tuple[str, Path, list[str]]]:
    """Return mounts of a file system type as (root, mount point, options)."""
    found: list[tuple[str, Path, list[str]]] = []
    for line in mountinfo.splitlines():
        before, _, after = line.partition(" - ")
        fields, rest = before.split(), after.split()
        if len(fields) > 4 and rest and rest[0] == kind:
            found.append((fields[3], Path(fields[4]), rest[-1].split(",")))
    return found


def below(root: str, mount: Path, path: str) -> Path:
    """Return the folder of a group below a mount point."""
    inside = path.removeprefix(root if root != "/" else "")
    return mount / inside.lstrip("/")


# Version 2.


def _second(name: str, cgroup: str, mountinfo: str) -> Cgroups | str:
    paths = [line[3:] for line in cgroup.splitlines() if line.startswith("0::")]
    mounted = mounts(mountinfo, "cgroup2")
    if not paths or not mounted:
        return "cgroup v2 is not mounted"
    root, mount, _ = mounted[0]
    own = below(root, mount, paths[0])
    why = ""
    if os.geteuid() == 0 and not _is_limited(own, mount):
        found = SecondVersion.open(mount, name, own)
        if not isinstance(found, str):
            return found
        why = found
    delegated = SecondVersion.open(own, name, None)
    return delegated if not isinstance(delegated, str) else why or delegated


@final
class SecondVersion:
    """Groups of cgroup v2, below a folder writable by this user."""

    def __init__(self, base: Path, spare: Path, home: Path) -> None:
        self._bases = {False: base, True: spare}
        self._home = home
        self._kills = KillCounts(lambda key: self._group(*key) / "memory.events")

    @classmethod
    def open(cls, parent: Path, name: str, home: Path | None) -> SecondVersion | str:
        """Make a group in `parent`, or return why that fails.

        Without a `home`, this process is in `parent` and moves into a subgroup: a
        group that controls subgroups must hold no process itself.
        """
        try:
            has = _read(parent / "cgroup.controllers").split()
            if lacking := [each for each in CONTROLLERS if each not in has]:
                return f"cgroup v2 has no control of {' and '.join(lacking)} here"
            base, spare = parent / name, parent / f"{name}{SPARE}"
            for each in (base, spare):
                each.mkdir(exist_ok=True)
                _clear(each)
            if home is None:
                home = base / NODE
                home.mkdir(exist_ok=True)
                _write(home / "cgroup.procs", str(os.getpid()))
            for each in (parent, base, spare):
                _enable(each)
            _write(spare / "cpu.weight", LEAST)
        except OSError as error:
            return f"cgroup v2 is not delegated to this user: {error.strerror}"
        return cls(base, spare, home)

    @property
    def home(self) -> tuple[str, ...]:
        """The `cgroup.procs` file that moves a process back into the node's group."""
        return (str(self._home / "cgroup.procs"),)

    def doors(self, slot: int, *, spare: bool = False) -> tuple[str, ...]:
        """Make a slot's group; return the `cgroup.procs` file to enter it."""
        group = self._group(slot, spare)
        group.mkdir(exist_ok=True)
        return (str(group / "cgroup.procs"),)

    def limit(self, slot: int, limits: CgroupLimits) -> None:
        """Set the limits for the next attempt; out of memory kills all of it."""
        group = self._group(slot, limits.spare)
        memory = limits.memory_bytes
        _write(group / "memory.max", str(memory) if memory else "max")
        with contextlib.suppress(OSError):  # There may be no swap to limit.
            _write(group / "memory.swap.max", "0" if memory else "max")
        _write(group / "memory.oom.group", "1")
        quota = str(limits.quota_us) if limits.cpu_milli else "max"
        _write(group / "cpu.max", f"{quota} {PERIOD_US}")
        _write(group / "pids.max", str(limits.processes or "max"))

    def out_of_memory(self, slot: int, *, spare: bool = False) -> int:
        """Return how many processes of a slot were killed for lack of memory."""
        return self._kills.of((slot, spare))

    def hurry(self, *, really: bool) -> None:
        """Let tasks with spare CPU time end like others, or no longer."""
        _write(self._bases[True] / "cpu.weight", USUAL if really else LEAST)

    def close(self) -> None:
        """Remove all empty groups; in a delegated group, the node's own stays."""
        self._kills.close()
        for base in self._bases.values():
            _clear(base)
            _remove(base)

    def _group(self, slot: int, spare: bool) -> Path:
        return self._bases[spare] / f"{SLOT}{slot}"


def _enable(group: Path) -> None:
    """Enable missing controllers for subgroups."""
    path = group / "cgroup.subtree_control"
    has = _read(path).split()
    if lacking := [f"+{each}" for each in CONTROLLERS if each not in has]:
        _write(path, " ".join(lacking))


# Version 1.


def _first(name: str, cgroup: str, mountinfo: str) -> Cgroups | str:
    if os.geteuid() != 0:
        return "cgroup v1 is for root only"
    homes: dict[str, Path] = {}
    tops: dict[str, Path] = {}
    for line in cgroup.splitlines():
        _, _, rest = line.partition(":")
        names, _, path = rest.partition(":")
        for root, mount, options in mounts(mountinfo, "cgroup"):
            for each in set(CONTROLLERS) & set(names.split(",")) & set(options):
                homes[each], tops[each] = below(root, mount, path), mount
    if lacking := [each for each in CONTROLLERS if each not in homes]:
        return f"no version of cgroups has control of {' and '.join(lacking)} here"
    # If somebody has limited the node's group, or one above it, stay within it.
    parents = {
        each: homes[each] if _is_limited(homes[each], tops[each]) else tops[each]
        for each in CONTROLLERS
    }
    return FirstVersion.open(homes, parents, name)


@final
class FirstVersion:
    """Groups of cgroup v1, one for each controller."""

    def __init__(
        self, homes: dict[str, Path], parents: dict[str, Path], name: str
    ) -> None:
        self._homes = homes
        self._bases = {
            (each, spare): parents[each] / f"{name}{SPARE if spare else ''}"
            for each in CONTROLLERS
            for spare in (False, True)
        }
        self._kills = KillCounts(
            lambda key: self._group("memory", *key) / "memory.oom_control"
        )

    @classmethod
    def open(
        cls, homes: dict[str, Path], parents: dict[str, Path], name: str
    ) -> FirstVersion | str:
        """Make a group for each controller below `parents`, or return why that fails.

        `homes` are the groups of the node itself.
        """
        found = cls(homes, parents, name)
        try:
            for base in found._bases.values():
                base.mkdir(exist_ok=True)
                _clear(base)
            found.hurry(really=False)
        except OSError as error:
            return f"cgroup v1 cannot be used: {error.strerror}"
        return found

    @property
    def home(self) -> tuple[str, ...]:
        """`tasks` files that move a thread back into the node's groups."""
        return tuple(str(self._homes[each] / ENTRY_V1) for each in CONTROLLERS)

    def doors(self, slot: int, *, spare: bool = False) -> tuple[str, ...]:
        """Make a slot's groups; return the `tasks` files to enter them."""
        groups = [self._group(each, slot, spare) for each in CONTROLLERS]
        for each in groups:
            each.mkdir(exist_ok=True)
        return tuple(str(group / ENTRY_V1) for group in groups)

    def limit(self, slot: int, limits: CgroupLimits) -> None:
        """Set the limits for the next attempt of a slot."""
        self._limit_memory(
            self._group("memory", slot, limits.spare), limits.memory_bytes
        )
        cpu = self._group("cpu", slot, limits.spare)
        _write(cpu / "cpu.cfs_period_us", str(PERIOD_US))
        quota = str(limits.quota_us) if limits.cpu_milli else UNLIMITED_V1
        _write(cpu / "cpu.cfs_quota_us", quota)
        pids = self._group("pids", slot, limits.spare) / "pids.max"
        _write(pids, str(limits.processes or "max"))

    def _limit_memory(self, group: Path, memory_bytes: int) -> None:
        """Limit memory, and memory plus swap, which must never be the smaller limit."""
        size = str(memory_bytes) if memory_bytes else UNLIMITED_V1
        plain, swapped = group / "memory.limit_in_bytes", "memory.memsw.limit_in_bytes"
        both = group / swapped
        with contextlib.suppress(OSError):  # Lift it first: it must not be smaller.
            _write(both, UNLIMITED_V1)
        _write(plain, size)
        with contextlib.suppress(OSError):  # The kernel may not count swap.
            _write(both, size)

    def out_of_memory(self, slot: int, *, spare: bool = False) -> int:
        """Return how many processes of a slot were killed for lack of memory."""
        return self._kills.of((slot, spare))

    def hurry(self, *, really: bool) -> None:
        """Let tasks with spare CPU time end like others, or no longer."""
        shares = self._bases["cpu", True] / "cpu.shares"
        _write(shares, USUAL_V1 if really else LEAST_V1)

    def close(self) -> None:
        """Remove all groups, which must be empty."""
        self._kills.close()
        for base in self._bases.values():
            _clear(base)
            _remove(base)

    def _group(self, controller: str, slot: int, spare: bool) -> Path:
        return self._bases[controller, spare] / f"{SLOT}{slot}"


# Limits that others have set.

_LIMITS: Final = {
    "memory.max": "max",
    "memory.high": "max",
    "cpu.max": "max",
    "pids.max": "max",
    "cpu.cfs_quota_us": "-1",
    "memory.limit_in_bytes": "",
}
"""What each file says where there is no limit; of memory, v1 says a large number."""


def _is_limited(own: Path, mount: Path) -> bool:
    """Whether a group, or one above it, has a limit; batch systems set it above."""
    groups = [each for each in (own, *own.parents) if each.is_relative_to(mount)]
    return any(
        _says_limit(group / name, free)
        for group in groups
        for name, free in _LIMITS.items()
    )


def _says_limit(path: Path, free: str) -> bool:
    try:
        told = _read(path).split()[0]
    except (OSError, IndexError):
        return False
    return told != free if free else int(told) < LIMITED_V1


# Files.


def _clear(base: Path) -> None:
    """Remove empty slot groups."""
    for group in base.glob(f"{SLOT}*"):
        _remove(group)


def _remove(group: Path) -> None:
    with contextlib.suppress(OSError):  # It still holds a process.
        group.rmdir()


SlotKey = tuple[int, bool]
"""A slot, and whether it is one that gets spare CPU time only."""


@final
class KillCounts:
    """How many processes of each slot were killed for lack of memory.

    It is asked before every task, and to open such a file costs more than to read it:
    the files stay open.
    """

    def __init__(self, path_of: Callable[[SlotKey], Path]) -> None:
        self._path_of = path_of
        self._files: dict[SlotKey, int] = {}

    def of(self, slot: SlotKey) -> int:
        """Return the count of a slot; 0 if it has no group."""
        try:
            file = self._files.get(slot)
            if file is None:
                flags = os.O_RDONLY | os.O_CLOEXEC
                file = self._files[slot] = os.open(self._path_of(slot), flags)
            words = os.pread(file, COUNTS_BYTES, 0).split()
        except OSError:  # The group is gone: another may come in its place.
            self._forget(slot)
            return 0
        counts = dict(zip(words[::2], words[1::2], strict=False))
        return int(counts.get(b"oom_kill", b"0"))

    def close(self) -> None:
        """Close the files."""
        for slot in list(self._files):
            self._forget(slot)

    def _forget(self, slot: SlotKey) -> None:
        file = self._files.pop(slot, None)
        if file is not None:
            os.close(file)


def _read(path: Path) -> str:
    return path.read_text(encoding="ascii")


def _write(path: Path, text: str) -> None:
    path.write_text(text, encoding="ascii")
