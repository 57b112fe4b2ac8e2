"""What a placement policy is: the one interface that `placement.place` calls.

A policy gets a `PlacementRequest` and the scheduler's `WorkerTable`, and returns a
`Chooser`. `place` then asks the chooser for one worker after another and books a task
on each, so what the chooser sees includes the tasks placed before. No code outside a
policy knows which kind it is. There are two ways to write one:

- a *ranking* (`ranking/ranking.py`) has a key; the worker with the smallest key wins;
- anything else returns a `Chooser` of its own, as sampling and users' policies do.

Shoal's policies are listed in `registry.py`; users' come through `custom.Custom`.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias, final

import msgspec

from shoal.model.ids import NodeId
from shoal.policy.table.task_shapes import Need, TaskShape

if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from random import Random

    from shoal.policy.table.worker_table import WorkerTable

PolicyPromise: TypeAlias = Literal["total", "known", "fits"]
"""It always answers; it names only known workers; and only where the task fits."""


class Breach(msgspec.Struct, frozen=True):
    """A promise that a policy broke, and how."""

    promise: PolicyPromise
    how: str


class OnDevices(msgspec.Struct, frozen=True):
    """A row of the table, and those of its devices that the task should get."""

    row: int
    devices: tuple[str, ...]


Chosen: TypeAlias = int | OnDevices | Breach | str | None
"""A row of the table; a broken promise; or no row, perhaps with the reason."""


class GangNeed(msgspec.Struct, frozen=True, gc=False):
    """What the tasks of a request, which start together, need as a gang."""

    size: int  # tasks of the whole gang
    beside: Collection[NodeId] = ()  # workers with slots for other tasks of it
    slowdown_max: float = math.inf  # it would rather wait than run any slower
    mark: str = ""  # of this gang, whose own load on links does not count


class PlacementRequest(msgspec.Struct, frozen=True, gc=False):
    """Tasks of one shape that want to be placed."""

    shape: TaskShape
    count: int
    rng: Random
    warm: Collection[str] = ()  # marks of what the tasks would find cached
    gang: GangNeed | None = None  # None: the tasks do not talk to each other


class Chooser(Protocol):
    """Chooses a row for one task after another; `place` books each row it returns."""

    @property
    def need(self) -> Need:
        """What one task takes of a row, laid out for this table."""
        ...

    def best(self, skip: Collection[NodeId], /) -> Chosen:
        """Choose a row whose node is not in `skip`, for the next task."""
        ...


@final
class ChooseBy:
    """A chooser made of a function."""

    def __init__(
        self, need: Need, choose: Callable[[Collection[NodeId]], Chosen]
    ) -> None:
        self.need = need
        self._choose = choose

    def best(self, skip: Collection[NodeId], /) -> Chosen:
        """Choose a row whose node is not in `skip`, for the next task."""
        return self._choose(skip)


class Policy(Protocol):
    """Decides which workers run tasks."""

    @property
    def name(self) -> str:
        """The name that jobs and `shoal policy list` use."""
        ...

    def chooser(self, request: PlacementRequest, table: WorkerTable) -> Chooser:
        """Return what chooses workers of `table` for the tasks of `request`.

        Equal requests on equal tables must lead to equal choices, in whatever order
        the table got its workers. A policy may learn from the requests it sees.
        """
        ...
