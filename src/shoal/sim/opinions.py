"""What the machines of a world believe, for promises that are about belief."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import msgspec

from shoal.core.leases import Lease
from shoal.model.ids import NodeId
from shoal.protocol.messages import Load
from shoal.sim.host import Host


class Leases(Protocol):
    """The leases of one worker. None are false."""

    def __iter__(self) -> Iterator[Lease]:
        """Go through them."""
        ...

    def __len__(self) -> int:
        """Return how many there are."""
        ...


class WorkerOpinion(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker says of itself."""

    idle: bool
    load: Load
    unacknowledged: int


class Opinions(Protocol):
    """Reads the machines of one world."""

    def leases(self, host: Host) -> Leases:
        """Return what the worker of a node, if any, has given away, and to whom."""
        ...

    def worker(self, host: Host) -> WorkerOpinion | None:
        """Return what the worker of a node says, if it has that role."""
        ...

    def views(self, host: Host) -> dict[NodeId, Load]:
        """Return what the scheduler of a node, if any, believes of workers."""
        ...
