"""What no worker of a shoal has, in one sentence, for a task that none could ever run.

`no node has an A100` is worth more than what each of a hundred nodes lacks. If a single
condition keeps every worker off, it is named with the best that there is; otherwise the
commonest reasons are.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from shoal.errors import nearest
from shoal.model.kinds import driver_of
from shoal.model.text.shortages import DATA, gpu_noun, in_gib
from shoal.model.units import format_cpu, format_duration
from shoal.policy.filters import FILTERS, reason
from shoal.policy.worker_view import view_of

if TYPE_CHECKING:
    from shoal.model.resources import GpuNeed
    from shoal.policy.table.rows import Bools, WorkerRow
    from shoal.policy.table.task_shapes import TaskShape
    from shoal.policy.table.worker_table import WorkerTable

ROWS_TOLD_MAX: Final = 1_000
"""Workers whose own reasons are counted when no single condition keeps all off."""

REASONS_TOLD_MAX: Final = 3
NAMES_TOLD_MAX: Final = 8
ALIKE: Final = 0.8  # of 1: how much two labels must have in common

NODES_UNKNOWN: Final = "none of the nodes that it names is known here"


def never(shape: TaskShape, table: WorkerTable, idle: list[Bools]) -> str:
    """Say what no worker has; `idle` tells for each filter who passes when idle."""
    rows = [row for row in table.grid.rows if row is not None]
    for condition, passed in zip(FILTERS, idle, strict=True):
        if not passed.any():
            return _nobody(condition.name, shape, table, rows)
    told = Counter(reason(shape, view_of(row)) or "" for row in rows[:ROWS_TOLD_MAX])
    some = [
        f"{why} at {count} of {len(rows)}"
        for why, count in told.most_common(REASONS_TOLD_MAX)
    ]
    return f"no node has all that it asks for: {', '.join(some)}"


def _nobody(
    condition: str, shape: TaskShape, table: WorkerTable, rows: list[WorkerRow]
) -> str:
    profile = shape.profile
    match condition:
        case "driver":
            return _no_driver(shape, rows)
        case "node":
            return NODES_UNKNOWN
        case "module":
            lacking = [m for m in profile.modules if all(m in r.lacks for r in rows)]
            return f"no node has the Python module {' or '.join(lacking[:1])}"
        case "time":
            lasting = max(row.capacity.longest_s or 0 for row in rows)
            wanted = format_duration(profile.longest_s)
            most = format_duration(lasting)
            return f"no node is there for {wanted}: {_most(most)}"
        case "loan":
            return _not_lent(profile.uses, rows)
        case "label":
            return _no_label(profile.labels, rows)
        case "gpu":
            assert profile.gpu is not None
            return _no_gpu(profile.gpu, table, shape, rows)
        case "rtt":
            nearest = min(row.path_cost_us for row in rows) / 1e3
            most_ms = (shape.rtt_max_us or 0) / 1e3
            return (
                f"no node is within {most_ms:g} ms: the nearest is {nearest:g} ms away"
            )
        case "cpu":
            cpus = format_cpu(max(row.cpu_milli_all for row in rows))
            return f"no node has {format_cpu(profile.cpu_milli)} CPUs: {_most(cpus)}"
        case "memory":
            most = in_gib(max(row.capacity.memory_bytes for row in rows))
            wanted = in_gib(profile.memory_bytes)
            return f"no node has {wanted} of memory: {_most(most)}"
        case "disk":
            most = in_gib(max(row.capacity.disk_bytes for row in rows))
            return f"no node lends {in_gib(profile.disk_bytes)} of disk: {_most(most)}"
        case _:
            return f"no node meets its condition: {condition}"


def _most(amount: str) -> str:
    return f"the most is {amount}"


def _no_driver(shape: TaskShape, rows: list[WorkerRow]) -> str:
    driver = driver_of(shape.driver)
    if terms := next((row.terms for row in rows if row.terms), ""):
        return f"no node takes tasks of driver {driver} from you: {terms}"
    if driver != shape.driver and any(driver in row.drivers for row in rows):
        return f"no node gives tasks of driver {driver} a network"
    return f"no node offers the driver {driver}"


def _not_lent(uses: tuple[str, ...], rows: list[WorkerRow]) -> str:
    """Name a resource that no worker lends, and what they lend instead."""
    lent = sorted({name for row in rows for name in row.lends})
    for wanted in uses:
        kind, _, name = wanted.partition(":")
        if wanted in lent:
            continue
        shares, there = (
            ("shares", "shared here")
            if f"{kind}:" == DATA
            else (
                "offers the Python environment",
                "offered here",
            )
        )
        others = [each.partition(":")[2] for each in lent if each.startswith(kind)]
        known = f"; {there}: {', '.join(others[:NAMES_TOLD_MAX])}" if others else ""
        return f"no node {shares} '{name}'{known}"
    return "no node lends all that it uses together"


def _no_label(labels: tuple[tuple[str, str], ...], rows: list[WorkerRow]) -> str:
    """Name a label that no worker carries, and the most similar one."""
    carried = sorted({f"{key}={value}" for row in rows for key, value in row.labels})
    for key, value in labels:
        wanted = f"{key}={value}"
        if wanted in carried:
            continue
        if alike := nearest(wanted, carried, alike=ALIKE):
            return f"no node has the label {wanted}: did you mean {alike}?"
        values = [each for each in carried if each.partition("=")[0] == key]
        known = f": there are {', '.join(values[:5])}" if values else ""
        return f"no node has the label {wanted}{known}"
    return "no node has all the labels together"


def _no_gpu(
    gpu: GpuNeed, table: WorkerTable, shape: TaskShape, rows: list[WorkerRow]
) -> str:
    devices = [device for row in rows for device in row.capacity.devices]
    if not devices:
        return "no node has a GPU"
    need = table.need(shape)
    if most := max(row.gpus_suited(need) for row in rows):
        noun, in_all = gpu_noun(gpu, gpu.count), sum(r.gpus_suited(need) for r in rows)
        together = f", all nodes together have {in_all}" if in_all > most else ""
        return f"no node has {gpu.count} {noun}: {_most(str(most))}{together}"
    kin = [device for device in devices if not gpu.is_other_kind(device)]
    if kin and max(each.memory_bytes for each in kin) < gpu.memory_min_bytes:
        largest = in_gib(max(each.memory_bytes for each in kin))
        return f"no node has {_a(gpu_noun(gpu, 1))}: {_most(largest)}"
    models = ", ".join(sorted({each.model or "unknown" for each in devices})[:5])
    return f"no node has {_a(gpu_noun(gpu, 1))}: there are {models}"


def _a(noun: str) -> str:
    """Put an article before the name of a GPU, as it is spoken."""
    return f"an {noun}" if noun[:1] in "AEFHILMNORSXaei" else f"a {noun}"
