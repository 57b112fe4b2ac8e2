"""Placement filters: what a worker must meet to run a task, in order.

Each filter knows two forms of the same rule: `mask` asks all workers at once, and
`reason` tells for one worker why not, in numbers.
"""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING, Final, Protocol

import numpy as np

from shoal.model.kinds import driver_of
from shoal.model.resources import in_gib, missing_module
from shoal.policy.table.grid import Grid
from shoal.policy.table.rows import Bools
from shoal.policy.table.task_shapes import Need, TaskShape
from shoal.policy.worker_view import WorkerView

if TYPE_CHECKING:
    from collections.abc import Callable


class Filter(Protocol):
    """One condition on a worker."""

    name: str

    def mask(self, need: Need, grid: Grid) -> Bools | bool:
        """Return for each row whether the condition holds; rows not in use may lie."""
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

    def reason(self, shape: TaskShape, worker: WorkerView) -> str | None:
        """Say that the worker takes no new tasks."""
        return "draining" if worker.draining else None


class HasDriver:
    """The worker offers the driver that runs the task."""

    name = "driver"

    def mask(self, need: Need, grid: Grid) -> Bools:
        """Return which workers offer the driver."""
        offers = [row is not None and need.driver in row.drivers for row in grid.rows]
        return _padded(offers, grid)

    def reason(self, shape: TaskShape, worker: WorkerView) -> str | None:
        """Name the driver that is missing."""
        if shape.driver in worker.drivers:
            return None
        driver = driver_of(shape.driver)
        if worker.terms and (driver in worker.drivers or not worker.drivers):
            return worker.terms
        if driver in worker.drivers:
            return f"driver {driver} is not offered with a network"
        return f"driver {driver} not offered"


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

    def reason(self, shape: TaskShape, worker: WorkerView) -> str | None:
        """Name the first module that is missing."""
        return missing_module(worker.capacity, shape.profile)


class IsNamed:
    """The job names the worker, if it names any."""

    name = "node"

    def mask(self, need: Need, grid: Grid) -> Bools | bool:
        """Return which workers are named."""
        if not need.nodes:
            return True
        named = [row is not None and row.node in need.nodes for row in grid.rows]
        return _padded(named, grid)

    def reason(self, shape: TaskShape, worker: WorkerView) -> str | None:
        """Say that the job wants another worker."""
        if not shape.nodes or worker.node in shape.nodes:
            return None
        return "the job names other nodes"


class NearEnough:
    """The path to the worker costs no more than the job allows."""

    name = "rtt"

    def mask(self, need: Need, grid: Grid) -> Bools | bool:
        """Return which workers are near enough."""
        if need.rtt_max_us is None:
            return True
        return grid.columns.path_cost_us <= need.rtt_max_us

    def reason(self, shape: TaskShape, worker: WorkerView) -> str | None:
        """Tell the cost of the path and the limit."""
        most_us = shape.rtt_max_us
        if most_us is None or worker.path_cost_us <= most_us:
            return None
        return f"rtt {worker.path_cost_us / 1e3:g} ms > {most_us / 1e3:g} ms"


class HasRoom:
    """Enough CPU, memory or disk is free."""

    def __init__(self, name: str, field: str, written: Callable[[int], str]) -> None:
        """Compare the amount of this name, which need, worker and columns all have."""
        self.name = name
        self._amount = attrgetter(field)
        self._written = written

    def mask(self, need: Need, grid: Grid) -> Bools:
        """Return which workers have enough."""
        enough: Bools = self._amount(grid.columns) >= self._amount(need)
        return enough

    def reason(self, shape: TaskShape, worker: WorkerView) -> str | None:
        """Tell what is free and what is needed."""
        have, want = self._amount(worker), self._amount(shape.profile)
        if have >= want:
            return None
        return f"{self.name} {self._written(have)} < {self._written(want)}"


class HasLabels:
    """The worker carries all the labels that the job asks for."""

    name = "label"

    def mask(self, need: Need, grid: Grid) -> Bools | bool:
        """Return which workers carry the labels."""
        if not need.labels:
            return True
        carry = [row is not None and need.labels <= row.labels for row in grid.rows]
        return _padded(carry, grid)

    def reason(self, shape: TaskShape, worker: WorkerView) -> str | None:
        """Tell the first label that differs."""
        labels = worker.capacity.labels
        for key, value in shape.profile.labels:
            if (key, value) not in labels:
                return f"label {key} is {dict(labels).get(key, 'absent')}, not {value}"
        return None


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

    def reason(self, shape: TaskShape, worker: WorkerView) -> str | None:
        """Tell how many devices there are and how many are needed."""
        found = worker.ledger.fit(shape.profile)
        return found if isinstance(found, str) else None


FILTERS: Final[tuple[Filter, ...]] = (
    IsNamed(),
    NotDraining(),
    HasDriver(),
    HasModules(),
    NearEnough(),
    HasRoom("cpu", "cpu_milli", lambda milli: f"{milli / 1000:g}"),
    HasRoom("memory", "memory_bytes", in_gib),
    HasRoom("disk", "disk_bytes", in_gib),
    HasLabels(),
    HasGpus(),
)
"""All conditions, in the order in which they are asked."""


def mask(need: Need, grid: Grid) -> Bools:
    """Return which rows in use meet all conditions."""
    meets = grid.columns.live.copy()
    for condition in FILTERS:
        meets &= condition.mask(need, grid)
    return meets


def reason(shape: TaskShape, worker: WorkerView) -> str | None:
    """Say which condition `worker` fails first, in numbers; None if it meets all."""
    for condition in FILTERS:
        if why := condition.reason(shape, worker):
            return why
    return None


def _padded(answers: list[bool], grid: Grid) -> Bools:
    column: Bools = np.zeros_like(grid.columns.live)
    column[: len(answers)] = answers
    return column
