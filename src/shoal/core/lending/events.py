"""What a host measures of its machine, sees of its owner, and how a node ends."""

from __future__ import annotations

import msgspec


class DeviceMeasured(msgspec.Struct, frozen=True):
    """How much memory of one GPU is in use, and how much of that by tasks."""

    id: str
    memory_bytes: int
    by_tasks_bytes: int = 0


class MachineMeasured(msgspec.Struct, frozen=True):
    """So much of the machine is in use now, and so much of that by tasks."""

    memory_bytes: int = 0
    memory_by_tasks_bytes: int = 0
    disk_bytes: int = 0  # of what was free when the node started
    disk_by_tasks_bytes: int = 0
    devices: tuple[DeviceMeasured, ...] = ()
    cpu_milli: int = 0  # by programs other than tasks
    stalled_milli: int = 0  # share of time in which some program waited for memory


class OwnerObserved(msgspec.Struct, frozen=True):
    """What can be seen of the machine's owner now."""

    input_idle_s: float | None = None  # since the last input; None: none can be seen
    input_at: str = ""  # where that was: `tty2`, `the desktop`
    cpu_milli: int = 0  # what programs other than tasks use
    gpu_milli: int = 0  # likewise, of the busiest GPU
    on_battery: bool = False
    week_minute: int = 0  # local time, in minutes since Monday began


class LongestTaskChanged(msgspec.Struct, frozen=True):
    """From now on the worker takes only tasks that may take so long at most."""

    longest_s: int


class EndNode(msgspec.Struct, frozen=True):
    """End this node as if its user had asked for it."""

    reason: str


LendingEvent = MachineMeasured | OwnerObserved | LongestTaskChanged
LendingEffect = EndNode
