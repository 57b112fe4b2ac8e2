"""The promise about quotas: a worker gives an owner no more than a grant allows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import final

from shoal.core.events import Effect, Send
from shoal.model.ids import LeaseId, NodeId, OwnerId
from shoal.protocol.messages import Grant, Offer
from shoal.sim.checkers.violations import Violations
from shoal.sim.host import Host, NodeSpec
from shoal.sim.opinions import Leases, Opinions


@final
class Quotas:
    """Adds up what each owner has on a worker, by the grants that the root gave."""

    def __init__(self, violations: Violations, opinions: Opinions) -> None:
        self._violations = violations
        self._opinions = opinions
        self._nodes = 0  # of which these have a quota
        self._limited: frozenset[NodeId] = frozenset()
        self._offered: set[LeaseId] = set()

    def demanded(
        self, host: Host, effects: list[Effect], hosts: Mapping[NodeId, Host]
    ) -> None:
        """Check new offers, as they are made, against the grants of whom they are for.

        One that is repeated, or left the node later, proves nothing: another scheduler
        of the same owner, with a wider grant, may have got more since.
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

    def sweep(self, hosts: Mapping[NodeId, Host]) -> None:
        """Check all workers; the widest grant of those that hold leases counts.

        A worker without a lease of somebody with a quota has nothing to exceed.
        """
        if len(hosts) != self._nodes:  # No node ever leaves the map, or gets a grant.
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

    def _check(self, host: Host, grants: list[Grant], used: tuple[int, int]) -> None:
        gpus, cpu_milli = used
        owner = grants[0].owner
        if _exceeds(gpus, (grant.quota_gpus for grant in grants)):
            self._violations.report("QUOTA", f"{owner} has {gpus} gpus of {host.id}")
        if _exceeds(cpu_milli, (grant.quota_cpu_milli for grant in grants)):
            what = f"{owner} has {cpu_milli} milli cpus of {host.id}"
            self._violations.report("QUOTA", what)


def _has_quota(spec: NodeSpec) -> bool:
    """Whether a node may hold leases, and only so many: mere workers hold none."""
    grant = spec.grant
    return (
        grant is not None
        and spec.roles != ("worker",)
        and not (grant.quota_gpus is None and grant.quota_cpu_milli is None)
    )


def _grant_of(peer: NodeId, hosts: Mapping[NodeId, Host]) -> Grant | None:
    host = hosts.get(peer)
    return host.spec.grant if host else None


def _used(
    owner: OwnerId, leases: Leases, hosts: Mapping[NodeId, Host]
) -> tuple[int, int]:
    gpus = cpu_milli = 0
    for lease in leases:
        grant = _grant_of(lease.peer, hosts)
        if grant is not None and grant.owner == owner:
            gpus += len(lease.allocation.shares)
            cpu_milli += lease.allocation.cpu_milli
    return gpus, cpu_milli


def _exceeds(used: int, limits: Iterable[int | None]) -> bool:
    """Whether more is used than any of these limits allows."""
    return all(limit is not None and used > limit for limit in limits)
