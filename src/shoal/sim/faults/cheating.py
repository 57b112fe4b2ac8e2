"""Worlds in which some workers lie, each with a different owner."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Final

import msgspec

from shoal.model.ids import GroupId, JobId, NodeId, OwnerId
from shoal.model.job import Job, Retry, Verify
from shoal.model.resources import GIB, Capacity, Profile
from shoal.sim.artifacts.workload import OUTPUTS, with_work
from shoal.sim.checkers.verification import Verification, of_group
from shoal.sim.faults.cheats import Cheat
from shoal.sim.faults.schedule import DRIFT, Cast, FaultPlan, draw_plan
from shoal.sim.node import trust
from shoal.sim.node.driver import Behaviour, Plans
from shoal.sim.node.host import NodeSpec
from shoal.sim.seeds import SeedScript, SeedTrial
from shoal.sim.workload import Errand, Workload, make_group

BOSS: Final = OwnerId("boss")
SCHEDULER: Final = NodeId("s0")
SLOTS: Final = (1, 2, 4)
PATIENCE: Final = 25
"""Right results that a sleeper gives first: more than it needs to be trusted."""

CHEATS: Final = (
    Cheat("always"),
    Cheat("lazy"),
    Cheat("sometimes", share=0.5),
    Cheat("sleeper", patience=PATIENCE),
)
FICKLE: Final = CHEATS[:3]
"""Cheats that lie from the start; a sleeper may be believed in a small group."""

CALM: Final = FaultPlan(
    loss=0.0,
    duplication=0.0,
    jitter_s=0.001,
    ordered=True,
    directory_errors=0.0,
    faults=(),
    heal_s=5.0,
)
PAIRS: Final = Verify(copies=2)
FAULTS_S: Final = 40.0
GAP_S: Final = 5.0


class CheatFound(msgspec.Struct, frozen=True, kw_only=True):
    """Result of the verified tasks of one world."""

    accepted: int
    wrong: int
    failed: int  # tasks without agreement
    work: float  # mean answers per task
    work_later: float  # likewise in the last job, when trust is settled
    found_after: tuple[int, ...]  # answers of each cheat until it was found
    lies_before: tuple[int, ...]  # lies among those answers
    missed: int  # cheats not found
    violations: tuple[str, ...]


def cheating_script(
    seed: int,
    cheats: Sequence[Cheat],
    *,
    workers: int = 20,
    tasks: Sequence[int] = (300, 300, 300),
    verify: Verify = PAIRS,
    faults: bool = False,
) -> SeedScript:
    """Draw a world with `workers` workers, the first of which cheat.

    Each number in `tasks` is the size of one job of verified tasks.
    """
    rng = Random(f"{seed}/cheating")
    nodes = [_node(rng, SCHEDULER, BOSS, None, None)]
    for number in range(workers):
        cheat = cheats[number] if number < len(cheats) else None
        slots = rng.choice(SLOTS)
        id_ = NodeId(f"w{number}")
        nodes.append(_node(rng, id_, OwnerId(f"o{number}"), slots, cheat))
    names = tuple(node.id for node in nodes[1:])
    cast = Cast(schedulers=(SCHEDULER,), workers=names)
    return SeedScript(
        nodes=tuple(nodes),
        joins_s={},
        workload=_workload(rng, tasks, verify),
        plan=draw_plan(rng, cast, FAULTS_S) if faults else CALM,
        forger=None,
        encoded=False,
    )


def cheating_trial(seed: int, script: SeedScript) -> tuple[SeedTrial, Verification]:
    """Prepare the world of a script, with a checker of accepted results."""
    trial = SeedTrial(seed, script)
    checker = Verification(trial.suite.violations, trial.world.hosts)
    trial.suite.verification = checker
    return trial, checker


def run_cheating(seed: int, script: SeedScript, *, strict: bool = True) -> CheatFound:
    """Run a world to its end; only if `strict`, a wrong result stops it."""
    trial, checker = cheating_trial(seed, script)
    if not strict:
        checker.tolerant = True
    outcome = trial.run()
    jobs = [errand.job for errand in script.workload.errands]
    last = of_group(checker.answered, GroupId(f"{jobs[-1].id}.main"))
    liars = [node.id for node in script.nodes if node.cheat is not None]
    found = [node for node in liars if node in checker.found]
    asked = sum(len(job.groups[0].tasks) for job in jobs)
    accepted = sum(checker.accepted.values())
    return CheatFound(
        accepted=accepted,
        wrong=len(checker.accepted) - accepted,
        failed=asked - len(checker.accepted),
        work=sum(checker.answered.values()) / max(1, len(checker.answered)),
        work_later=sum(last.values()) / max(1, len(last)),
        found_after=tuple(checker.found[node] for node in found),
        lies_before=tuple(checker.lies.get(node, 0) for node in found),
        missed=sum(trial.world.hosts[node].answers.lies > 0 for node in liars)
        - len(found),
        violations=tuple(map(str, outcome.violations)),
    )


def _node(
    rng: Random, id_: NodeId, owner: OwnerId, slots: int | None, cheat: Cheat | None
) -> NodeSpec:
    capacity = None
    if slots is not None:
        capacity = Capacity(cpu_milli=1_000 * slots, memory_bytes=8 * GIB)
    return NodeSpec(
        id=id_,
        roles=("scheduler",) if slots is None else ("worker",),
        owner=owner,
        grant=trust.grant(id_, ("scheduler",) if slots is None else ("worker",), owner),
        capacity=capacity,
        clock_rate=1.0 + rng.uniform(-DRIFT, DRIFT),
        cheat=cheat,
    )


def _workload(rng: Random, tasks: Sequence[int], verify: Verify) -> Workload:
    plans: Plans = {}
    errands: list[Errand] = []
    at_s = 1.0
    for number, size in enumerate(tasks):
        group = make_group(f"j{number}", "main", size, (Profile(cpu_milli=1_000),))
        job = with_work(
            Job(
                id=JobId(f"j{number}"),
                owner=BOSS,
                groups=(msgspec.structs.replace(group, verify=verify),),
                retry=Retry(max=3, on=("worker-lost",)),
            ),
            OUTPUTS,
        )
        errands.append(Errand(job=job, scheduler=SCHEDULER, at_s=at_s))
        at_s += GAP_S + size * 0.2
        for task in job.tasks():
            plans[task.id] = Behaviour(run_s=rng.uniform(0.5, 3.0))
    return Workload(errands=tuple(errands), plans=plans)
