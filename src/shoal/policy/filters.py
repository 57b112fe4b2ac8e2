"""Placement filters: what a worker must meet to run a task, in order.

Each filter knows three forms of the same rule: `mask` asks all workers at once whether
it holds now, `ever` whether it would if they were idle, and `reason` tells for one
worker why not, in numbers. What a worker could never give is told before what others
hold: see `reason`.
"""

from __future__ import annotations

from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Final, Protocol

import msgspec
import numpy as np

from shoal.model.kinds import driver_of
from shoal.model.resources import WHOLE_GPU_MILLI
from shoal.model.text.shortages import (
    bytes_short,
    cpu_short,
    label_missing,
    loan_missing,
    module_missing,
    time_short,
)
from shoal.policy.table.grid import Grid
from shoal.policy.table.rows import Bools
from shoal.policy.table.task_shapes import Need, TaskShape
from shoal.policy.worker_view import WorkerView

if TYPE_CHECKING:
    from collections.abc import Callable


CLOSED: Final = "takes no new tasks now: it drains, or its owner is using it"


class Filter(Protocol):
    """One condition on a worker."""

    name: str

    def mask(self, need: Need, grid: Grid) -> Bools | bool:
        """Return for each row whether the condition holds; rows not in use may lie."""
        ...

    def ever(self, need: Need, grid: Grid) -> Bools | bool:
        """Return for each row whether the condition would hold if it were idle."""
        ...

    def reason(self, shape: TaskShape, worker: WorkerView) -> str | None:
        """Say why `worker` does not meet the condition, if so."""
        ...


class NotDraining:
    """The worker takes new tasks."""

    name = "draining"

    def mask(self, need: Need, grid: Grid) -> Bools:
        """Return which workers take new tasks."""
        return ~grid.columns.draining

    def ever(self, need: Need, grid: Grid) -> bool:
        """Return that it may take some later."""
        return True

    def reason(self, shape: TaskShape, worker: WorkerView) -> str | None:
        """Say that the worker takes no new tasks."""
        return CLOSED if worker.draining else None


class HasDriver:
    """The worker offers the driver that runs the task."""

    name = "driver"

    def mask(self, need: Need, grid: Grid) -> Bools:
        """Return which workers offer the driver."""
        offers = [row is not None and need.driver in row.drivers for row in grid.rows]
        return _padded(offers, grid)

    ever = mask

    def reason(self, shape: TaskShape, worker: WorkerView) -> str | None:
        """Name the driver that is missing."""
        if shape.driver in worker.drivers:
            return None
        driver = driver_of(shape.driver)
        if worker.terms and (driver in worker.drivers or not worker.drivers):
            return worker.terms
        if driver in worker.drivers:
            return f"gives tasks of driver {driver} no network"
        return f"does not offer the driver {driver}"


class HasModules:
    """The Python of the worker's tasks has the modules that the program imports."""

    name = "module"

    def mask(self, need: Need, grid: Grid) -> Bools | bool:
        """Return which workers are not known to lack one."""
        if not need.modules:
            return True
        has_all = [
            row is not None and need.modules.isdisjoint(row.lacks) for row in grid.rows
        ]
        return _padded(has_all, grid)

    ever = mask

    def reason(self, shape: TaskShape, worker: WorkerView) -> str | None:
        """Name the first module that is missing."""
        return module_missing(worker.capacity, shape.profile)


class LastsLongEnough:
    """The worker does not end before the task must."""

    name = "time"

    def mask(self, need: Need, grid: Grid) -> Bools | bool:
        """Return which workers last as long as the task may take."""
        if not need.longest_s:
            return True
        last = [row is not None and row.lasts(need) for row in grid.rows]
        return _padded(last, grid)

    ever = mask

    def reason(self, shape: TaskShape, worker: WorkerView) -> str | None:
        """Tell how long a task may take there, and how long this one may."""
        return time_short(worker.capacity, shape.profile)


class IsNamed:
    """The job names the worker, if it names any."""

    name = "node"

    def mask(self, need: Need, grid: Grid) -> Bools | bool:
        """Return which workers are named."""
        if not need.nodes:
            return True
        named = [row is not None and row.node in need.nodes for row in grid.rows]
        return _padded(named, grid)

    ever = mask

    def reason(self, shape: TaskShape, worker: WorkerView) -> str | None:
        """Say that the job wants another worker."""
        if not shape.nodes or worker.node in shape.nodes:
            return None
        return "the job names other nodes"


class LendsAll:
    """The worker lends the folders and environments that the job names."""

    name = "loan"

    def mask(self, need: Need, grid: Grid) -> Bools | bool:
        """Return which workers lend all of them."""
        if not need.uses:
            return True
        lend = [row is not None and need.uses <= row.lends for row in grid.rows]
        return _padded(lend, grid)

    ever = mask

    def reason(self, shape: TaskShape, worker: WorkerView) -> str | None:
        """Name the first that is not lent, and what else is."""
        return loan_missing(worker.capacity, shape.profile)


