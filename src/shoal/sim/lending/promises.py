"""Check promises to the owners of machines: Y1 to Y5.

- Y1: from `YIELD_S` after the owner of a machine came back until the owner leaves, no
  process of another owner runs there.
- Y2: meanwhile other owners are offered nothing.
- Y3: the owner's own tasks go on: what is seen of the owner stops no other.
- Y4: a machine whose owner has left for good is lent again.
- Y5: no worker offers memory that other programs take, but for a step.

That preempted tasks do not count as failed is PREEMPTION, as for every preemption.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from shoal.core.events import StopTask
from shoal.core.lending.spare_room import MEMORY_STEP, STEP_SHARE
from shoal.core.peer import Peer
from shoal.model.resources import total
from shoal.protocol.messages import Offer

if TYPE_CHECKING:
    from shoal.core.events import Effect, Event
    from shoal.core.leasing.worker import Worker
    from shoal.model.ids import LeaseId, NodeId, OwnerId
    from shoal.sim.checkers.violations import Violations
    from shoal.sim.node.driver import SimProcess
    from shoal.sim.node.host import SimHost

YIELD_S: Final = 2.0


@final
class LendingPromises:
    """Compares what runs on machines with where their owners are."""

    def __init__(self, violations: Violations) -> None:
        self._violations = violations
        self.present: dict[NodeId, float] = {}  # since when a machine sees its owner
        self._offered: dict[LeaseId, None] = {}
        self.taken: dict[tuple[NodeId, int], int] = {}  # memory, by node and life

    def came(self, host: SimHost) -> None:
        """Check, `YIELD_S` after an owner came, that others are gone."""
        for process in host.driver.processes.values():
            if process.exit_code is None and _is_foreign(host, process.start.owners):
                what = f"{process.start.attempt} of another owner still runs on"
                self._violations.report("Y1", f"{what} {host.id}")

    def started(self, host: SimHost, process: SimProcess) -> None:
        """Check a process that just started; an order may be under way for a while."""
        since = self.present.get(host.id, process.began)
        is_late = process.began - since > YIELD_S
        if is_late and _is_foreign(host, process.start.owners):
            what = f"{process.start.attempt} of another owner starts on {host.id}"
            self._violations.report("Y1", what)

    def offered(self, host: SimHost, peer: NodeId, message: object) -> None:
        """Check an offer against the owner's rule and the memory that is free."""
        assert isinstance(message, Offer)
        worker = worker_of(host)
        if worker is None:
            return
        leases = [lease for id_ in message.leases if (lease := worker.leases.get(id_))]
        for lease in leases:
            if host.id in self.present and _is_foreign(host, lease.owners):
                what = f"{host.id} offers {peer} a lease while its owner is there"
                self._violations.report("Y2", what)
        new = [lease for lease in leases if lease.id not in self._offered]
        self._offered.update(dict.fromkeys(lease.id for lease in new))
        asked = sum(lease.taken.memory_bytes for lease in new)
        size = worker.capacity.memory_bytes
        step = max(MEMORY_STEP, size // STEP_SHARE)
        used = total(lease.taken for lease in worker.leases).memory_bytes
        if asked and used + self.taken.get((host.id, host.life), 0) - step > size:
            what = f"{host.id} offers memory that other programs take"
            self._violations.report("Y5", what)

    def observed(self, host: SimHost, event: Event, effects: list[Effect]) -> None:
        """Check what a worker stops because of its owner."""
        stopped = [e.attempt for e in effects if isinstance(e, StopTask)]
        for process in host.driver.processes.values():
            start = process.start
            if start.attempt in stopped and not _is_foreign(host, start.owners):
                what = f"{host.id} stops {start.attempt}, which is its owner's"
                self._violations.report("Y3", what)

    def settled(self, host: SimHost) -> None:
        """Check a machine whose owner left long ago."""
        worker = worker_of(host)
        if worker is not None and not worker.lender.presence.is_lent:
            why = worker.lender.presence.reason
            self._violations.report("Y4", f"{host.id} is not lent again: {why}")


def _is_foreign(host: SimHost, owners: tuple[OwnerId, ...]) -> bool:
    return any(owner != host.spec.owner for owner in owners)


def worker_of(host: SimHost) -> Worker | None:
    """Return the worker of a node, if it is up."""
    return host.machine.worker if isinstance(host.machine, Peer) else None
