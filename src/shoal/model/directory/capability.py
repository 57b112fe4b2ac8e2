"""The DHT keys that workers provide and schedulers look up for a profile.

A key names a class such as "has a GPU with at least 16 GiB". Along each kind of amount
stand a few rungs, and a worker provides every rung that it reaches. A scheduler that
needs x looks up the highest rung that is not above x, a single key. Every worker that
has x has reached that rung, so none is missed; some that it finds have less than x,
and say so when they are asked. A DHT record is a hint in any case.

Rungs are powers of two where a lookup must be sharp (memory and number of GPUs) and
powers of four where it need not be (CPU and main memory); below the lowest rung nearly
every worker would qualify, so there is none. A gaming PC provides about seven keys, a
server with eight GPUs about fifteen, and each label is one more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from shoal.model.resources import GIB

if TYPE_CHECKING:
    from shoal.model.resources import Capacity, GpuNeed, Profile

ANY: Final = "any"
"""The key that every worker provides, for profiles that ask for nothing rare."""

GPU_MEMORY_RUNGS_GIB: Final = (8, 16, 32, 64, 128)
GPU_COUNT_RUNGS: Final = (1, 2, 4, 8, 16)
RAM_RUNGS_GIB: Final = (32, 128, 512, 2048)
CPU_RUNGS: Final = (16, 64, 256)

COMMON_VENDOR: Final = "nvidia"


def capability_keys(capacity: Capacity) -> tuple[str, ...]:
    """Return the keys of all classes that a worker with `capacity` belongs to."""
    devices = capacity.devices
    memory_bytes = max((device.memory_bytes for device in devices), default=0)
    vendors = {_vendor_key(device.vendor) for device in devices if device.vendor}
    models = {_model_key(device.model) for device in devices if device.model}
    return (
        *(_label_key(label) for label in sorted(capacity.labels)),
        *(_loan_key(name) for name in sorted(capacity.lends)),
        *sorted(models),
        *sorted(vendors),
        *_rungs("gpu-memory", GPU_MEMORY_RUNGS_GIB, memory_bytes // GIB),
        *_rungs("gpu-count", GPU_COUNT_RUNGS, len(devices)),
        *_rungs("ram", RAM_RUNGS_GIB, capacity.memory_bytes // GIB),
        *_rungs("cpu", CPU_RUNGS, capacity.cpu_milli // 1_000),
        ANY,
    )


def lookup_keys(profile: Profile) -> tuple[str, ...]:
    """Return the classes that `profile` falls into, the rarest first; never none.

    A worker that can serve `profile` provides every one of these keys, so any of them
    finds it. A need for one of several models has no key for models, since no worker
    must have them all.
    """
    gpu_keys = _gpu_lookup_keys(profile.gpu) if profile.gpu else ()
    return (
        *(_loan_key(name) for name in sorted(profile.uses)),
        *(_label_key(label) for label in sorted(profile.labels)),
        *gpu_keys,
        *_rungs("ram", RAM_RUNGS_GIB, profile.memory_bytes // GIB)[-1:],
        *_rungs("cpu", CPU_RUNGS, profile.cpu_milli // 1_000)[-1:],
        ANY,
    )


def _gpu_lookup_keys(need: GpuNeed) -> tuple[str, ...]:
    model = [_model_key(name) for name in need.models] if len(need.models) == 1 else []
    vendor = [_vendor_key(need.vendor)] if need.vendor else []
    is_common = need.vendor.lower() == COMMON_VENDOR
    memory = _rungs("gpu-memory", GPU_MEMORY_RUNGS_GIB, need.memory_min_bytes // GIB)
    count = _rungs("gpu-count", GPU_COUNT_RUNGS, need.count)
    # Of a common vendor there are more GPUs than of a given size; else it is rare.
    middle = [*memory[-1:], *vendor] if is_common else [*vendor, *memory[-1:]]
    return (*model, *middle, *count[-1:])


def _rungs(kind: str, rungs: tuple[int, ...], amount: int) -> list[str]:
    return [f"{kind}/{rung}" for rung in rungs if rung <= amount]


def _model_key(model: str) -> str:
    return f"gpu-model/{model.upper()}"


def _vendor_key(vendor: str) -> str:
    return f"gpu-vendor/{vendor.lower()}"


def _loan_key(name: str) -> str:
    return f"lends/{name}"


def _label_key(label: tuple[str, str]) -> str:
    name, value = label
    return f"label/{name}={value}"
