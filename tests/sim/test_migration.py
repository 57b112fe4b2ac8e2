"""Gangs move to better places: in worlds with faults, and on a modelled fabric."""

from pathlib import Path

import msgspec
import pytest
from tests.sim.stubs import Stage

from shoal.core.durability.journal import (
    Assigned,
    AttemptPlace,
    Entry,
    Incarnated,
    Returned,
)
from shoal.core.scheduling import migrations
from shoal.lab.datacentre.comparison import compare
from shoal.lab.datacentre.scenario import convert
from shoal.lab.datacentre.settings import resolve
from shoal.model.ids import Attempt, JobId, LeaseId, NodeId, OwnerId, TaskId
from shoal.model.job import Job
from shoal.model.resources import Capacity
from shoal.model.spec.documents import Plain
from shoal.sim.agenda import Agenda
from shoal.sim.checkers.violations import Violations
from shoal.sim.migration.promises import MigrationPromises
from shoal.sim.node import trust
from shoal.sim.node.host import NodeSpec
from shoal.sim.seeds import SeedTrial
from shoal.sim.workload import make_group

NEAR: Plain = {
    "name": "A near place becomes free",
    "seed": 1,
    "fabric": {
        "kind": "leaf-spine",
        "spines": 2,
        "leaves": 4,
        "hosts": 3,
        "oversubscription": 4,
    },
    "host": {"gpu": "A100:80GB:4", "cpu": 32},
    "jobs": {
        "arrivals": "poisson:20",
        "load": 0.8,
        "mix": [
            {"name": "short", "weight": 4, "gpu": 4, "run": "20s..60s"},
            {
                "name": "train",
                "tasks": 8,
                "gang": True,
                "run": "5m..15m",
                "step": "200ms",
                "allreduce": "500MB",
                "checkpoint": "20s",
            },
        ],
    },
    "policies": ["compact"],
}
S, W1, W2, W3 = map(NodeId, ("s", "w1", "w2", "w3"))
LEAVES = {W1: "a", W2: "b", W3: "b"}


def spec(node: NodeId) -> NodeSpec:
    labels = (("leaf", LEAVES[node]),)
    grant = trust.grant(node, ("worker",), OwnerId("ann"))
    capacity = Capacity(cpu_milli=4_000, labels=labels)
    return NodeSpec(id=node, roles=("worker",), grant=grant, capacity=capacity)


def gang(*, preemptible: bool = True) -> Job:
    group = msgspec.structs.replace(make_group("j", "g", 2, ()), gang_min=2)
    job = JobId("j")
    return Job(id=job, owner=OwnerId("ann"), groups=(group,), preemptible=preemptible)


def assigned(life: int, *workers: NodeId) -> Assigned:
    return Assigned(
        tuple(
            AttemptPlace(
                TaskId(f"j.g.{rank}"),
                Attempt(S, 1, 2 * life + rank),
                worker,
                LeaseId(f"{worker}/1/{life}"),
            )
            for rank, worker in enumerate(workers)
        )
    )


def moved(life: int, ranks: int = 2) -> list[Entry]:
    return [
        Returned(
            TaskId(f"j.g.{rank}"), Attempt(S, 1, 2 * life + rank), 0, 0, moved=True
        )
        for rank in range(ranks)
    ]


def broken(entries: list[Entry], job: Job | None = None) -> list[str]:
    violations = Violations(Agenda())
    promises = MigrationPromises(
        violations, map(spec, LEAVES), {JobId("j"): job or gang()}
    )
    stage = Stage()
    stage.add(S)
    promises.safe(stage.world.hosts[S], entries)
    return [violation.id for violation in violations.found]


def test_a_gang_may_move_under_one_leaf() -> None:
    entries = [assigned(1, W1, W2), *moved(1), assigned(2, W2, W3)]

    assert broken(entries) == []


def test_a_worse_place_or_an_equal_one_is_no_reason_to_move() -> None:
    assert broken([assigned(1, W2, W3), *moved(1), assigned(2, W1, W2)]) == ["G2"]
    assert broken([assigned(1, W1, W2), *moved(1), assigned(2, W1, W3)]) == ["G2"]


def test_a_gang_moves_as_one_and_at_once() -> None:
    back = Returned(TaskId("j.g.1"), Attempt(S, 1, 3), 0, 0)
    crash = Incarnated(2)

    assert broken([assigned(1, W1, W2), *moved(1), assigned(2, W2)]) == ["G3"]
    assert broken([assigned(1, W1, W2), *moved(1, ranks=1), back]) == ["G3"]
    assert broken([assigned(1, W1, W2), *moved(1, ranks=1), crash, back]) == []


def test_moves_are_counted_across_lives() -> None:
    often: list[Entry] = []
    for life in range(1, 2 * migrations.MOVES_MAX + 3, 2):
        often += [assigned(life, W1, W2), *moved(life), assigned(life + 1, W2, W3)]
        often.append(Incarnated(life))

    assert broken(often[:-5]) == []
    assert broken(often) == ["G1", "G1"]


def test_a_job_that_may_not_be_stopped_never_moves() -> None:
    entries = [assigned(1, W1, W2), *moved(1), assigned(2, W2, W3)]

    assert broken(entries, gang(preemptible=False)) == ["G1", "G1"]


def test_gangs_move_in_a_world_with_faults_and_keep_every_promise() -> None:
    trial = SeedTrial(58)

    outcome = trial.run()

    assert outcome.violations == ()
    assert trial.migration is not None
    assert trial.migration.moves.total() > 0


def test_gangs_that_had_to_spread_end_sooner_if_they_may_move(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    settings, fabric = resolve(convert(NEAR), Path())
    moving = compare(settings, fabric).runs[0].result
    monkeypatch.setattr(migrations, "MOVES_MAX", 0)
    settings, fabric = resolve(convert(NEAR), Path())
    staying = compare(settings, fabric).runs[0].result

    assert moving.ended == staying.ended == moving.jobs
    assert moving.starts > staying.starts
    assert moving.jct_mean_s < staying.jct_mean_s
