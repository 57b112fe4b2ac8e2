"""Run two large scenarios and print their key figures.

Run: python -m shoal.sim.showcase
"""

from __future__ import annotations

import statistics
import time
from typing import Final, final

import click
import msgspec

from shoal.core.durability.journal import Assigned
from shoal.core.events import Effect, Event, Record, Send
from shoal.model.ids import JobId, NodeId, OwnerId
from shoal.model.job import Job
from shoal.model.resources import GIB, Capacity, Profile
from shoal.protocol.messages import Inventory, Role
from shoal.sim.agenda import Agenda
from shoal.sim.faults.schedule import FaultPlan
from shoal.sim.node import trust
from shoal.sim.node.driver import Behaviour, Plans
from shoal.sim.node.host import NodeSpec, SimHost
from shoal.sim.seeds import SeedOutcome, SeedScript, SeedTrial
from shoal.sim.workload import Errand, Workload, make_group

SLOT: Final = Profile(cpu_milli=1_000, memory_bytes=GIB)
ANN: Final = OwnerId("ann")


class GangFigures(msgspec.Struct, frozen=True, kw_only=True):
    """Figures of competing gangs."""

    gangs: int
    committed: int
    commit_p50_s: float
    commit_p99_s: float
    outcome: SeedOutcome


class CrowdFigures(msgspec.Struct, frozen=True, kw_only=True):
    """Figures of an announcement to a very large shoal."""

    workers: int
    answered: int
    placed: int
    placed_after_s: float
    outcome: SeedOutcome


@final
class ShowcaseNotes:
    """Records which nodes answered, and when tasks were placed."""

    def __init__(self, agenda: Agenda) -> None:
        self.answered: dict[NodeId, None] = {}
        self.placed_at: dict[JobId, list[float]] = {}
        self._agenda = agenda

    def tap(self, host: SimHost, event: Event, effects: list[Effect]) -> None:
        """Record a node's reaction to an event."""
        for effect in effects:
            if type(effect) is Send:
                if type(effect.message) is Inventory:
                    self.answered[host.id] = None
            elif type(effect) is Record and type(effect.entry) is Assigned:
                places = effect.entry.places
                job = JobId(places[0].task.partition(".")[0])
                times = self.placed_at.setdefault(job, [])
                times.extend([self._agenda.now] * len(places))


