"""Measure what this machine can lend: CPUs, memory, disk and GPUs.

Cgroup limits count as the size of the machine. GPUs are detected by NVML, or declared
by the user; a machine without an NVIDIA driver has none. These functions block for some
milliseconds, or seconds with some drivers: call them in a thread.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

import psutil

from shoal.drivers.gpus import FoundGpus
from shoal.drivers.gpus.nvidia import SHARED
from shoal.drivers.limits.machine_limits import machine_limits
from shoal.errors import UsageError
from shoal.model.resources import Capacity, Device
from shoal.model.text.bounds import AMOUNT_MAX, DEVICES_MAX, NAME_LENGTH_MAX

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

MIB: Final = 1 << 20
VENDORS: Final = ("nvidia", "amd", "apple", "intel")


def capacity(
    folder: Path,
    gpus: Sequence[Device] = (),
    labels: tuple[tuple[str, str], ...] = (),
) -> Capacity:
    """Return what this machine can lend; `folder` is on the disk that it lends."""
    limits = machine_limits()
    memory_bytes = psutil.virtual_memory().total
    cpu_milli = 1_000 * len(os.sched_getaffinity(0))
    return Capacity(
        cpu_milli=min(cpu_milli, limits.cpu_milli or cpu_milli),
        memory_bytes=min(memory_bytes, limits.memory_bytes or memory_bytes),
        disk_bytes=psutil.disk_usage(str(folder)).free,
        devices=tuple(gpus),
        labels=tuple(sorted(labels)),
    )


# GPUs.


def declared_gpus(gpus: str, models: str = "", memories: str = "") -> FoundGpus:
    """Return GPUs declared by `--gpus 0,1 --models A,B --memories MB,MB`.

    Models and memories are optional; if given, there must be one for each GPU.
    """
    ids = _items(gpus)
    if len(set(ids)) < len(ids):
        raise UsageError(
            f"--gpus {gpus} names a GPU twice",
            because="each GPU can be lent once",
            hint="list each id once",
        )
    named = [_name(model.upper()) for model in _items(models)]
    names = _as_many("--models", named, ids) or [""] * len(ids)
    sizes = _as_many("--memories", _items(memories), ids) or ["0"] * len(ids)
    if len(ids) > DEVICES_MAX:
        raise UsageError(
            f"{len(ids)} GPUs are too many",
            because=f"one worker lends at most {DEVICES_MAX}",
            hint="start a second worker for the others",
        )
    devices = [
        Device(_name(id_), *_vendor_and_model(model), _mebibytes(size))
        for id_, model, size in zip(ids, names, sizes, strict=True)
    ]
    numbered = [
        device.id
        for device in devices
        if device.id.isdecimal() and device.vendor == VENDORS[0]
    ]
    return FoundGpus(
        tuple(devices), {id_: (f"/dev/nvidia{id_}", *SHARED) for id_ in numbered}
    )


def _vendor_and_model(text: str) -> tuple[str, str]:
    """Read `A100` or `AMD:MI300X`; without a vendor it is NVIDIA's."""
    vendor, colon, model = text.partition(":")
    if not colon:
        return VENDORS[0], text
    if vendor.lower() not in VENDORS:
        raise UsageError(
            f"--models has the vendor '{vendor}'",
            because=f"vendors are {', '.join(VENDORS)}",
            hint="write it like --models amd:MI300X",
        )
    return vendor.lower(), model


def _items(text: str) -> list[str]:
    return [item.strip() for item in text.split(",")] if text.strip() else []


def _as_many(option: str, items: list[str], ids: list[str]) -> list[str]:
    if items and len(items) != len(ids):
        raise UsageError(
            f"{option} has {len(items)} entries and --gpus has {len(ids)}",
            because="there must be one for each GPU, in the same order",
            hint=f"write {option} with {len(ids)} entries, separated by commas",
        )
    return items


def _name(text: str) -> str:
    if not text or len(text) > NAME_LENGTH_MAX:
        raise UsageError(
            f"'{text[:16]}' cannot name a GPU or a model",
            because=f"a name has 1 to {NAME_LENGTH_MAX} characters",
            hint="write it like --gpus 0,1 --models RTX3090,RTX3090",
        )
    return text


def _mebibytes(text: str) -> int:
    if not (text.isascii() and text.isdecimal()) or int(text) * MIB > AMOUNT_MAX:
        raise UsageError(
            f"--memories has '{text}'",
            because="the memory of a GPU is a whole number of MB",
            hint="write it like --memories 24576,24576",
        )
    return int(text) * MIB
