"""Gangs whose tasks want a node each, in worlds with faults."""

from collections.abc import Collection
from random import Random

import pytest
from msgspec.structs import replace

from shoal.core.negotiation.held_leases import LeaseShape
from shoal.core.records.records import GroupRecord
from shoal.core.scheduling.policy_lookup import PolicyLookup
from shoal.core.scheduling.task_selection import TaskSelection
from shoal.model.ids import NodeId
from shoal.model.job import Group
from shoal.model.resources import Capacity
from shoal.policy.interface import GangNeed
from shoal.policy.placement import Placed
from shoal.policy.table.worker_table import WorkerTable
from shoal.sim.seeds import SeedScript, SeedTrial, draw_script
from shoal.sim.workload import Errand

SEEDS = (0, 2, 5, 6, 9, 21)
"""Worlds with many gangs, elastic ones and, in seed 9, some that move."""


def apart(script: SeedScript) -> SeedScript:
    """Let each task of a gang want its own node, if so many workers stay."""
    workers = [each for each in script.nodes if isinstance(each.capacity, Capacity)]

    def group_of(group: Group) -> Group:
        if not 0 < group.gang_min < len(workers):
            return group
        tasks = tuple(replace(task, alone=True) for task in group.tasks)
        return replace(group, tasks=tasks)

    def errand_of(errand: Errand) -> Errand:
        groups = tuple(map(group_of, errand.job.groups))
        return replace(errand, job=replace(errand.job, groups=groups))

    errands = tuple(map(errand_of, script.workload.errands))
    return replace(script, workload=replace(script.workload, errands=errands))


def violations_of(seed: int) -> set[str]:
    trial = SeedTrial(seed, apart(draw_script(seed)))
    found = {each.id for each in trial.run().violations}
    assert trial.distinct_nodes.placed > 1, "nothing was asked"
    return found


@pytest.mark.parametrize("seed", SEEDS)
def test_each_task_of_such_a_gang_has_a_node_of_its_own_and_all_end(seed: int) -> None:
    assert violations_of(seed) == set()


def test_a_gang_that_starts_with_several_tasks_on_one_node_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    place = PolicyLookup.place

    def anywhere(
        self: PolicyLookup,
        shape: LeaseShape,
        count: int,
        table: WorkerTable,
        rng: Random,
        exclude: Collection[NodeId],
        warm: Collection[str] = (),
        gang: GangNeed | None = None,
    ) -> Placed:
        shared = replace(shape, alone=False)
        return place(self, shared, count, table, rng, exclude, warm, gang)

    monkeypatch.setattr(PolicyLookup, "place", anywhere)

    assert violations_of(2) == {"G4"}


def test_a_gang_that_grows_onto_a_node_that_it_has_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def nowhere(_self: TaskSelection, _group: GroupRecord) -> list[NodeId]:
        return []

    monkeypatch.setattr(TaskSelection, "_taken_by", nowhere)

    assert violations_of(2) == {"G4"}
