"""Plans: where a node would place a job, as API messages."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Final

from shoal.api import shoal_pb2 as pb
from shoal.api.service import views
from shoal.core.negotiation.held_leases import shape_of
from shoal.errors import UsageError
from shoal.policy.planning import plan
from shoal.policy.registry import Registry

if TYPE_CHECKING:
    from collections import Counter

    from shoal.model.ids import NodeId
    from shoal.model.job import Group, Job
    from shoal.policy.interface import Policy
    from shoal.policy.planning import Prospect
    from shoal.runtime.node import Node

PROSPECTS_MAX: Final = 50
GROUPS_MAX: Final = 20
WHEN: Final = {
    "now": pb.Prospect.WHEN_NOW,
    "later": pb.Prospect.WHEN_LATER,
    "never": pb.Prospect.WHEN_NEVER,
}


def groups_of(node: Node, job: Job, nodes: list[pb.Node]) -> list[pb.GroupPlan]:
    """Return where each group of a job would go; `nodes` are views to include."""
    name = job.policy or node.settings.policy
    policy = Registry().make(name) if name else Registry().make("balanced")
    shown = {each.name.id: each for each in nodes}
    groups = job.groups[:GROUPS_MAX]
    return [_group(node, job, group, policy, shown) for group in groups]


def _group(
    node: Node, job: Job, group: Group, policy: Policy, shown: dict[str, pb.Node]
) -> pb.GroupPlan:
    scheduler = node.peer.scheduler
    if scheduler is None:
        raise UsageError(
            "this node does not schedule",
            because="it has no role for that",
            hint="ask the node of whoever submits",
        )
    first, table = group.tasks[0], scheduler.views.table
    idle: list[Counter[NodeId]] = []
    if not group.gang_min:  # A gang always needs new leases.
        shapes = [shape_of(job, first, n) for n in range(len(first.profiles))]
        idle = [scheduler.holdings.idle_at(shape) for shape in shapes]
    found = plan(first, len(group.tasks), table, policy, Random(0), idle)
    return pb.GroupPlan(
        group=group.id.partition(".")[2],
        tasks=len(group.tasks),
        needs=views.needs_of(first),
        least=max(1, group.gang_min),
        room=found.room,
        prospects=[_prospect(p, shown) for p in found.prospects[:PROSPECTS_MAX]],
        more=max(0, len(found.prospects) - PROSPECTS_MAX),
        helps=found.helps,
    )


def _prospect(prospect: Prospect, shown: dict[str, pb.Node]) -> pb.Prospect:
    known = shown.get(prospect.node)
    return pb.Prospect(
        node=known or pb.Node(name=views.name_of(prospect.node)),
        when=WHEN[prospect.when],
        slots=prospect.slots,
        why=prospect.why,
    )
