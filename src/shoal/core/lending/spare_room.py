"""How much of a machine other programs take, so that it is not offered to tasks.

Theory of operation. The host measures every few seconds how much memory, disk and GPU
memory is in use, and how much of that tasks use (`MachineMeasured`). What other
programs use is *withheld*: it is neither offered nor leased. What is leased stays so.

- What tasks use is part of what is leased, and not counted again; but only up to what
  is leased: a task that booked nothing takes what it uses from everybody.
- More use counts at once, less only after `RECENT_S`: the largest of the recent values
  counts. A program that takes and frees memory in turns does not move the offer.
- A change below a step is ignored, so schedulers hear nothing of small ones.
- A little GPU memory is always in use where there is a screen. Up to a tenth of a GPU
  is tolerated; otherwise no task could ever get such a GPU as a whole.
- While programs wait for memory most of the time, what seems free is not: all of it is
  withheld until they no longer do.

CPU is not withheld: tasks have a lower priority than other programs. State is bounded
by the number of devices and by `RECENT_MAX`.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final, final

from shoal.model.resources import GIB, Allocation, DeviceShare

if TYPE_CHECKING:
    from shoal.core.lending.events import MachineMeasured
    from shoal.model.resources import Capacity

RECENT_S: Final = 12.0
RECENT_MAX: Final = 64
STEP_SHARE: Final = 64  # a step is so small a part of what is lent
MEMORY_STEP: Final = GIB // 4
DISK_STEP: Final = GIB
SCREEN_SHARE: Final = 10  # a screen takes no more than this part of a GPU's memory
STALLED_MILLI: Final = 200
CALM_MILLI: Final = 50
_KINDS: Final = {"memory": "of memory", "disk": "of disk"}

Amounts = dict[str, int]


@final
class SpareRoom:
    """Decides how much of the lent resources is withheld."""

    def __init__(self, capacity: Capacity) -> None:
        self.cpu_milli = 0  # what other programs used when it was last measured
        self._capacity = capacity
        self._sizes = {"memory": capacity.memory_bytes, "disk": capacity.disk_bytes}
        self._sizes |= {f"gpu {d.id}": d.memory_bytes for d in capacity.devices}
        self._withheld: Amounts = dict.fromkeys(self._sizes, 0)
        self._recent: deque[tuple[float, Amounts]] = deque(maxlen=RECENT_MAX)
        self._stalled = False

    def measured(self, event: MachineMeasured, leased: Allocation, now: float) -> bool:
        """Take in a measurement; return whether other amounts are withheld now."""
        self.cpu_milli = event.cpu_milli
        limit = CALM_MILLI if self._stalled else STALLED_MILLI
        self._stalled = event.stalled_milli >= limit
        while self._recent and self._recent[0][0] <= now - RECENT_S:
            self._recent.popleft()
        self._recent.append((now, self._taken(event, leased)))
        changed = False
        for name, size in self._sizes.items():
            most = min(size, max(amounts[name] for _, amounts in self._recent))
            if self._is_step(name, most):
                self._withheld[name] = most
                changed = True
        return changed

    @property
    def withheld(self) -> Allocation:
        """What is not offered now."""
        return Allocation(
            0,
            self._withheld["memory"],
            self._withheld["disk"],
            tuple(
                DeviceShare(device.id, 0, taken)
                for device in self._capacity.devices
                if (taken := self._withheld[f"gpu {device.id}"])
            ),
        )

    @property
    def words(self) -> str:
        """What is withheld and why; empty if nothing is."""
        parts = [
            f"{taken / GIB:.1f} GiB {_KINDS.get(name, f'of GPU {name[4:]}')}"
            for name, taken in self._withheld.items()
            if taken
        ]
        if not parts:
            return ""
        if self._stalled:
            return "programs wait for memory here"
        return f"{', '.join(parts)} taken by programs that are not tasks"

    def _taken(self, event: MachineMeasured, leased: Allocation) -> Amounts:
        """Return what other programs take: what is used, less what is leased."""
        found = dict.fromkeys(self._sizes, 0)
        by_tasks = min(event.memory_by_tasks_bytes, leased.memory_bytes)
        found["memory"] = event.memory_bytes - by_tasks
        if self._stalled:
            found["memory"] = self._sizes["memory"]
        by_tasks = min(event.disk_by_tasks_bytes, leased.disk_bytes)
        found["disk"] = event.disk_bytes - by_tasks
        shares = {share.device: share.memory_bytes for share in leased.shares}
        for device in event.devices:
            name = f"gpu {device.id}"
            by_tasks = min(device.by_tasks_bytes, shares.get(device.id, 0))
            taken = device.memory_bytes - by_tasks
            if name in found and taken * SCREEN_SHARE > self._sizes[name]:
                found[name] = taken
        return {name: max(0, amount) for name, amount in found.items()}

    def _is_step(self, name: str, most: int) -> bool:
        least = DISK_STEP if name == "disk" else MEMORY_STEP
        before = self._withheld[name]
        if most == before:
            return False
        step = max(least, self._sizes[name] // STEP_SHARE)
        return abs(most - before) >= step or most in (0, self._sizes[name])
