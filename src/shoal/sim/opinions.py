"""Read machines' own views, for promises about these views."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import msgspec

from shoal.core.leasing.leases import Lease
from shoal.model.ids import NodeId
from shoal.protocol.messages import Load
from shoal.sim.node.host import SimHost


class Leases(Protocol):
    """The leases of one worker; false if empty."""

    def __iter__(self) -> Iterator[Lease]:
        """Iterate over the leases."""
        ...

    def __len__(self) -> int:
        """Return the number of leases."""
        ...


class WorkerOpinion(msgspec.Struct, frozen=True, kw_only=True):
    """A worker's view of itself."""

    idle: bool
    load: Load
    unacknowledged: int


class Opinions(Protocol):
    """Reads the views of one world's machines."""

    def leases(self, host: SimHost) -> Leases:
        """Return the leases of a node's worker, if it has one."""
        ...

    def worker(self, host: SimHost) -> WorkerOpinion | None:
        """Return the view of a node's worker, if it has one."""
        ...

    def held_reports(self, host: SimHost) -> int:
        """Count reports that wait for outputs at a node's scheduler."""
        ...

    def views(self, host: SimHost) -> dict[NodeId, Load]:
        """Return the loads that a node's scheduler believes of workers."""
        ...
