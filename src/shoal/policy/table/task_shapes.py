"""A task shape: what a task asks of a worker, laid out for many quick checks.

A `TaskShape` is a value: tasks of one shape share all work of placing. A `Need` is the
same thing with its numbers at hand, and with an answer for each kind of device.
"""

from __future__ import annotations

from typing import Final, final

import msgspec

from shoal.model.ids import NodeId
from shoal.model.resources import WHOLE_GPU_MILLI, Device, Profile
from shoal.model.text.bounds import AMOUNT_MAX

NEVER: Final = AMOUNT_MAX + 1
"""More than any worker has."""

STATES_MAX: Final = 65_536
"""States of workers that are told apart at one time."""

KINDS_MAX: Final = 4_096
"""Kinds of devices a table tells apart before it forgets those no longer there."""

SLOTS_MAX: Final = 4_096
"""Tasks of one shape on one worker: more are not told apart."""


class TaskShape(msgspec.Struct, frozen=True, gc=False, cache_hash=True):
    """Everything that decides whether a worker can run a task."""

    profile: Profile = Profile()
    driver: str = "process"
    rtt_max_us: int | None = None
    nodes: tuple[NodeId, ...] = ()  # the only ones that may run it, unless empty
    alone: bool = False  # a worker runs at most one of them


@final
class Kinds:
    """Numbers for kinds of devices: same vendor, model and memory, same number.

    And for states of workers, which are too long to be compared again and again.
    """

    def __init__(self) -> None:
        self.devices: list[Device] = []
        self._numbers: dict[Device, int] = {}
        # At least as much as any task asks for, in all and with each GPU.
        self.memory_most = self.disk_most = self.memory_per_gpu_most = 0
        self._states: dict[tuple[object, ...], int] = {}
        self._states_seen = 0  # No number is ever given to another state.
        self.states_from = 1  # Numbers below this one told too little apart.

    def __len__(self) -> int:
        return len(self.devices)

    def number(self, device: Device) -> int:
        """Return the number of the kind of `device`."""
        kind = Device("", device.vendor, device.model, device.memory_bytes)
        number = self._numbers.get(kind)
        if number is None:
            number = self._numbers[kind] = len(self.devices)
            self.devices.append(kind)
        return number

    def learn_amounts(self, need: Need) -> None:
        """Raise the maxima to what a task asks for."""
        memory_bytes, disk_bytes = need.memory_bytes, need.disk_bytes
        per_gpu = -(-memory_bytes // need.gpus_min) if need.gpus_min else 0
        if (
            memory_bytes > self.memory_most
            or disk_bytes > self.disk_most
            or per_gpu > self.memory_per_gpu_most
        ):
            self.memory_most = max(self.memory_most, _rounded_up(memory_bytes))
            self.disk_most = max(self.disk_most, _rounded_up(disk_bytes))
            self.memory_per_gpu_most = max(
                self.memory_per_gpu_most, _rounded_up(per_gpu)
            )
            self._states.clear()
            self.states_from = self._states_seen + 1

    def memory_that_matters(self, gpus: int) -> int:
        """Return enough memory for any task, and for a task on each of `gpus` GPUs."""
        return max(self.memory_most, gpus * self.memory_per_gpu_most)

    def number_of_state(self, state: tuple[object, ...]) -> int:
        """Return the number of a state, mostly the same as last time."""
        number = self._states.get(state)
        if number is None:
            if len(self._states) >= STATES_MAX:
                self._states.clear()
            self._states_seen += 1
            number = self._states[state] = self._states_seen
        return number


@final
class Need:
    """A shape with its numbers at hand, for the workers of one table."""

    def __init__(self, shape: TaskShape, kinds: Kinds) -> None:
        profile, gpu = shape.profile, shape.profile.gpu
        self.shape = shape
        self.profile = profile
        self.cpu_milli = profile.cpu_milli
        self.memory_bytes = profile.memory_bytes
        self.disk_bytes = profile.disk_bytes
        self.labels = frozenset(profile.labels)
        self.modules = frozenset(profile.modules)
        self.uses = frozenset(profile.uses)
        self.longest_s = profile.longest_s
        self.driver = shape.driver
        self.rtt_max_us = shape.rtt_max_us
        self.nodes = frozenset(shape.nodes)
        self.slots_max = 1 if shape.alone else SLOTS_MAX
        self.picky = bool(
            profile.labels
            or profile.modules
            or shape.nodes
            or profile.uses
            or profile.longest_s
            or shape.rtt_max_us is not None
        )
        self.gpu = gpu
        self.gpus_min = gpu.count if gpu else 0
        self.gpus_max = gpu.count_max if gpu else 0
        self.gpu_milli = gpu.milli if gpu else 0
        self.whole = self.gpu_milli == WHOLE_GPU_MILLI
        # Devices that must be wholly free: most workers that do not fit fail here.
        self.gpus_whole_min = self.gpus_min if self.whole else 0
        # For each kind of device the memory that a share takes of it; `NEVER` for
        # kinds that could not serve even when idle, and last of all for no kind.
        self.sizes: list[int] = [NEVER]
        self.kinds = kinds
        self.learn_kinds()
        kinds.learn_amounts(self)

    def learn_kinds(self) -> None:
        """Complete `sizes` with the kinds that the table has met since."""
        gpu, known = self.gpu, len(self.sizes) - 1
        for device in self.kinds.devices[known:]:
            suits = gpu is not None and not gpu.rules_out(device)
            size = gpu.share_of(device).memory_bytes if gpu and suits else NEVER
            self.sizes.insert(-1, size)


def _rounded_up(amount: int) -> int:
    """Return the next power of two, so that a new maximum is rare."""
    return 1 << max(0, amount - 1).bit_length()
