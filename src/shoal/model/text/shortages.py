"""What a worker lacks for a task, in words with numbers and units.

What the worker could not give even when idle has other words (`has 4 CPUs, 8 needed`)
than what others hold for now (`1 of 4 CPUs free, 2 needed`). A reason that time cannot
cure is told first: to a user who waits for an A100 it is no help that memory is short.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from shoal.model.text.bounds import MILLI_MAX
from shoal.model.units import format_cpu, format_duration

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from shoal.model.resources import Capacity, Device, GpuNeed, Profile

WHOLE_MILLI: Final = MILLI_MAX
DATA: Final = "data:"
PYTHON: Final = "python:"
"""What begins the names of folders and of Python environments that a worker lends."""


def in_gib(amount_bytes: int) -> str:
    """Write an amount of memory for people."""
    return f"{amount_bytes / (1 << 30):.4g} GiB"


def cpu_short(free_milli: int, all_milli: int, needed_milli: int) -> str | None:
    """Say how CPU is short, if it is."""
    if needed_milli <= free_milli:
        return None
    owned, needed = format_cpu(all_milli), format_cpu(needed_milli)
    cpus = "CPU" if all_milli == WHOLE_MILLI else "CPUs"
    if needed_milli > all_milli:
        return f"has {owned} {cpus}, {needed} needed"
    return f"{format_cpu(free_milli)} of {owned} {cpus} free, {needed} needed"


def bytes_short(what: str, free: int, capacity: int, needed: int) -> str | None:
    """Say how memory or disk is short, if it is."""
    if needed <= free:
        return None
    if needed > capacity:
        return f"has {in_gib(capacity)} of {what}, {in_gib(needed)} needed"
    return f"{in_gib(free)} of {in_gib(capacity)} {what} free, {in_gib(needed)} needed"


def label_missing(capacity: Capacity, profile: Profile) -> str | None:
    """Say which label a worker lacks that the task requires, if any."""
    for key, value in profile.labels:
        if (key, value) not in capacity.labels:
            has = dict(capacity.labels).get(key)
            if has is None:
                return f"has no label {key}, {key}={value} needed"
            return f"its label {key} is {has}, {value} needed"
    return None


def module_missing(capacity: Capacity, profile: Profile) -> str | None:
    """Say which module a task would not find on a worker, if any."""
    for module in profile.modules:
        if module in capacity.lacks:
            return f"no {module} here"
    return None


def time_short(capacity: Capacity, profile: Profile) -> str | None:
    """Say that a worker may end before a task does, if that is known."""
    left_s, wanted_s = capacity.longest_s, profile.longest_s
    if left_s is None or wanted_s <= left_s:
        return None
    left, wanted = format_duration(left_s), format_duration(wanted_s)
    return f"takes tasks of at most {left} now, it may take {wanted}"


def loan_missing(capacity: Capacity, profile: Profile) -> str | None:
    """Say what that a task uses a worker does not lend, if anything."""
    for name in profile.uses:
        if name not in capacity.lends:
            return not_lent(name, capacity.lends)
    return None


def not_lent(name: str, lends: Iterable[str]) -> str:
    """Say that `name` is not lent, and what else of its kind is."""
    kind, what = DATA, "shares no folder"
    if name.startswith(PYTHON):
        kind, what = PYTHON, "offers no environment"
    there = sorted(each.removeprefix(kind) for each in lends if each.startswith(kind))
    said = f"{what} '{name.removeprefix(kind)}'"
    return f"{said}, only {', '.join(there)}" if there else said


def gpus_short(
    need: GpuNeed, devices: Sequence[Device], has_room: Iterable[bool]
) -> str | None:
    """Say how GPUs are short, if they are; `has_room` tells it of each device."""
    suited = [not need.rules_out(device) for device in devices]
    owned = sum(suited)
    if owned < need.count:
        return _too_few(need, devices, owned)
    free = sum(suits and room for suits, room in zip(suited, has_room, strict=True))
    if free >= need.count:
        return None
    if need.milli == WHOLE_MILLI:
        return f"{free} of {owned} {gpu_noun(need, owned)} free, {need.count} needed"
    share = f"{need.milli / 10:g} % of a {gpu_noun(need, 1)}"
    return f"none of {owned} has {share} free"


def gpu_noun(need: GpuNeed, count: int) -> str:
    """Name the GPUs that would do, such as `A100` or `GPUs of 24 GiB or more`."""
    noun = " or ".join(need.models) or ("GPU" if count == 1 else "GPUs")
    if need.vendor:
        noun = f"{need.vendor} {noun}"
    if need.memory_min_bytes:
        noun += f" of {in_gib(need.memory_min_bytes)} or more"
    if need.memory_max_bytes is not None:
        noun += f" of {in_gib(need.memory_max_bytes)} or less"
    return noun


def _too_few(need: GpuNeed, devices: Sequence[Device], owned: int) -> str:
    if owned:
        return f"has {owned} {gpu_noun(need, owned)}, {need.count} needed"
    if not devices:
        return "has no GPU"
    kin = [d for d in devices if not need.is_other_kind(d)]
    if not kin:
        return f"has no {_kind(need)}, only {_models(devices)}"
    sizes = " and ".join(dict.fromkeys(in_gib(d.memory_bytes) for d in kin))
    least, most = need.memory_min_bytes, need.memory_max_bytes
    if max(d.memory_bytes for d in kin) < least or most is None:
        return f"its {_models(kin)} has {sizes} of memory, {in_gib(least)} needed"
    return f"its {_models(kin)} has {sizes} of memory, {in_gib(most)} is the most"


def _kind(need: GpuNeed) -> str:
    noun = " or ".join(need.models) or "GPU"
    return f"{need.vendor} {noun}" if need.vendor else noun


def _models(devices: Sequence[Device]) -> str:
    return " and ".join(dict.fromkeys(d.model or "GPU" for d in devices))