def competing_gangs(
    seed: int = 0,
    *,
    schedulers: int = 8,
    gangs_each: int = 4,
    size: int = 8,
    slots: int = 40,
    loss: float = 0.1,
    run_s: float = 3.0,
    every_s: float = 20.0,
) -> GangFigures:
    """Run schedulers whose gangs cannot all run at once."""
    nodes = [_node(f"s{n}", ("scheduler",)) for n in range(schedulers)]
    nodes += [_node(f"w{n}", ("worker",), slots=4) for n in range(slots // 4)]
    errands: list[Errand] = []
    for n in range(schedulers):
        for k in range(gangs_each):
            at_s = 3.0 + every_s * (k + n / 200)
            errands.append(_gang(f"g{n}-{k}", size, NodeId(f"s{n}"), at_s))
    script = _script(nodes, errands, run_s=run_s, loss=loss, until_s=300.0)
    trial = SeedTrial(seed, script)
    notes = ShowcaseNotes(trial.world.agenda)
    trial.world.scene.tap = notes.tap
    outcome = trial.run()
    ranked = sorted(
        notes.placed_at[errand.job.id][0] - errand.at_s
        for errand in errands
        if errand.job.id in notes.placed_at
    )
    return GangFigures(
        gangs=len(errands),
        committed=len(ranked),
        commit_p50_s=statistics.median(ranked),
        commit_p99_s=ranked[int(len(ranked) * 0.99)],
        outcome=outcome,
    )


def one_announcement(
    seed: int = 0, *, workers: int = 10_000, tasks: int = 8
) -> CrowdFigures:
    """Run one scheduler that knows no worker and seeks room for a few tasks."""
    nodes = [_node("s0", ("scheduler",))]
    nodes += [_node(f"w{n}", ("worker",), slots=1) for n in range(workers)]
    group = make_group("j", "main", tasks, (SLOT,))
    job = Job(id=JobId("j"), owner=ANN, groups=(group,))
    errand = Errand(job=job, scheduler=NodeId("s0"), at_s=3.0)
    script = _script(nodes, [errand], run_s=20.0, loss=0.0, until_s=60.0)
    trial = SeedTrial(seed, script)
    notes = ShowcaseNotes(trial.world.agenda)
    trial.world.scene.tap = notes.tap
    outcome = trial.run()
    placed_at = notes.placed_at.get(job.id, [])
    return CrowdFigures(
        workers=workers,
        answered=len(notes.answered),
        placed=len(placed_at),
        placed_after_s=max(placed_at, default=errand.at_s) - errand.at_s,
        outcome=outcome,
    )


def _gang(id_: str, size: int, scheduler: NodeId, at_s: float) -> Errand:
    group = make_group(id_, "gang", size, (SLOT,))
    gang = msgspec.structs.replace(group, gang_min=size)
    job = Job(id=JobId(id_), owner=ANN, groups=(gang,))
    return Errand(job=job, scheduler=scheduler, at_s=at_s)


def _node(id_: str, roles: tuple[Role, ...], slots: int = 0) -> NodeSpec:
    capacity = Capacity(cpu_milli=1_000 * slots, memory_bytes=GIB * slots)
    node = NodeId(id_)
    return NodeSpec(
        id=node,
        roles=roles,
        grant=trust.grant(node, roles, ANN),
        capacity=capacity if slots else None,
    )


def _script(
    nodes: list[NodeSpec],
    errands: list[Errand],
    *,
    run_s: float,
    loss: float,
    until_s: float,
) -> SeedScript:
    plans: Plans = {
        task.id: Behaviour(run_s=run_s)
        for errand in errands
        for task in errand.job.tasks()
    }
    return SeedScript(
        nodes=tuple(nodes),
        joins_s={},
        workload=Workload(errands=tuple(errands), plans=plans),
        plan=FaultPlan(
            loss=loss,
            duplication=0.0,
            jitter_s=0.002,
            ordered=False,
            directory_errors=0.0,
            faults=(),
            heal_s=until_s,
        ),
        forger=None,
        encoded=False,
    )


@click.command()
@click.option("--seed", default=0, show_default=True, help="Which worlds to show.")
def showcase(seed: int) -> None:
    """Run both scenarios and print their figures."""
    began = time.perf_counter()
    gangs = competing_gangs(seed)
    print("8 schedulers, gangs of 8 on 40 slots, 10 % of messages lost")
    print(f"  committed whole  {gangs.committed} of {gangs.gangs} gangs")
    print(f"  time to commit   p50 {gangs.commit_p50_s:.2f} s, ", end="")
    print(f"p99 {gangs.commit_p99_s:.2f} s, from the submit on")
    _show_end(gangs.outcome, began)
    began = time.perf_counter()
    crowd = one_announcement(seed)
    print(f"{crowd.workers:,} workers hear one announcement for 8 tasks")
    print(f"  answered         {crowd.answered} workers")
    print(f"  placed           {crowd.placed} tasks, the last after ", end="")
    print(f"{crowd.placed_after_s:.2f} s")
    _show_end(crowd.outcome, began)
    if gangs.outcome.violations or crowd.outcome.violations:
        raise SystemExit(1)


def _show_end(outcome: SeedOutcome, began: float) -> None:
    spent_s = time.perf_counter() - began
    broken = "; ".join(map(str, outcome.violations)) or "every promise was kept"
    print(f"  simulated        {outcome.events:,} events in {spent_s:.1f} s, {broken}")
    print()


if __name__ == "__main__":
    showcase()
