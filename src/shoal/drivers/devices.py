"""Measure what this machine can lend: CPUs, memory, disk and GPUs.

Cgroup limits count as the size of the machine. GPUs are detected by NVML, or declared
by the user; a machine without an NVIDIA driver has none. These functions block for some
milliseconds, or seconds with some drivers: call them in a thread.
"""

from __future__ import annotations

import importlib
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec
import psutil

from shoal.drivers.limits.cgroup import below, mounts
from shoal.errors import UsageError
from shoal.model.resources import GIB, Capacity, Device
from shoal.model.text.bounds import AMOUNT_MAX, DEVICES_MAX, NAME_LENGTH_MAX

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

MIB: Final = 1 << 20
ADVERTISED_GIB: Final = (
    *(1, 2, 3, 4, 6, 8, 10, 11, 12, 16, 20, 24, 32, 40, 48, 64, 72, 80, 94, 96),
    *(128, 141, 144, 180, 192, 256, 288, 384, 512),
)
MISSING_SHARE_MAX: Final = 0.1
"""Largest share of advertised memory that the driver and ECC may withhold."""

NVIDIA_SHARED: Final = (
    "/dev/nvidiactl",
    "/dev/nvidia-uvm",
    "/dev/nvidia-uvm-tools",
    "/dev/nvidia-modeset",
)


class FoundGpus(msgspec.Struct, frozen=True):
    """GPUs, and the device files that a task needs for each."""

    devices: tuple[Device, ...] = ()
    files: dict[str, tuple[str, ...]] = {}


class DeviceLimits(msgspec.Struct, frozen=True):
    """Limits of this process's cgroups; None means no limit."""

    cpu_milli: int | None = None
    memory_bytes: int | None = None


def capacity(
    folder: Path,
    gpus: Sequence[Device] = (),
    labels: tuple[tuple[str, str], ...] = (),
) -> Capacity:
    """Return what this machine can lend; `folder` is on the disk that it lends."""
    limits = cgroup_limits()
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


def detect_gpus() -> FoundGpus:
    """Return the NVIDIA GPUs by driver index; none without a driver."""
    # The module has no types.
    nvml: Any = importlib.import_module("pynvml")
    try:
        nvml.nvmlInit()
    except nvml.NVMLError:
        return FoundGpus()
    try:
        count = min(nvml.nvmlDeviceGetCount(), DEVICES_MAX)
        found = [_read_gpu(nvml, index) for index in range(count)]
    except nvml.NVMLError:
        return FoundGpus()
    finally:
        nvml.nvmlShutdown()
    return FoundGpus(
        tuple(device for device, _ in found),
        {device.id: (minor, *NVIDIA_SHARED) for device, minor in found},
    )


def _read_gpu(nvml: Any, index: int) -> tuple[Device, str]:  # noqa: ANN401 - As above.
    handle = nvml.nvmlDeviceGetHandleByIndex(index)
    name = nvml.nvmlDeviceGetName(handle)
    text = name.decode(errors="replace") if isinstance(name, bytes) else str(name)
    total = int(nvml.nvmlDeviceGetMemoryInfo(handle).total)
    minor = int(nvml.nvmlDeviceGetMinorNumber(handle))
    device = Device(str(index), "nvidia", short_model(text), advertised_bytes(total))
    return device, f"/dev/nvidia{minor}"


def advertised_bytes(memory_bytes: int) -> int:
    """Return the advertised size of a GPU whose driver reports `memory_bytes`.

    An RTX 4090 reports 23.99 GiB and a T4 14.75 GiB, but users ask for 24GB or 16GB.
    """
    for gib in ADVERTISED_GIB:
        size = gib * GIB
        if memory_bytes <= size:
            near = memory_bytes >= (1 - MISSING_SHARE_MAX) * size
            return size if near else memory_bytes
    return memory_bytes


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
        Device(_name(id_), "nvidia", model, _mebibytes(size))
        for id_, model, size in zip(ids, names, sizes, strict=True)
    ]
    numbered = [device.id for device in devices if device.id.isdecimal()]
    return FoundGpus(
        tuple(devices), {id_: (f"/dev/nvidia{id_}", *NVIDIA_SHARED) for id_ in numbered}
    )


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


# Cgroups.


def cgroup_limits(
    cgroup: str | None = None, mountinfo: str | None = None
) -> DeviceLimits:
    """Return the tightest cgroup limits on this process, of v2 and v1."""
    if cgroup is None:
        cgroup = Path("/proc/self/cgroup").read_text(encoding="utf-8")
    if mountinfo is None:
        mountinfo = Path("/proc/self/mountinfo").read_text(encoding="utf-8")
    cpus: list[int] = []
    memories: list[int] = []
    for kinds, folder in _groups(cgroup, mountinfo):
        if kinds & {"", "memory"}:
            names = ("memory.max", "memory.limit_in_bytes")
            memories += [limit for name in names if (limit := _number(folder / name))]
        if kinds & {"", "cpu"} and (share := _cpu_milli(folder)):
            cpus.append(share)
    return DeviceLimits(min(cpus, default=None), min(memories, default=None))


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


_BRANDS: Final = frozenset(
    {"NVIDIA", "AMD", "INTEL", "GEFORCE", "TESLA", "QUADRO", "GRAPHICS", "GPU", "(R)"}
    | {"RADEON", "INSTINCT", "CORPORATION"}
)
_NOISE: Final = re.compile(
    r"\d+GB|SXM\d*|PCIE|HBM\d\w*|NVL|WITH|MAX-Q|DESIGN|GENERATION|BLACKWELL|DEVICE"
    r"|WORKSTATION|SERVER|EDITION|\(.*\)",
    re.ASCII,
)
_PROFESSIONAL: Final = re.compile(r"RTX(A\d{4})")  # Users write A6000, not RTXA6000.
_SPLIT: Final = re.compile(r"[\s_/]+|-(?=SXM|PCIE|\d+GB|NVL|HBM)", re.ASCII)
_JOINED: Final = ("RTX", "GTX", "GT", "TITAN", "RX", "PRO", "ARC")
_STAYS: Final = ("TI", "SUPER", "LAPTOP", "MOBILE", "XT", "XTX", "GRE", "ADA")


def short_model(name: str) -> str:
    """Return the short name of a model, in capitals; empty if nothing is left.

    Jobs ask for the short name, so all boards of one model share it: form factor (SXM,
    PCIe), memory and brand are dropped. Parts that denote another chip stay: Ti, SUPER,
    and laptop variants, which are slower.

    >>> short_model("NVIDIA A100-SXM4-80GB")
    'A100'
    >>> short_model("NVIDIA GeForce RTX 4070 Ti SUPER")
    'RTX4070TISUPER'
    """
    words = [word for word in _SPLIT.split(name.upper().strip()) if word]
    kept = [w for w in words if w not in _BRANDS and not _NOISE.fullmatch(w)]
    text = ""
    for word in kept:
        clean = re.sub(r"[^A-Z0-9._+-]", "", word)
        glued = clean in _STAYS or text.endswith(_JOINED) or not text
        text += clean if glued else f"-{clean}"
    return _PROFESSIONAL.sub(r"\1", text.strip("-"))[:NAME_LENGTH_MAX]
