"""Explain why a task waits: what each worker lacks, and what would help."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

import msgspec
import numpy as np

from shoal.model.ids import NodeId
from shoal.model.kinds import COMMAND, KINDS, driver_of
from shoal.model.resources import GIB, GpuNeed, Profile
from shoal.policy.filters import FILTERS, mask
from shoal.policy.table.grid import Grid
from shoal.policy.table.rows import Bools, Ints, WorkerRow
from shoal.policy.table.task_shapes import TaskShape
from shoal.policy.table.worker_table import WorkerTable
from shoal.policy.worker_view import view_of

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator

SIZES_TRIED_MAX: Final = 16
"""Sizes of GPU memory that are tried as a smaller wish."""

INSTALL: Final = "`pip install '.[train]'` and `shoal up` again"
"""What brings the modules of recipes; a node looks for them when it starts."""


class Rejected(msgspec.Struct, frozen=True):
    """The first condition that a worker does not meet, in numbers."""

    node: NodeId
    reason: str


class Explanation(msgspec.Struct, frozen=True):
    """What stands between a task and each worker."""

    fitting: int  # workers that could run it now
    rejected: tuple[Rejected, ...]  # by node id
    summary: tuple[tuple[str, int], ...]  # reasons and how many gave them, most first
    helps: tuple[str, ...]  # what would help, the smallest change first

    def __str__(self) -> str:
        total = self.fitting + len(self.rejected)
        lines = [f"{self.fitting} of {total} workers could run it now"]
        lines += [f"{count:>6}  {reason}" for reason, count in self.summary]
        if self.helps:
            lines.append("fixes:  " + "   |   ".join(self.helps))
        return "\n".join(lines)


def explain(
    profile: Profile,
    table: WorkerTable,
    *,
    driver: str = "process",
    rtt_max_us: int | None = None,
    nodes: tuple[NodeId, ...] = (),
) -> Explanation:
    """Say for each worker why it cannot run such a task now, and what would help."""
    shape = TaskShape(profile, driver, rtt_max_us, nodes)
    need, grid = table.need(shape), table.grid
    passed = [grid.columns.live & condition.mask(need, grid) for condition in FILTERS]
    rejected = tuple(_rejected(shape, grid, passed))
    counts = Counter(each.reason for each in rejected)
    return Explanation(
        fitting=len(table) - len(rejected),
        rejected=rejected,
        summary=tuple(sorted(counts.items(), key=lambda item: (-item[1], item[0]))),
        helps=tuple(_helps(shape, table, passed))
        if len(rejected) == len(table)
        else (),
    )


def _rejected(shape: TaskShape, grid: Grid, passed: list[Bools]) -> Iterator[Rejected]:
    """Go through the workers that fail, by node id; alike workers share the words."""
    first: Ints = np.argmin([*passed, np.zeros_like(passed[0])], axis=0)
    order = grid.order()
    indices: list[int] = order.tolist()
    failed: list[int] = first[order].tolist()
    words: dict[tuple[int, Hashable], str] = {}
    for index, which in zip(indices, failed, strict=True):
        row = grid.rows[index]
        if which == len(FILTERS) or row is None:
            continue
        condition = FILTERS[which]
        key = (which, _what_matters(condition.name, row))
        why = words.get(key)
        if why is None:
            why = words[key] = condition.reason(shape, view_of(row)) or condition.name
        yield Rejected(row.node, why)


def _what_matters(condition: str, row: WorkerRow) -> Hashable:
    """Return all that the words of a condition depend on."""
    match condition:
        case "cpu":
            return row.cpu_milli
        case "memory":
            return row.memory_bytes
        case "disk":
            return row.disk_bytes
        case "rtt":
            return row.path_cost_us
        case "label":
            return row.capacity.labels
        case "module":
            return row.capacity.lacks
        case "driver":
            return (row.drivers, row.terms)
        case "gpu":
            return (*row.kinds, *row.gpu_free, *row.gpu_memory_free)
        case _:
            return None


def _helps(shape: TaskShape, table: WorkerTable, passed: list[Bools]) -> Iterator[str]:
    """Try what can be relaxed, one condition at a time."""
    columns = table.grid.columns
    for place, condition in enumerate(FILTERS):
        others = np.logical_and.reduce(passed[:place] + passed[place + 1 :])
        if not others.any():
            continue
        match condition.name:
            case "cpu":
                if most := int(columns.cpu_milli[others].max()):
                    yield f"--cpus {most / 1000:g}"
            case "memory":
                if most := int(columns.memory_bytes[others].max()):
                    yield f"--ram {_gb(most)}"
            case "disk":
                if most := int(columns.disk_bytes[others].max()):
                    yield f"--disk {_gb(most)}"
            case "rtt":
                yield f"max_rtt: {int(columns.path_cost_us[others].min()) / 1e3:g}ms"
            case "label":
                wanted = ", ".join(
                    f"{key}={value}" for key, value in shape.profile.labels
                )
                yield f"without the label {wanted}: {_workers(int(others.sum()))}"
            case "driver":
                told = _other_drivers(shape, table)
                yield f"{told}: {_workers(int(others.sum()))}"
            case "node" if shape.nodes:
                yield f"without --on: {_workers(int(others.sum()))}"
            case "module":
                yield f"{INSTALL} there: {_workers(int(others.sum()))}"
            case "gpu":
                yield from _fewer_gpus(shape, table, others)
            case _:
                pass
    yield from _waiting(shape, table)


def _other_drivers(shape: TaskShape, table: WorkerTable) -> str:
    """Tell how workers that fit otherwise would offer the driver."""
    if any(row and row.terms for row in table.grid.rows):
        return "machines of your own, or whose owners let others in"
    if shape.driver in KINDS[COMMAND]:
        return f"`shoal up --allow {COMMAND}` there"
    return f"another driver than {driver_of(shape.driver)}"


def _fewer_gpus(shape: TaskShape, table: WorkerTable, others: Bools) -> Iterator[str]:
    gpu = shape.profile.gpu
    assert gpu is not None
    free = table.grid.columns.fitting_gpus(table.need(shape)).sum(axis=1)[others]
    most = int(free.max())
    if most:
        yield f"--gpus {most}"
        nodes = -(-gpu.count // most)
        if gpu.count % most == 0 and int((free >= most).sum()) >= nodes:
            yield f"nodes: {nodes} with gpu: {most}"
    if size := _smaller_memory(shape, gpu, table):
        yield f"--gpu-mem {_gb(size)}"
    any_model = msgspec.structs.replace(gpu, models=(), vendor="")
    if any_model != gpu and _fit_now(shape, any_model, table):
        yield "any gpu model"


def _smaller_memory(shape: TaskShape, gpu: GpuNeed, table: WorkerTable) -> int:
    """Return the largest size of GPU memory below the wish that is to be had."""
    sizes = {
        device.memory_bytes
        for row in table.grid.rows
        if row is not None
        for device in row.capacity.devices
        if device.memory_bytes < gpu.memory_min_bytes
    }
    for size in sorted(sizes, reverse=True)[:SIZES_TRIED_MAX]:
        if _fit_now(shape, msgspec.structs.replace(gpu, memory_min_bytes=size), table):
            return size
    return 0


def _fit_now(shape: TaskShape, gpu: GpuNeed, table: WorkerTable) -> bool:
    profile = msgspec.structs.replace(shape.profile, gpu=gpu)
    relaxed = msgspec.structs.replace(shape, profile=profile)
    return bool(mask(table.need(relaxed), table.grid).any())


def _waiting(shape: TaskShape, table: WorkerTable) -> Iterator[str]:
    """Tell whether time alone would help: some worker is large enough when idle."""
    need = table.need(shape)
    fewest: int | None = None
    for row in table.grid.rows:
        if row is not None and row.fits_idle(need):
            fewest = row.active if fewest is None else min(fewest, row.active)
    if fewest is not None:
        tasks = "one task ends" if fewest == 1 else f"{fewest} tasks end"
        yield f"wait until {tasks} on one worker" if fewest else "wait"
    elif shape.profile.gpu is not None and shape.profile.gpu.count > 1:
        yield f"wait for a node with {shape.profile.gpu.count}"


def _workers(count: int) -> str:
    return "1 worker" if count == 1 else f"{count} workers"


def _gb(amount_bytes: int) -> str:
    return f"{amount_bytes / GIB:.4g}GB"
