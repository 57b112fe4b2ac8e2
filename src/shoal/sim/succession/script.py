"""What a seed decides before a world of kept jobs begins: nodes, jobs and faults.

Three to five schedulers of one owner, some of them workers too, and more workers. Jobs
come early, when all are linked; many have code, steps, outputs and checkpoints. Then
the scheduler of the jobs dies for good, or comes back, or is cut off with some of the
workers; other members crash or are cut off, disks are slow, messages get lost. So many
members are left in the end that a majority is there.
"""

from __future__ import annotations

from random import Random
from typing import Final

import msgspec

from shoal.core.events import DepartureNear
from shoal.model.caches import TREE
from shoal.model.ids import GroupId, JobId, NodeId, OwnerId, TaskId
from shoal.model.job import Group, Job, Retry, Task, Work
from shoal.model.resources import Capacity, Profile
from shoal.protocol.limits import PIECE_BYTES_MAX
from shoal.protocol.messages import Role
from shoal.sim.artifacts.workload import with_work
from shoal.sim.faults.schedule import Burst, Crash, Fault, Partition, SlowDisk
from shoal.sim.node import trust
from shoal.sim.node.blobs import PackedTree, pack_tree
from shoal.sim.node.driver import Behaviour
from shoal.sim.node.host import NodeSpec
from shoal.sim.world import World

FIRST: Final = NodeId("s0")
OWNER: Final = OwnerId("ann")
SUBMIT_S: Final = 2.0
FAULTS_S: Final = (5.0, 60.0)
FAULT_S: Final = (0.5, 60.0)
DRIFT: Final = 0.004
DEPARTURE_SHARE: Final = 0.4  # of worlds whose first scheduler dies, and knows it
FILES_SHARE: Final = 0.6  # of worlds whose jobs have files
STEPS_SHARE: Final = 0.4  # of their jobs that have a second step
SAVING_SHARE: Final = 0.3  # of their tasks that save checkpoints
FILE_BYTES: Final = (300, 3 * PIECE_BYTES_MAX)
ALONE_SHARE: Final = 0.4  # of worlds in which only the first scheduler has trouble


class PairCut(msgspec.Struct, frozen=True):
    """Two nodes hear nothing of each other, though all others hear both."""

    one: NodeId
    other: NodeId

    def begin(self, world: World) -> None:
        """Cut the path, both ways."""
        one, other = [world.hosts[self.one]], [world.hosts[self.other]]
        world.network.cut(one, other)
        world.network.cut(other, one)

    def end(self, world: World) -> None:
        """Mend the path."""
        one, other = [world.hosts[self.one]], [world.hosts[self.other]]
        world.network.mend(one, other)
        world.network.mend(other, one)


class Departure(msgspec.Struct, frozen=True):
    """A node is told that it ends soon."""

    node: NodeId

    def begin(self, world: World) -> None:
        """Tell it, if it is up."""
        world.hosts[self.node].feed(DepartureNear())

    def end(self, world: World) -> None:
        """Let it go on."""


class LeaveForGood(msgspec.Struct, frozen=True):
    """A node is told that it leaves; it stays up, with what it cannot hand over."""

    node: NodeId

    def begin(self, world: World) -> None:
        """Tell it, if it is up."""
        if world.hosts[self.node].up:
            world.hosts[self.node].feed(DepartureNear(for_good=True))

    def end(self, world: World) -> None:
        """Let it stay."""


class KeptScript(msgspec.Struct, frozen=True):
    """Everything that the seed decides before the world begins."""

    nodes: tuple[NodeSpec, ...]
    jobs: tuple[Job, ...]
    behaviours: dict[TaskId, Behaviour]
    faults: tuple[tuple[float, float | None, Fault], ...]  # begin, end, what
    code: PackedTree | None = None  # of the jobs, if they have files

    def is_calm(self, until_s: float) -> bool:
        """Whether nothing happens until then but that the first scheduler leaves."""
        leaves = (Departure(FIRST), Crash((FIRST,)))
        other = [begin for begin, _, fault in self.faults if fault not in leaves]
        return all(begin > until_s for begin in other)


def draw_script(seed: int) -> KeptScript:
    """Draw nodes, jobs and faults."""
    rng = Random(f"{seed}/succession")
    schedulers = [NodeId(f"s{n}") for n in range(rng.choice((3, 3, 4, 5)))]
    workers = [NodeId(f"w{n}") for n in range(rng.randint(2, 5))]
    nodes = [draw_node(rng, s, ("scheduler",), rng.random() < 0.4) for s in schedulers]
    nodes += [draw_node(rng, w, ("worker",), True) for w in workers]
    jobs, behaviours = draw_jobs(rng, 4 if len(schedulers) > 4 else 2)
    faults = _faults(rng, schedulers, workers)
    script = KeptScript(tuple(nodes), tuple(jobs), behaviours, tuple(faults))
    script = _with_departure(Random(f"{seed}/departure"), script)
    return with_files(Random(f"{seed}/files"), script)


def _with_departure(rng: Random, script: KeptScript) -> KeptScript:
    """Let the first scheduler know that it will die, in some worlds."""
    if rng.random() >= DEPARTURE_SHARE or not script.faults:
        return script
    at, end, fault = script.faults[0]
    if end is not None or fault != Crash((FIRST,)):
        return script
    told = (max(at - rng.uniform(0.0, 8.0), 3.0), None, Departure(FIRST))
    return msgspec.structs.replace(script, faults=(told, *script.faults))


