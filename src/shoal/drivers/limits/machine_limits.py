"""The part of this machine that its node may use: limits of cgroups and of Slurm."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Final, final

import msgspec

from shoal.drivers.gpus.visible import slurm_gpus
from shoal.drivers.limits.cgroup import below, mounts
from shoal.model.text.bounds import AMOUNT_MAX

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence


_CPUS_OF_NODES: Final = re.compile(r"(\d{1,6})(?:\(x(\d{1,6})\))?", re.ASCII)


class DeviceLimits(msgspec.Struct, frozen=True):
    """Limits of this process's cgroups; None means no limit."""

    cpu_milli: int | None = None
    memory_bytes: int | None = None


def machine_limits(env: Mapping[str, str] | None = None) -> DeviceLimits:
    """Return the tightest limits on this process, of cgroups and of Slurm."""
    found = (cgroup_limits(), slurm_limits(os.environ if env is None else env))
    cpus = [each.cpu_milli for each in found if each.cpu_milli is not None]
    memories = [each.memory_bytes for each in found if each.memory_bytes is not None]
    return DeviceLimits(min(cpus, default=None), min(memories, default=None))


def slurm_limits(env: Mapping[str, str]) -> DeviceLimits:
    """Return what Slurm allotted to this process on this node.

    Where Slurm has no cgroups it enforces nothing, but others count on the rest.
    """
    if "SLURM_JOB_ID" not in env:
        return DeviceLimits()
    cpus = _amount(env, "SLURM_CPUS_ON_NODE") or _cpus_of_job(env)
    gpus = len(slurm_gpus(env))
    counts = {"NODE": 1, "CPU": cpus, "GPU": gpus}
    memories = [
        each * count
        for per, count in counts.items()
        if count and (each := _amount(env, f"SLURM_MEM_PER_{per}"))
    ]  # A step inherits what its job was told, beside what it is told itself.
    return DeviceLimits(
        None if cpus is None else 1_000 * cpus,
        min(memories) << 20 if memories else None,
    )


def _cpus_of_job(env: Mapping[str, str]) -> int | None:
    """Return the CPUs of this node, of a list such as `8(x2),4`: two nodes with 8."""
    node = _amount(env, "SLURM_NODEID") or 0
    for part in env.get("SLURM_JOB_CPUS_PER_NODE", "").split(","):
        found = _CPUS_OF_NODES.fullmatch(part.strip())
        if found is None:
            return None
        nodes = int(found[2] or 1)
        if node < nodes:
            return int(found[1])
        node -= nodes
    return None


def _amount(env: Mapping[str, str], name: str) -> int | None:
    """Return a positive number of Slurm's; it writes 0 for all of a node."""
    text = env.get(name, "")
    return int(text) or None if text.isascii() and text.isdecimal() else None


def cgroup_limits(
    cgroup: str | None = None, mountinfo: str | None = None
) -> DeviceLimits:
    """Return the tightest cgroup limits on this process, of v2 and v1."""
    cpus: list[int] = []
    memories: list[int] = []
    for kinds, folder in _groups(*_told(cgroup, mountinfo)):
        if kinds & {"", "memory"}:
            names = ("memory.max", "memory.limit_in_bytes")
            memories += [limit for name in names if (limit := _number(folder / name))]
        if kinds & {"", "cpu"} and (share := _cpu_milli(folder)):
            cpus.append(share)
    return DeviceLimits(min(cpus, default=None), min(memories, default=None))


def _told(cgroup: str | None, mountinfo: str | None) -> tuple[str, str]:
    """Read what was not given."""
    if cgroup is None:
        cgroup = Path("/proc/self/cgroup").read_text(encoding="utf-8")
    if mountinfo is None:
        mountinfo = Path("/proc/self/mountinfo").read_text(encoding="utf-8")
    return cgroup, mountinfo


def _groups(cgroup: str, mountinfo: str) -> Iterator[tuple[set[str], Path]]:
    """Yield the cgroups of this process and their ancestors, whose limits apply too.

    Each comes with its controllers; {""} stands for cgroup v2.
    """
    for line in cgroup.splitlines():
        _, kinds, path = line.split(":", 2)
        own = set(kinds.split(","))
        is_second = own == {""}
        kind = "cgroup2" if is_second else "cgroup"
        for root, mount, options in mounts(mountinfo, kind):
            if is_second or own <= set(options):
                group = below(root, mount, path)
                for each in (group, *group.parents):
                    if each.is_relative_to(mount):
                        yield own, each


def _cpu_milli(folder: Path) -> int | None:
    try:
        quota, period = (folder / "cpu.max").read_text(encoding="ascii").split()
        return None if quota == "max" else int(quota) * 1_000 // int(period)
    except (OSError, ValueError):
        pass
    quota_us = _number(folder / "cpu.cfs_quota_us")
    period_us = _number(folder / "cpu.cfs_period_us")
    return quota_us * 1_000 // period_us if quota_us and period_us else None


def _number(path: Path) -> int | None:
    """Read a positive number; None if there is no limit, which v1 writes as huge."""
    try:
        number = int(path.read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None
    return number if 0 < number <= AMOUNT_MAX else None


_MEMORY: Final = {
    "memory.max": ("memory.current", "inactive_file"),
    "memory.limit_in_bytes": ("memory.usage_in_bytes", "total_inactive_file"),
}


@final
class MemoryGroup:
    """The cgroups that limit the memory of this process, if any do."""

    def __init__(self, limits: Sequence[Path] = ()) -> None:
        """Look at these files, which hold limits."""
        self._limits = tuple(limits)

    @classmethod
    def find(
        cls, cgroup: str | None = None, mountinfo: str | None = None
    ) -> MemoryGroup:
        """Return the groups of this process that have a limit.

        Of groups in each other, an outer one may be nearer to its limit: others are in
        it, too.
        """
        return cls(
            [
                folder / name
                for kinds, folder in _groups(*_told(cgroup, mountinfo))
                if kinds & {"", "memory"}
                for name in _MEMORY
                if _number(folder / name)
            ]
        )

    def available(self, otherwise: int) -> int:
        """Return how much more memory there is before the nearest limit."""
        left = [_left(path) for path in self._limits]
        return min((each for each in left if each is not None), default=otherwise)


def _left(limit: Path) -> int | None:
    """Return how far a group is from its limit; None if that was lifted."""
    most = _number(limit)
    if most is None:
        return None
    current, reclaimable = _MEMORY[limit.name]
    used = _number(limit.parent / current) or 0
    return max(0, most - used + _count(limit.parent / "memory.stat", reclaimable))


def _count(path: Path, name: str) -> int:
    try:
        rows = [line.split() for line in path.read_text(encoding="ascii").splitlines()]
        return next((int(row[1]) for row in rows if row[0] == name), 0)
    except (OSError, ValueError, IndexError):
        return 0
