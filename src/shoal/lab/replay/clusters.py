"""Where jobs run in a replay: counted slots, hosts, or a live scheduler's table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeAlias, TypeVar, final

from shoal.model.ids import NodeId
from shoal.model.resources import Capacity, Device, GpuNeed, Profile
from shoal.policy.placement import place
from shoal.policy.table.worker_table import TakenRoom, WorkerTable, WorkerView

if TYPE_CHECKING:
    from random import Random

    from shoal.policy.interface import Policy

T = TypeVar("T")

OnHosts: TypeAlias = tuple[tuple[int, int], ...]
"""Hosts, and slots on each."""


class ClusterModel(Protocol[T]):
    """The slots of a cluster; `T` is what a job took of them."""

    free: int
    slots: int

    def take(self, slots: int) -> T | None:
        """Occupy slots for one job, if it fits."""
        ...

    def give(self, taken: T) -> None:
        """Free them again."""
        ...

    def kind(self, slots: int) -> object:
        """Return a value that is equal for sizes that fit or fail together."""
        ...


@final
class CountedSlots:
    """Slots that are all alike: a job fits if there are as many as it wants."""

    def __init__(self, slots: int) -> None:
        self.slots = self.free = slots

    def take(self, slots: int) -> int | None:
        """Occupy slots, if enough are free."""
        if slots > self.free:
            return None
        self.free -= slots
        return slots

    def give(self, taken: int) -> None:
        """Free them again."""
        self.free += taken

    def kind(self, slots: int) -> int:
        """Return the size itself."""
        return slots


@final
class HostSlots:
    """Hosts with the same number of slots each, below switches.

    A job goes to the first host with room for all of it. One that is larger than a
    host gets idle hosts below one switch, and what is left over goes to the first
    other host there with room.
    """

    def __init__(self, switches: int, hosts_per_switch: int, per_host: int) -> None:
        self._per_host = per_host
        self._hosts_per_switch = hosts_per_switch
        self._switches = switches
        self.slots = self.free = switches * hosts_per_switch * per_host
        self._left = [per_host] * (switches * hosts_per_switch)

    def take(self, slots: int) -> OnHosts | None:
        """Occupy slots on the first hosts that have them."""
        if slots > self.free:
            return None
        if slots > self._per_host:
            return self._take_hosts(slots)
        for host, left in enumerate(self._left):
            if left >= slots:
                return self._occupy(((host, slots),))
        return None

    def give(self, taken: OnHosts) -> None:
        """Free them again."""
        for host, slots in taken:
            self._left[host] += slots
            self.free += slots

    def kind(self, slots: int) -> int:
        """Return the size itself."""
        return slots

    def _take_hosts(self, slots: int) -> OnHosts | None:
        whole, rest = divmod(slots, self._per_host)
        for switch in range(self._switches):
            first = switch * self._hosts_per_switch
            below = range(first, first + self._hosts_per_switch)
            idle = [host for host in below if self._left[host] == self._per_host]
            if len(idle) < whole:
                continue
            chosen = [(host, self._per_host) for host in idle[:whole]]
            if rest:
                others = (
                    host
                    for host in below
                    if host not in idle[:whole] and self._left[host] >= rest
                )
                last = next(others, None)
                if last is None:
                    continue
                chosen.append((last, rest))
            return self._occupy(tuple(chosen))
        return None

    def _occupy(self, taken: OnHosts) -> OnHosts:
        for host, slots in taken:
            self._left[host] -= slots
            self.free -= slots
        return taken


@final
class WorkerPool:
    """Equal hosts in the table of a live scheduler, placed by one of its policies.

    A job that is larger than a host is a gang of equal tasks; one that is no multiple
    of a host is rounded up.
    """

    def __init__(
        self, hosts: int, gpus_per_host: int, policy: Policy, rng: Random
    ) -> None:
        self.slots = self.free = hosts * gpus_per_host
        self._gpus_per_host = gpus_per_host
        self._policy = policy
        self._rng = rng
        self._table = _table(hosts, gpus_per_host)
        self._tasks: dict[int, tuple[Profile, int]] = {}

    def take(self, slots: int) -> tuple[int, tuple[TakenRoom, ...]] | None:
        """Place all tasks of a job, or none."""
        if slots > self.free:
            return None
        profile, count = self.kind(slots)
        takens = place(profile, count, self._table, self._policy, self._rng).takens
        if len(takens) < count:
            for taken in takens:
                self._table.give(taken)
            return None
        self.free -= slots
        return slots, takens

    def give(self, taken: tuple[int, tuple[TakenRoom, ...]]) -> None:
        """Give the bookings back."""
        slots, takens = taken
        for each in takens:
            self._table.give(each)
        self.free += slots

    def kind(self, slots: int) -> tuple[Profile, int]:
        """Return what one task of a job needs, and how many tasks it has."""
        if slots not in self._tasks:
            count = -(-slots // self._gpus_per_host)
            gpus = -(-slots // count)
            self._tasks[slots] = Profile(gpu=GpuNeed(gpus, gpus)), count
        return self._tasks[slots]


def _table(hosts: int, gpus_per_host: int) -> WorkerTable:
    devices = tuple(Device(str(n), "", "GPU") for n in range(gpus_per_host))
    capacity = Capacity(devices=devices)
    table = WorkerTable()
    for number in range(hosts):
        table.put(WorkerView.idle(NodeId(f"h{number:07d}"), capacity))
    return table
