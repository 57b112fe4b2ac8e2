"""Where jobs go: slots that are only counted, or hosts with so many each."""

from __future__ import annotations

from typing import Protocol, TypeAlias, final

Taken: TypeAlias = tuple[tuple[int, int], ...]
"""Hosts, and slots on each."""


class Rooms(Protocol):
    """The slots of a cluster."""

    free: int
    slots: int

    def take(self, slots: int) -> Taken | None:
        """Occupy so many slots, if they can be had in one piece."""
        ...

    def give(self, taken: Taken) -> None:
        """Free them again."""
        ...


@final
class Counted:
    """Slots that are all alike: a job fits if there are as many as it wants."""

    def __init__(self, slots: int) -> None:
        self.slots = self.free = slots

    def take(self, slots: int) -> Taken | None:
        """Occupy so many slots, if there are as many."""
        if slots > self.free:
            return None
        self.free -= slots
        return ((0, slots),)

    def give(self, taken: Taken) -> None:
        """Free them again."""
        self.free += sum(slots for _, slots in taken)


@final
class Hosts:
    """Hosts with so many slots each, below switches.

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

    def take(self, slots: int) -> Taken | None:
        """Occupy so many slots, on the first hosts that have them."""
        if slots > self.free:
            return None
        if slots > self._per_host:
            return self._take_hosts(slots)
        for host, left in enumerate(self._left):
            if left >= slots:
                return self._occupy(((host, slots),))
        return None

    def give(self, taken: Taken) -> None:
        """Free them again."""
        for host, slots in taken:
            self._left[host] += slots
            self.free += slots

    def _take_hosts(self, slots: int) -> Taken | None:
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

    def _occupy(self, taken: Taken) -> Taken:
        for host, slots in taken:
            self._left[host] -= slots
            self.free -= slots
        return taken