class NearEnough:
    """The path to the worker costs no more than the job allows."""

    name = "rtt"

    def mask(self, need: Need, grid: Grid) -> Bools | bool:
        """Return which workers are near enough."""
        if need.rtt_max_us is None:
            return True
        return grid.columns.path_cost_us <= need.rtt_max_us

    ever = mask

    def reason(self, shape: TaskShape, worker: WorkerView) -> str | None:
        """Tell the cost of the path and the limit."""
        most_us = shape.rtt_max_us
        if most_us is None or worker.path_cost_us <= most_us:
            return None
        away, most = worker.path_cost_us / 1e3, most_us / 1e3
        return f"{away:g} ms away, {most:g} ms is the most"


class HasRoom:
    """Enough CPU, memory or disk is free."""

    def __init__(
        self, name: str, field: str, short: Callable[[int, int, int], str | None]
    ) -> None:
        """Compare the amount of this name, which need, worker and columns all have."""
        self.name = name
        self._amount = attrgetter(field)
        self._short = short

    def mask(self, need: Need, grid: Grid) -> Bools:
        """Return which workers have enough."""
        enough: Bools = self._amount(grid.columns) >= self._amount(need)
        return enough

    def ever(self, need: Need, grid: Grid) -> Bools:
        """Return which workers are large enough."""
        wanted = self._amount(need)
        large = [
            row is not None and self._amount(row.capacity) >= wanted
            for row in grid.rows
        ]
        return _padded(large, grid)

    def reason(self, shape: TaskShape, worker: WorkerView) -> str | None:
        """Tell what there is and what is needed."""
        own = self._amount(worker.capacity)
        return self._short(self._amount(worker), own, self._amount(shape.profile))


class HasLabels:
    """The worker carries all the labels that the job asks for."""

    name = "label"

    def mask(self, need: Need, grid: Grid) -> Bools | bool:
        """Return which workers carry the labels."""
        if not need.labels:
            return True
        carry = [row is not None and need.labels <= row.labels for row in grid.rows]
        return _padded(carry, grid)

    ever = mask

    def reason(self, shape: TaskShape, worker: WorkerView) -> str | None:
        """Tell the first label that differs."""
        return label_missing(worker.capacity, shape.profile)


class HasGpus:
    """Enough devices suit the task and have room for it."""

    name = "gpu"

    def mask(self, need: Need, grid: Grid) -> Bools | bool:
        """Return which workers have the devices."""
        if need.gpu is None:
            return True
        fitting = grid.columns.fitting_gpus(need).sum(axis=1)
        enough: Bools = fitting >= need.gpus_min
        return enough

    def ever(self, need: Need, grid: Grid) -> Bools | bool:
        """Return which workers own enough devices that suit."""
        if need.gpu is None:
            return True
        suited = [row is not None and row.gpus_suited(need) for row in grid.rows]
        return _padded([each >= need.gpus_min for each in suited], grid)

    def reason(self, shape: TaskShape, worker: WorkerView) -> str | None:
        """Tell how many devices there are and how many are needed."""
        return worker.ledger.gpus_short(shape.profile.gpu)


FILTERS: Final[tuple[Filter, ...]] = (
    IsNamed(),
    HasDriver(),
    HasModules(),
    LastsLongEnough(),
    LendsAll(),
    HasLabels(),
    HasGpus(),
    NearEnough(),
    HasRoom("cpu", "cpu_milli", cpu_short),
    HasRoom("memory", "memory_bytes", partial(bytes_short, "memory")),
    HasRoom("disk", "disk_bytes", partial(bytes_short, "disk")),
    NotDraining(),
)
"""All conditions, in the order in which they are told: first what is rarest."""


def mask(need: Need, grid: Grid) -> Bools:
    """Return which rows in use meet all conditions."""
    meets = grid.columns.live.copy()
    for condition in FILTERS:
        meets &= condition.mask(need, grid)
    return meets


def reason(shape: TaskShape, worker: WorkerView) -> str | None:
    """Say why `worker` cannot run a task now, in numbers; None if it can.

    A condition that it could not meet even when idle is told first: no end of a task
    would help.
    """
    for view in (idle(worker), worker):
        for condition in FILTERS:
            if why := condition.reason(shape, view):
                return why
    return None


def idle(worker: WorkerView) -> WorkerView:
    """Return the worker as it would be if nothing ran on it."""
    own = worker.capacity
    return msgspec.structs.replace(
        worker,
        cpu_milli=own.cpu_milli,
        memory_bytes=own.memory_bytes,
        disk_bytes=own.disk_bytes,
        gpu_milli=(WHOLE_GPU_MILLI,) * len(own.devices),
        gpu_memory=tuple(device.memory_bytes for device in own.devices),
        draining=False,
    )


def _padded(answers: list[bool], grid: Grid) -> Bools:
    column: Bools = np.zeros_like(grid.columns.live)
    column[: len(answers)] = answers
    return column
