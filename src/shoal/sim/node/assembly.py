"""Build a simulated node's machine from the same parts as a live node's."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from random import Random
from typing import final

from shoal.core.admission.admission_control import AdmissionControl
from shoal.core.admission.invitation_book import InvitationBook
from shoal.core.allocation.allocator import Allocator
from shoal.core.allocation.records import AllocationKept
from shoal.core.artifacts.blob_transfers import BlobTransfers
from shoal.core.calls.call_exchange import CallExchange
from shoal.core.channels.channels import Channels
from shoal.core.discovery.gate import Gate
from shoal.core.discovery.gossip_overlay import GossipOverlay
from shoal.core.discovery.known_members import KnownMembers
from shoal.core.discovery.load_gossip import LoadGossip
from shoal.core.discovery.neighbours import Neighbours
from shoal.core.discovery.worker_views import PathCost
from shoal.core.durability.compaction import compacted
from shoal.core.durability.journal import DrainSet, Entry, Revoked
from shoal.core.forwarding.forwarded_calls import CallForwarding
from shoal.core.housekeeping.past_needs import PastNeeds, needs_kept
from shoal.core.housekeeping.usage_ledger import UsageLedger
from shoal.core.leasing.worker import Worker
from shoal.core.lending.lifetime import Lifetime
from shoal.core.machine import Machine
from shoal.core.mail.task_mail import TaskMail
from shoal.core.membership.membership import Membership
from shoal.core.membership.roster import Roster
from shoal.core.peer import Peer
from shoal.core.proximity.network_map import Path
from shoal.core.proximity.proximity import Proximity
from shoal.core.scheduling.job_book import JobBook
from shoal.core.scheduling.policy_lookup import PolicyLookup
from shoal.core.scheduling.scheduler import Scheduler
from shoal.core.succession.kept_jobs import KeptJobs
from shoal.model.ids import NodeId
from shoal.protocol.messages import Load, Revocation
from shoal.sim.admission.traffic import sim_tools
from shoal.sim.node import trust
from shoal.sim.node.host import NodeLife, SimHost
from shoal.sim.opinions import Leases, WorkerOpinion


def assemble_peer(life: NodeLife) -> Peer:
    """Build a node's machine from its spec and journal."""
    node = life.spec.id
    sign = functools.partial(trust.sign, node)
    gossip = LoadGossip(node, _stream(life), sign=sign, verify=trust.verify)
    return join_roles(life, gossip)


def join_roles(
    life: NodeLife,
    gossip: LoadGossip,
    *,
    policies: PolicyLookup | None = None,
    path_cost: PathCost | None = None,
) -> Peer:
    """Build a node's machine with this gossip and these policies."""
    roster = Roster(trust.members(), life.wall_at_zero_s)
    scheduler = None
    if "scheduler" in life.spec.roles:
        scheduler = Scheduler(
            life.spec.id,
            roster,
            journal=life.journal,
            grant=life.spec.grant,
            keep=life.spec.keep,
            policies=policies,
            heard=gossip.known,
            path_cost=path_cost,
            forward=life.spec.forward,
            rng=_stream(life),
            now=life.now,
        )
    grant = life.spec.grant
    calls = CallForwarding(roster, None if grant is None else grant.owner)
    mail = TaskMail(life.spec.id, scheduler)
    worker = _worker(life, roster)
    roles = (worker, scheduler, _gate(life), _lifetime(life, worker))

    def path(one: NodeId, other: NodeId) -> Path | None:
        return proximity.map.between(one, other)

    blobs = BlobTransfers(life.spec.id, roster, scheduler, path)
    others = (mail, CallExchange(roster, scheduler), _admission(life, roster), blobs)
    usage = UsageLedger(life.journal, life.wall_at_zero_s)
    needs = PastNeeds(life.spec.id, roster, life.journal)
    owner = None if grant is None else grant.owner
    channels = Channels(roster, owner, life.number, scheduler)
    neighbours, proximity = _neighbours(life), _proximity(life, worker, blobs)
    overlay = GossipOverlay(life.spec.id, proximity.map.rtts_us, life.spec.overlay)
    finding: tuple[Machine, ...] = (neighbours, proximity, overlay)
    finding += () if scheduler is None else (_allocator(life, roster, scheduler),)
    machines = (gossip, *roles, calls, *others, channels, *finding, usage, needs)
    return Peer(
        Membership(life.spec.id, roster, grant, life.journal),
        [machine for machine in machines if machine is not None],
    )


