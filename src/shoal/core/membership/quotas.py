"""Quotas: how much an owner may lease at one time, by its grant.

A scheduler knows all leases of its owners and keeps their quota over the whole shoal.
A worker knows only its own leases, but trusts nobody: it gives an owner no more than
the quota of the grant in hand, counted over all schedulers of that owner.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec
from msgspec.structs import replace

from shoal.model.job import each_changed
from shoal.model.resources import GpuNeed, Profile

if TYPE_CHECKING:
    from collections.abc import Iterable

    from shoal.core.leasing.leases import Lease
    from shoal.model.ids import OwnerId
    from shoal.model.job import Group, Job, Task


CPU_MILLI_MIN: Final = 10
"""What a lease costs at least: a task that asks for nothing is a process, too."""


class Used(msgspec.Struct):
    """The sum of what one owner has leased or asked for."""

    leases: int = 0
    cpu_milli: int = 0
    gpus: int = 0

    def add(self, profile: Profile, count: int) -> None:
        """Add leases; a negative count removes them."""
        self.leases += count
        self.cpu_milli += count * cpu_of(profile)
        self.gpus += count * gpus_of(profile)


class Quota(msgspec.Struct, frozen=True):
    """Limits of a grant; None means that there is none."""

    gpus: int | None = None
    cpu_milli: int | None = None

    def slots(self, profile: Profile, used: Used, wanted: int) -> int:
        """Return how many of the wanted slots fit the quota."""
        gpus = gpus_of(profile)
        if self.gpus is not None and gpus > 0:
            wanted = min(wanted, (self.gpus - used.gpus) // gpus)
        if self.cpu_milli is not None:
            left = self.cpu_milli - used.cpu_milli
            wanted = min(wanted, left // cpu_of(profile))
        return max(0, wanted)

    def narrowed(self, profile: Profile, used: Used | None = None) -> Profile:
        """Limit a task that takes all GPUs it can get to the quota."""
        gpu = profile.gpu
        if self.gpus is None or gpu is None or gpu.count_max <= gpu.count:
            return profile
        left = self.gpus - (used.gpus if used else 0)
        most = max(gpu.count, min(gpu.count_max, left))
        return replace(profile, gpu=replace(gpu, count_max=most))

    def excess(self, owner: OwnerId, profile: Profile, used: Used, slots: int) -> str:
        """Return in numbers why `slots` exceed the quota; empty if they do not."""
        gpus, cpu_milli = slots * gpus_of(profile), slots * cpu_of(profile)
        if self.gpus is not None and gpus > 0 and used.gpus + gpus > self.gpus:
            in_use = f"{self.gpus} GPUs, {used.gpus} in use, {gpus} more wanted"
            return f"quota of {owner}: {in_use}"
        limit = self.cpu_milli
        if limit is not None and cpu_milli > 0 and used.cpu_milli + cpu_milli > limit:
            so_far = f"{limit / 1_000:g} CPUs, {used.cpu_milli / 1_000:g} in use"
            return f"quota of {owner}: {so_far}, {cpu_milli / 1_000:g} more wanted"
        return ""

    def allows_ever(self, profile: Profile, slots: int) -> bool:
        """Whether the quota allows these slots when the owner has nothing else."""
        return self.slots(profile, Used(), slots) >= slots


def narrowed_job(job: Job, quota: Quota) -> Job:
    """Return the job with every task limited to the GPUs of the quota."""
    if quota.gpus is None:
        return job
    return replace(job, groups=tuple(_narrowed_group(g, quota) for g in job.groups))


def _narrowed_group(group: Group, quota: Quota) -> Group:
    tasks = each_changed(group.tasks, lambda task: _narrowed_task(task, quota))
    return replace(group, tasks=tasks)


def _narrowed_task(task: Task, quota: Quota) -> Task:
    return replace(task, profiles=tuple(map(quota.narrowed, task.profiles)))


def gpus_of(profile: Profile) -> int:
    """Return how many GPUs a task may take; a share of one counts as one."""
    gpu: GpuNeed | None = profile.gpu
    return max(gpu.count, gpu.count_max) if gpu and gpu.count else 0


def cpu_of(profile: Profile) -> int:
    """Return how much CPU quota one task of a profile uses."""
    return max(profile.cpu_milli, CPU_MILLI_MIN)


def used_here(leases: Iterable[Lease], owner: OwnerId) -> Used:
    """Sum what one owner has on a worker, including offers and ending leases."""
    used = Used()
    for lease in leases:
        if lease.owner == owner:
            used.leases += 1
            used.cpu_milli += max(lease.allocation.cpu_milli, CPU_MILLI_MIN)
            used.gpus += len(lease.allocation.shares)
    return used
