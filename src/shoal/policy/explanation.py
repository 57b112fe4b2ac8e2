"""Explain why a task waits: what each worker lacks, and what would help."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

import msgspec
import numpy as np

from shoal.model.ids import NodeId
from shoal.model.kinds import COMMAND, KINDS, driver_of
from shoal.model.resources import GIB, GpuNeed, Profile
from shoal.model.units import format_cpu
from shoal.policy.filters import FILTERS, mask, reason
from shoal.policy.hopeless import never
from shoal.policy.table.grid import Grid
from shoal.policy.table.rows import Bools, Ints, WorkerRow
from shoal.policy.table.task_shapes import TaskShape
from shoal.policy.table.worker_table import WorkerTable
from shoal.policy.worker_view import view_of

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator

SIZES_TRIED_MAX: Final = 16
"""Sizes of GPU memory that are tried as a smaller wish."""

INSTALL: Final = "`pip install torch safetensors scikit-learn` and `shoal up` again"
"""What brings the modules of recipes; a node looks for them when it starts."""


class Rejected(msgspec.Struct, frozen=True):
    """What keeps a task off one worker, in numbers.

    `is_busy` says that the worker could run it, if others did not hold what it needs.
    """

    node: NodeId
    reason: str
    is_busy: bool = False


class Explanation(msgspec.Struct, frozen=True):
    """What stands between a task and each worker."""

    fitting: int  # workers that could run it now
    rejected: tuple[Rejected, ...]  # busy ones first, each by node id
    summary: tuple[tuple[str, int], ...]  # their reasons, likewise; the commonest first
    helps: tuple[str, ...]  # what would help, the smallest change first
    never: str = ""  # what no worker has, if none could run it even when idle

    @property
    def able(self) -> int:
        """How many workers could run it if they were idle."""
        return self.fitting + sum(each.is_busy for each in self.rejected)

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
    now = [grid.columns.live & each.mask(need, grid) for each in FILTERS]
    idle = [grid.columns.live & each.ever(need, grid) for each in FILTERS]
    rejected = _rejected(shape, grid, idle, now)
    is_hopeless = not np.logical_and.reduce(idle).any()
    helps: list[str] = []
    if len(rejected) == len(table):
        helps = [*_helps(shape, table, idle if is_hopeless else now, is_hopeless)]
    return Explanation(
        fitting=len(table) - len(rejected),
        rejected=rejected,
        summary=_summary(rejected),
        helps=tuple(helps),
        never=never(shape, table, idle) if is_hopeless and len(table) else "",
    )


def _rejected(
    shape: TaskShape, grid: Grid, idle: list[Bools], now: list[Bools]
) -> tuple[Rejected, ...]:
    """Go through the workers that fail; alike workers share the words."""
    first: Ints = np.argmin([*idle, *now, np.zeros_like(now[0])], axis=0)
    order = grid.order()
    indices: list[int] = order.tolist()
    failed: list[int] = first[order].tolist()
    words: dict[tuple[int, Hashable], str] = {}
    found: list[Rejected] = []
    for index, which in zip(indices, failed, strict=True):
        row = grid.rows[index]
        if which == 2 * len(FILTERS) or row is None:
            continue
        condition = FILTERS[which % len(FILTERS)]
        key = (which, _what_matters(condition.name, row))
        why = words.get(key)
        if why is None:
            view = view_of(row)
            why = words[key] = reason(shape, view) or condition.name
        found.append(Rejected(row.node, why, is_busy=which >= len(FILTERS)))
    return tuple(sorted(found, key=lambda each: not each.is_busy))


def _summary(rejected: tuple[Rejected, ...]) -> tuple[tuple[str, int], ...]:
    counts = Counter((not each.is_busy, each.reason) for each in rejected)
    ordered = sorted(counts.items(), key=lambda item: (item[0][0], -item[1], item[0]))
    return tuple((reason, count) for (_, reason), count in ordered)


def _what_matters(condition: str, row: WorkerRow) -> Hashable:
    """Return everything that a condition's wording depends on."""
    match condition:
        case "cpu":
            return (row.cpu_milli, row.cpu_milli_all)
        case "memory":
            return (row.memory_bytes, row.capacity.memory_bytes)
        case "disk":
            return (row.disk_bytes, row.capacity.disk_bytes)
        case "rtt":
            return row.path_cost_us
        case "label":
            return row.capacity.labels
        case "module":
            return row.capacity.lacks
        case "loan":
            return row.capacity.lends
        case "driver":
            return (row.drivers, row.terms)
        case "gpu":
            return (*row.kinds, *row.gpu_free, *row.gpu_memory_free)
        case _:
            return None


