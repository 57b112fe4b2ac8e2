"""What the machines of a world believe, for promises that are about belief."""

from __future__ import annotations

from typing import Protocol

import msgspec

from shoal.model.ids import LeaseId, NodeId
from shoal.model.resources import Allocation
from shoal.protocol.messages import Load
from shoal.sim.host import Host


class WorkerOpinion(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker says of itself."""

    idle: bool
    load: Load
    unacknowledged: int


class Opinions(Protocol):
    """Reads the machines of one world."""

    def committed(self, host: Host) -> list[LeaseId]:
        """Return the leases that the worker of a node, if any, keeps for others."""
        ...

    def leased(self, host: Host) -> list[tuple[NodeId, Allocation]]:
        """Return what the worker of a node, if any, holds, and for whom."""
        ...

    def worker(self, host: Host) -> WorkerOpinion | None:
        """Return what the worker of a node says, if it has that role."""
        ...

    def views(self, host: Host) -> dict[NodeId, Load]:
        """Return what the scheduler of a node, if any, believes of workers."""
        ...
