"""Check that no worker gives an owner more than the owner's grants allow."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import final

from shoal.core.events import Effect, Send
from shoal.model.ids import LeaseId, NodeId, OwnerId
from shoal.protocol.messages import Grant, Offer
from shoal.sim.checkers.violations import Violations
from shoal.sim.node.host import NodeSpec, SimHost
from shoal.sim.opinions import Leases, Opinions


@final
class Quotas:
    """Compares each owner's leases on a worker with its grants."""

    def __init__(self, violations: Violations, opinions: Opinions) -> None:
        self._violations = violations
        self._opinions = opinions
        self._nodes = 0  # number of nodes at the last sweep
        self._limited: frozenset[NodeId] = frozenset()
        self._offered: set[LeaseId] = set()

    def demanded(
        self, host: SimHost, effects: list[Effect], hosts: Mapping[NodeId, SimHost]
    ) -> None:
        """Check new offers, as they are made, against the receivers' grants.

        Repeated or delayed offers are skipped: another scheduler of the same owner,
        with a wider grant, may have received more since.
        """
        for effect in effects:
            if type(effect) is not Send or type(effect.message) is not Offer:
                continue
            leases = effect.message.leases
            if self._offered.issuperset(leases):
                continue
            self._offered.update(leases)
            if grant := _grant_of(effect.peer, hosts):
                used = _used(grant.owner, self._opinions.leases(host), hosts)
                self._check(host, [grant], used)

    def sweep(self, hosts: Mapping[NodeId, SimHost]) -> None:
        """Check all workers, by the widest grant among an owner's lease holders.

        Workers without a lease of a node with a quota are skipped.
        """
        if len(hosts) != self._nodes:  # The map only grows; grants stay.
            self._nodes = len(hosts)
            self._limited = frozenset(
                id_ for id_, host in hosts.items() if _has_quota(host.spec)
            )
        if not self._limited:
            return
        for host in hosts.values():
            leases = self._opinions.leases(host)
            if not leases:
                continue
            peers = dict.fromkeys([lease.peer for lease in leases])
            if self._limited.isdisjoint(peers):
                continue
            grants = [grant for peer in peers if (grant := _grant_of(peer, hosts))]
            for owner in dict.fromkeys(grant.owner for grant in grants):
                used = _used(owner, leases, hosts)
                self._check(host, [g for g in grants if g.owner == owner], used)

    def _check(self, host: SimHost, grants: list[Grant], used: tuple[int, int]) -> None:
        gpus, cpu_milli = used
        owner = grants[0].owner
        if _exceeds(gpus, (grant.quota_gpus for grant in grants)):
            self._violations.report("QUOTA", f"{owner} has {gpus} gpus of {host.id}")
        if _exceeds(cpu_milli, (grant.quota_cpu_milli for grant in grants)):
            what = f"{owner} has {cpu_milli} milli cpus of {host.id}"
            self._violations.report("QUOTA", what)


def _has_quota(spec: NodeSpec) -> bool:
    """Whether a node's leases have a limit; mere workers hold no leases."""
    grant = spec.grant
    return (
        grant is not None
        and spec.roles != ("worker",)
        and not (grant.quota_gpus is None and grant.quota_cpu_milli is None)
    )


def _grant_of(peer: NodeId, hosts: Mapping[NodeId, SimHost]) -> Grant | None:
    host = hosts.get(peer)
    return host.spec.grant if host else None


def _used(
    owner: OwnerId, leases: Leases, hosts: Mapping[NodeId, SimHost]
) -> tuple[int, int]:
    gpus = cpu_milli = 0
    for lease in leases:
        grant = _grant_of(lease.peer, hosts)
        if grant is not None and grant.owner == owner:
            gpus += len(lease.allocation.shares)
            cpu_milli += lease.allocation.cpu_milli
    return gpus, cpu_milli


def _exceeds(used: int, limits: Iterable[int | None]) -> bool:
    """Whether usage is above all limits."""
    return all(limit is not None and used > limit for limit in limits)
