"""How the machine of a simulated node is put together: the very one of a live node."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from random import Random
from typing import final

from shoal.core.compaction import compacted
from shoal.core.gate import Gate
from shoal.core.gossip import Gossip
from shoal.core.jobs import JobBook
from shoal.core.journal import Entry, Revoked
from shoal.core.peer import Peer
from shoal.core.policies import Policies
from shoal.core.roster import Roster
from shoal.core.scheduler import Scheduler
from shoal.core.views import PathCost
from shoal.core.worker import Worker
from shoal.model.ids import NodeId
from shoal.protocol.messages import Load, Revocation
from shoal.sim import trust
from shoal.sim.host import Host, Life
from shoal.sim.opinions import Leases, WorkerOpinion


def assemble_peer(life: Life) -> Peer:
    """Build a node from its spec and its journal."""
    node = life.spec.id
    sign = functools.partial(trust.sign, node)
    gossip = Gossip(node, _stream(life), sign=sign, verify=trust.verify)
    return join_roles(life, gossip)


def join_roles(
    life: Life,
    gossip: Gossip,
    *,
    policies: Policies | None = None,
    path_cost: PathCost | None = None,
) -> Peer:
    """Build a node that gossips like this, and places by these policies."""
    roster = Roster(trust.members(), life.wall_at_zero_s)
    scheduler = None
    if "scheduler" in life.spec.roles:
        scheduler = Scheduler(
            life.spec.id,
            roster,
            journal=life.journal,
            grant=life.spec.grant,
            policies=policies,
            heard=gossip.known,
            path_cost=path_cost,
            rng=_stream(life),
            now=life.now,
        )
    return Peer(
        life.spec.id,
        roster,
        grant=life.spec.grant,
        worker=_worker(life, roster),
        scheduler=scheduler,
        gate=_gate(life),
        gossip=gossip,
        journal=life.journal,
    )


def compact_journal(entries: Sequence[Entry]) -> list[Entry]:
    """Return the shortest journal that says the same."""
    book = JobBook()
    revocations: list[Revocation] = []
    for entry in entries:
        book.replay(entry, 0.0, trust.WALL_AT_START_S)
        if isinstance(entry, Revoked):
            revocations.append(entry.revocation)
    return compacted(book, revocations) if entries else []


def _worker(life: Life, roster: Roster) -> Worker | None:
    if life.spec.capacity is None:
        return None
    return Worker(
        life.spec.id,
        life.spec.capacity,
        roster,
        rules=life.spec.rules,
        epoch=life.number,
        rng=_stream(life),
    )


def _gate(life: Life) -> Gate | None:
    if "gate" not in life.spec.roles:
        return None
    return Gate(life.spec.id, rng=_stream(life))


def _stream(life: Life) -> Random:
    return Random(life.rng.getrandbits(64))


@final
class PeerOpinions:
    """Reads what peers believe."""

    def worker(self, host: Host) -> WorkerOpinion | None:
        """Return what the worker of a node says, if it has that role."""
        machine = host.machine
        if not isinstance(machine, Peer) or machine.worker is None:
            return None
        worker = machine.worker
        return WorkerOpinion(
            idle=worker.leases.ledger.idle,
            load=worker.load,
            unacknowledged=worker.unacknowledged,
        )

    def leases(self, host: Host) -> Leases:
        """Return what the worker of a node, if any, has given away, and to whom."""
        machine = host.machine
        if not isinstance(machine, Peer) or machine.worker is None:
            return ()
        return machine.worker.leases

    def views(self, host: Host) -> dict[NodeId, Load]:
        """Return what the scheduler of a node, if any, believes of workers."""
        machine = host.machine
        if not isinstance(machine, Peer) or machine.scheduler is None:
            return {}
        table = machine.scheduler.views.table
        found: dict[NodeId, Load] = {}
        for node in table.nodes():
            view = table.view(node)
            assert view is not None
            found[node] = Load(
                view.cpu_milli,
                view.memory_bytes,
                view.disk_bytes,
                tuple(view.gpu_milli),
                tuple(view.gpu_memory),
                view.active,
                view.draining,
            )
        return found