def with_files(rng: Random, script: KeptScript) -> KeptScript:
    """Give jobs code, outputs, second steps and checkpoints, in some worlds."""
    if rng.random() >= FILES_SHARE:
        return script
    code = pack_tree(rng.randbytes(16), [rng.randbytes(n) for n in FILE_BYTES])
    work = Work(workdir=f"{TREE}{code.name}", outputs=("out",))
    jobs = tuple(_with_steps(rng, with_work(job, work)) for job in script.jobs)
    plans: dict[TaskId, Behaviour] = {}
    for task in (task for job in jobs for task in job.tasks()):
        plan = script.behaviours.get(task.id) or Behaviour(run_s=rng.uniform(0.5, 9.0))
        if rng.random() < SAVING_SHARE:
            plan = msgspec.structs.replace(plan, talks=True, saves=2)
        plans[task.id] = plan
    replace = msgspec.structs.replace
    return replace(script, jobs=jobs, behaviours=plans, code=code)


def _with_steps(rng: Random, job: Job) -> Job:
    """Add a step that needs the outputs of the first, to some jobs."""
    if rng.random() >= STEPS_SHARE:
        return job
    [first], id_ = job.groups, GroupId(f"{job.id}.after")
    tasks = tuple(
        msgspec.structs.replace(first.tasks[0], id=TaskId(f"{id_}.{n}"), group=id_)
        for n in range(2)
    )
    after = Group(id=id_, tasks=tasks, needs=(first.id,))
    return msgspec.structs.replace(job, groups=(first, after))


def draw_node(
    rng: Random, id_: NodeId, roles: tuple[Role, ...], is_worker: bool
) -> NodeSpec:
    """Draw a node of the owner."""
    if is_worker and "worker" not in roles:
        roles = (*roles, "worker")
    return NodeSpec(
        id=id_,
        roles=roles,
        owner=OWNER,
        grant=trust.grant(id_, roles, OWNER),
        capacity=Capacity(cpu_milli=rng.choice((1_000, 2_000))) if is_worker else None,
        clock_rate=1.0 + rng.uniform(-DRIFT, DRIFT),
    )


def draw_jobs(rng: Random, keepers: int) -> tuple[list[Job], dict[TaskId, Behaviour]]:
    """Draw jobs, and how their tasks behave."""
    jobs: list[Job] = []
    behaviours: dict[TaskId, Behaviour] = {}
    for number in range(rng.randint(1, 3)):
        id_ = JobId(f"j{number}")
        group = GroupId(f"{id_}.main")
        tasks = tuple(
            Task(
                id=TaskId(f"{group}.{n}"),
                job=id_,
                group=group,
                index=n,
                profiles=(Profile(cpu_milli=1_000),),
                grace_s=1.0,
            )
            for n in range(rng.randint(2, 14))
        )
        gang = rng.random() < 0.15
        for task in tasks:
            behaviours[task.id] = Behaviour(run_s=rng.uniform(0.5, 25.0))
        jobs.append(
            Job(
                id=id_,
                owner=OWNER,
                groups=(Group(id=group, tasks=tasks[:2], gang_min=2),)
                if gang
                else (Group(id=group, tasks=tasks),),
                keepers=keepers,
                at_most_once=rng.random() < 0.2,
                retry=Retry(max=50),
            )
        )
    return jobs, behaviours


def _faults(
    rng: Random, schedulers: list[NodeId], workers: list[NodeId]
) -> list[tuple[float, float | None, Fault]]:
    """Draw what happens to the first scheduler, and perhaps to others."""
    faults: list[tuple[float, float | None, Fault]] = []
    at = rng.uniform(*FAULTS_S)
    kinds = ("dies", "dies", "returns", "partition", "partition", "burst")
    kind = rng.choice(kinds)
    if kind == "dies":
        faults.append((at, None, Crash((FIRST,))))
    elif kind == "returns":
        faults.append((at, at + rng.uniform(*FAULT_S), Crash((FIRST,))))
    elif kind == "partition":
        inside = (FIRST, *rng.sample(workers, rng.randint(0, len(workers) - 1)))
        cut = Partition(inside, both=rng.random() < 0.7)
        faults.append((at, at + rng.uniform(*FAULT_S), cut))
    if rng.random() < ALONE_SHARE:
        return faults
    for _ in range(rng.randint(1, 3)):
        begin = rng.uniform(*FAULTS_S)
        end = begin + rng.uniform(*FAULT_S)
        faults.append((begin, end, _other_fault(rng, schedulers, workers)))
    return faults


def _other_fault(rng: Random, schedulers: list[NodeId], workers: list[NodeId]) -> Fault:
    match rng.choice(("keeper", "cut", "pair", "worker", "disk", "burst")):
        case "keeper":
            return Crash((rng.choice(schedulers[1:]),))
        case "cut":
            side = rng.sample(schedulers, rng.randint(1, len(schedulers) - 1))
            return Partition(tuple(side), both=rng.random() < 0.7)
        case "pair":
            return PairCut(FIRST, rng.choice(schedulers[1:]))
        case "worker":
            return Crash((rng.choice(workers),))
        case "disk":
            return SlowDisk(rng.choice(schedulers))
        case _:
            return Burst(rng.uniform(0.0, 0.3), rng.uniform(0.0, 0.5), 0.0, 0.0)