def compact_journal(entries: Sequence[Entry]) -> list[Entry]:
    """Return the shortest equivalent journal."""
    book = JobBook()
    revocations: list[Revocation] = []
    for entry in entries:
        book.replay(entry, 0.0, trust.WALL_AT_START_S)
        if isinstance(entry, Revoked):
            revocations.append(entry.revocation)
    return compacted(book, revocations, kept_besides(entries)) if entries else []


def kept_besides(entries: Sequence[Entry]) -> list[Entry]:
    """Return what machines besides the scheduler keep of a journal."""
    drains = [entry for entry in entries if isinstance(entry, DrainSet)][-1:]
    kept = KeptJobs(entries).entries()
    named = {e.terms.name: e for e in entries if isinstance(e, AllocationKept)}
    sums = (*UsageLedger(entries, 0.0).kept(), *needs_kept(entries))
    return [*sums, *drains, *kept, *named.values()]


def _worker(life: NodeLife, roster: Roster) -> Worker | None:
    if life.spec.capacity is None:
        return None
    return Worker(
        life.spec.id,
        life.spec.capacity,
        roster,
        rules=life.spec.rules,
        epoch=life.number,
        journal=life.journal,
        rng=_stream(life),
    )


def _lifetime(life: NodeLife, worker: Worker | None) -> Lifetime | None:
    limits = (life.spec.time_limit_s, life.spec.idle_timeout_s)
    if worker is None or limits == (None, None):
        return None
    return Lifetime(worker, *limits)


def _allocator(life: NodeLife, roster: Roster, scheduler: Scheduler) -> Allocator:
    return Allocator(
        life.spec.id,
        roster,
        journal=life.journal,
        own_demand=lambda: scheduler.unmet,
        now=life.now,
    )


def _admission(life: NodeLife, roster: Roster) -> AdmissionControl:
    return AdmissionControl(
        life.spec.id,
        roster,
        life.spec.grant,
        sim_tools(_stream(life)),
        kept=InvitationBook(life.invitations).snapshot(),
        may_sign=life.spec.holds_root,
    )


def _neighbours(life: NodeLife) -> Neighbours:
    known = KnownMembers(life.spec.gates, life.met)
    return Neighbours(life.spec.id, known, _stream(life))


def _proximity(
    life: NodeLife, worker: Worker | None, blobs: BlobTransfers
) -> Proximity:
    def is_busy() -> bool:
        return blobs.is_busy or (worker is not None and worker.load.active > 0)

    return Proximity(life.spec.id, _stream(life), is_busy=is_busy)


def _gate(life: NodeLife) -> Gate | None:
    if "gate" not in life.spec.roles:
        return None
    return Gate(life.spec.id, rng=_stream(life))


def _stream(life: NodeLife) -> Random:
    return Random(life.rng.getrandbits(64))


@final
class PeerOpinions:
    """Reads the views of peers."""

    def worker(self, host: SimHost) -> WorkerOpinion | None:
        """Return the view of a node's worker, if it has one."""
        machine = host.machine
        if not isinstance(machine, Peer) or machine.worker is None:
            return None
        worker = machine.worker
        return WorkerOpinion(
            idle=worker.leases.is_balanced,
            load=worker.load,
            unacknowledged=worker.unacknowledged,
        )

    def leases(self, host: SimHost) -> Leases:
        """Return the leases of a node's worker, if it has one."""
        machine = host.machine
        if not isinstance(machine, Peer) or machine.worker is None:
            return ()
        return machine.worker.leases

    def held_reports(self, host: SimHost) -> int:
        """Count reports that wait for outputs at a node's scheduler."""
        machine = host.machine
        if not isinstance(machine, Peer) or machine.scheduler is None:
            return 0
        return len(machine.scheduler.results)

    def views(self, host: SimHost) -> dict[NodeId, Load]:
        """Return the loads that a node's scheduler believes of workers."""
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