def _helps(
    shape: TaskShape, table: WorkerTable, passed: list[Bools], is_hopeless: bool
) -> Iterator[str]:
    """Try what can be relaxed, one condition at a time.

    If no worker could ever run it, then with what they have when idle.
    """
    for place, condition in enumerate(FILTERS):
        others = np.logical_and.reduce(passed[:place] + passed[place + 1 :])
        if not others.any() or passed[place][others].any():
            continue
        rows = [table.grid.rows[index] for index in np.flatnonzero(others)]
        some = [row for row in rows if row is not None]
        match condition.name:
            case "cpu":
                if most := max(_amounts(some, "cpu_milli", is_hopeless)):
                    yield f"--cpus {format_cpu(most)}"
            case "memory":
                if most := max(_amounts(some, "memory_bytes", is_hopeless)):
                    yield f"--ram {_gb(most)}"
            case "disk":
                if most := max(_amounts(some, "disk_bytes", is_hopeless)):
                    yield f"--disk {_gb(most)}"
            case "rtt":
                yield f"max_rtt: {min(row.path_cost_us for row in some) / 1e3:g}ms"
            case "label":
                yield from _other_labels(shape, some)
            case "driver":
                yield f"{_other_drivers(shape, some)}: {_workers(len(some))}"
            case "node":
                yield f"without --on: {_workers(len(some))}"
            case "module" | "loan":
                what = INSTALL if condition.name == "module" else _lending(shape)
                where = (
                    "the worker" if len(some) == 1 else f"one of {len(some)} workers"
                )
                yield f"{what} on {where}"
            case "gpu":
                yield from _fewer_gpus(shape, table, some, is_hopeless)
            case _:
                pass
    names = [condition.name for condition in FILTERS]
    has_gpus = bool(passed[names.index("gpu")].any())
    yield from _waiting(shape, table, has_gpus=has_gpus)


def _lending(shape: TaskShape) -> str:
    """Tell how an owner would lend what is missing."""
    kind, _, name = shape.profile.uses[0].partition(":")
    flag = "--python" if kind == "python" else "--share"
    return f"`shoal up {flag} {name}=FOLDER`"


def _amounts(rows: list[WorkerRow], field: str, is_hopeless: bool) -> list[int]:
    return [getattr(row.capacity if is_hopeless else row, field) for row in rows]


def _other_labels(shape: TaskShape, rows: list[WorkerRow]) -> Iterator[str]:
    wanted = ", ".join(f"{key}={value}" for key, value in shape.profile.labels)
    yield f"without the label {wanted}: {_workers(len(rows))}"
    example = f"{shape.profile.labels[0][0]}={shape.profile.labels[0][1]}"
    yield f"`shoal up --label {example}` on a machine of that kind"


def _other_drivers(shape: TaskShape, rows: list[WorkerRow]) -> str:
    """Tell how workers that fit otherwise would offer the driver."""
    if any(row.terms for row in rows):
        return "machines of your own, or whose owners let others in"
    if shape.driver in KINDS[COMMAND]:
        return f"`shoal up --allow {COMMAND}` there"
    return f"another driver than {driver_of(shape.driver)}"


def _fewer_gpus(
    shape: TaskShape, table: WorkerTable, rows: list[WorkerRow], is_hopeless: bool
) -> Iterator[str]:
    gpu, need = shape.profile.gpu, table.need(shape)
    assert gpu is not None
    free = [
        row.gpus_suited(need) if is_hopeless else len(row.fitting(need)) for row in rows
    ]
    if most := max(free):
        yield f"--gpus {most}"
        nodes = -(-gpu.count // most)
        if gpu.count % most == 0 and sum(each >= most for each in free) >= nodes:
            yield f"nodes: {nodes} with gpu: {most}"
    if size := _smaller_memory(shape, gpu, table, is_hopeless):
        yield f"--gpu-mem {_gb(size)}"
    any_model = msgspec.structs.replace(gpu, models=(), vendor="")
    if any_model != gpu and _would_fit(shape, any_model, table, is_hopeless):
        yield "any gpu model"


def _smaller_memory(
    shape: TaskShape, gpu: GpuNeed, table: WorkerTable, is_hopeless: bool
) -> int:
    """Return the largest size of GPU memory below the wish that is to be had."""
    sizes = {
        device.memory_bytes
        for row in table.grid.rows
        if row is not None
        for device in row.capacity.devices
        if device.memory_bytes < gpu.memory_min_bytes
    }
    for size in sorted(sizes, reverse=True)[:SIZES_TRIED_MAX]:
        smaller = msgspec.structs.replace(gpu, memory_min_bytes=size)
        if _would_fit(shape, smaller, table, is_hopeless):
            return size
    return 0


def _would_fit(
    shape: TaskShape, gpu: GpuNeed, table: WorkerTable, is_hopeless: bool
) -> bool:
    """Whether a smaller wish fits now, or ever if the wish itself never does."""
    profile = msgspec.structs.replace(shape.profile, gpu=gpu)
    need = table.need(msgspec.structs.replace(shape, profile=profile))
    if not is_hopeless:
        return bool(mask(need, table.grid).any())
    return any(row is not None and row.fits_idle(need) for row in table.grid.rows)


def _waiting(shape: TaskShape, table: WorkerTable, *, has_gpus: bool) -> Iterator[str]:
    """Tell whether time alone would help: some worker is large enough when idle."""
    need = table.need(shape)
    able = [row for row in table.grid.rows if row is not None and row.fits_idle(need)]
    busy = [row for row in able if row.active]
    if busy:
        which = "the one worker that is" if len(able) == 1 else "a worker that is"
        yield f"wait until tasks end on {which} large enough"
    elif able:
        yield "wait"
    elif shape.profile.gpu is not None and not has_gpus and shape.profile.gpu.count > 1:
        yield f"wait for a node with {shape.profile.gpu.count} GPUs"


def _workers(count: int) -> str:
    return "1 worker" if count == 1 else f"{count} workers"


def _gb(amount_bytes: int) -> str:
    return f"{amount_bytes / GIB:.4g}GB"
