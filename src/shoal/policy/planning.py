"""Dry-run placement: where tasks would go if they were submitted now."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import msgspec

from shoal.model.caches import cached_words, marks_of
from shoal.model.ids import NodeId
from shoal.model.kinds import need_of
from shoal.policy.explanation import explain
from shoal.policy.placement import place
from shoal.policy.table.task_shapes import TaskShape

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from random import Random

    from shoal.model.job import Task, Work
    from shoal.policy.interface import GangNeed, Policy
    from shoal.policy.table.worker_table import WorkerTable

When = Literal["now", "later", "never"]


class Prospect(msgspec.Struct, frozen=True):
    """What one worker could do for a task: run it, run it later, or never.

    `slots` says how many such tasks it has room for now. `why` is what it lacks, or
    what it has cached if it could run it now.
    """

    node: NodeId
    when: When
    slots: int = 0
    why: str = ""


class PlacementPlan(msgspec.Struct, frozen=True):
    """What all known workers could do for tasks that are alike, the best first."""

    prospects: tuple[Prospect, ...]
    room: int  # for how many of them there is room now
    helps: tuple[str, ...] = ()  # what would help, if there is none
    never: str = ""  # what no worker has, if none could run it even when idle
    chosen: tuple[NodeId, ...] = ()  # where they would go, one for each with room


def plan(  # noqa: PLR0913 - each of these is a separate wish of the caller
    task: Task,
    count: int,
    table: WorkerTable,
    policy: Policy,
    rng: Random,
    *,
    idle: Sequence[Mapping[NodeId, int]] = (),
    nodes: tuple[NodeId, ...] = (),
    rtt_max_us: int | None = None,
    gang: GangNeed | None = None,
) -> PlacementPlan:
    """Say where `count` such tasks would go; the first wish that fits counts.

    `idle` has for each wish how many leases are kept where; they are used first. Only
    `nodes` may run them, if any are given. `gang` tells that they start together. The
    policy should be a fresh one: a policy
    that learns would take this for real.
    """
    first: PlacementPlan | None = None
    for number, profile in enumerate(task.profiles):
        kept: Mapping[NodeId, int] = idle[number] if idle else {}
        shape = TaskShape(profile, need_of(task.work), rtt_max_us, nodes, task.alone)
        found = _plan(shape, task.work, count, table, policy, rng, kept, gang)
        if found.room:
            return found
        first = first or found
    assert first is not None, "a task has a profile"
    return first


def _plan(
    shape: TaskShape,
    work: Work,
    count: int,
    table: WorkerTable,
    policy: Policy,
    rng: Random,
    kept: Mapping[NodeId, int],
    gang: GangNeed | None,
) -> PlacementPlan:
    free = _nodes(shape, len(table), table, policy, rng, work, at_most=1)
    ranked = list(dict.fromkeys([*sorted(kept), *free]))
    slots = [node for node in sorted(kept) for _ in range(kept[node])][:count]
    left = count - len(slots)
    slots += _nodes(shape, left, table, policy, rng, work, at_most=None, gang=gang)
    now = [
        Prospect(n, "now", max(1, slots.count(n)), _cached(n, work, table))
        for n in ranked
    ]
    known = set(ranked)
    said = explain(
        shape.profile,
        table,
        driver=shape.driver,
        rtt_max_us=shape.rtt_max_us,
        nodes=shape.nodes,
    )
    others = [
        Prospect(r.node, "later" if r.is_busy else "never", 0, r.reason)
        for r in said.rejected
        if r.node not in known
    ]
    return PlacementPlan(
        (*now, *others), len(slots), said.helps, said.never, tuple(slots)
    )


def _nodes(
    shape: TaskShape,
    count: int,
    table: WorkerTable,
    policy: Policy,
    rng: Random,
    work: Work,
    *,
    at_most: int | None,
    gang: GangNeed | None = None,
) -> list[NodeId]:
    """Place tasks and take that back at once; return where they would have gone."""
    placed = place(
        shape.profile,
        count,
        table,
        policy,
        rng,
        driver=shape.driver,
        nodes=shape.nodes,
        rtt_max_us=shape.rtt_max_us,
        alone=shape.alone,
        at_most=at_most,
        warm=marks_of(work),
        gang=gang,
    )
    for taken in reversed(placed.takens):
        table.give(taken)
    return placed.nodes


def _cached(node: NodeId, work: Work, table: WorkerTable) -> str:
    if not work.workdir and not work.image:
        return ""  # Nothing to look for on thousands of workers.
    view = table.view(node)
    return cached_words(work, view.warm) if view else ""
