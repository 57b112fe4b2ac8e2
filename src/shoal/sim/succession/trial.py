"""The world of one seed: kept jobs, a scheduler that is lost, and checkers.

Three to five schedulers of one owner, some of them workers too, and more workers. Jobs
come early, when all are linked; many have code, steps, outputs and checkpoints. Then
the scheduler of the jobs dies for good, or comes
back, or is cut off with some of the workers; other members crash or are cut off, disks
are slow, messages get lost. So many members are left in the end that a majority is
there. Then the network heals, and every job must end.
"""

from __future__ import annotations

import traceback
from random import Random
from typing import Final, final

import msgspec

from shoal.core.events import DepartureNear, JobSubmitted
from shoal.model.caches import TREE
from shoal.model.ids import GroupId, JobId, NodeId, OwnerId, TaskId
from shoal.model.job import Group, Job, Retry, Task, Work
from shoal.model.resources import Capacity, Profile
from shoal.protocol.limits import PIECE_BYTES_MAX
from shoal.protocol.messages import Role
from shoal.sim.agenda import Agenda
from shoal.sim.artifacts.workload import with_work
from shoal.sim.checkers.violations import Violation, Violations
from shoal.sim.faults.schedule import Burst, Crash, Fault, Partition, SlowDisk, heal
from shoal.sim.node import trust
from shoal.sim.node.assembly import assemble_peer, compact_journal
from shoal.sim.node.blobs import PackedTree, pack_tree
from shoal.sim.node.driver import Behaviour
from shoal.sim.node.host import NodeSpec, Tap
from shoal.sim.succession.promises import KeptPromises
from shoal.sim.world import World

FIRST: Final = NodeId("s0")
OWNER: Final = OwnerId("ann")
LINKED_S: Final = 1.0
SUBMIT_S: Final = 2.0
FAULTS_S: Final = (5.0, 60.0)
FAULT_S: Final = (0.5, 60.0)
HEAL_S: Final = 130.0
END_S: Final = 1_200.0
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


class KeptScript(msgspec.Struct, frozen=True):
    """Everything that the seed decides before the world begins."""

    nodes: tuple[NodeSpec, ...]
    jobs: tuple[Job, ...]
    behaviours: dict[TaskId, Behaviour]
    faults: tuple[tuple[float, float | None, Fault], ...]  # begin, end, what
    code: PackedTree | None = None  # of the jobs, if they have files


def draw_script(seed: int) -> KeptScript:
    """Draw nodes, jobs and faults."""
    rng = Random(f"{seed}/succession")
    schedulers = [NodeId(f"s{n}") for n in range(rng.choice((3, 3, 4, 5)))]
    workers = [NodeId(f"w{n}") for n in range(rng.randint(2, 5))]
    nodes = [_node(rng, s, ("scheduler",), rng.random() < 0.4) for s in schedulers]
    nodes += [_node(rng, w, ("worker",), True) for w in workers]
    jobs, behaviours = _jobs(rng, 4 if len(schedulers) > 4 else 2)
    faults = _faults(rng, schedulers, workers)
    script = KeptScript(tuple(nodes), tuple(jobs), behaviours, tuple(faults))
    script = _with_departure(Random(f"{seed}/departure"), script)
    return _with_files(Random(f"{seed}/files"), script)


def _with_departure(rng: Random, script: KeptScript) -> KeptScript:
    """Let the first scheduler know that it will die, in some worlds."""
    if rng.random() >= DEPARTURE_SHARE or not script.faults:
        return script
    at, end, fault = script.faults[0]
    if end is not None or fault != Crash((FIRST,)):
        return script
    told = (max(at - rng.uniform(0.0, 8.0), 3.0), None, Departure(FIRST))
    return msgspec.structs.replace(script, faults=(told, *script.faults))


def _with_files(rng: Random, script: KeptScript) -> KeptScript:
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


def _node(
    rng: Random, id_: NodeId, roles: tuple[Role, ...], is_worker: bool
) -> NodeSpec:
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


def _jobs(rng: Random, keepers: int) -> tuple[list[Job], dict[TaskId, Behaviour]]:
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


@final
class KeptTrial:
    """The world of one seed, with its promises."""

    def __init__(self, seed: int, tap: Tap | None = None) -> None:
        """Prepare the world; nothing happens before `run`."""
        self.script = script = draw_script(seed)
        agenda = Agenda()
        self.promises = KeptPromises({job.id: job for job in script.jobs})
        self.violations = self.promises.violations = Violations(agenda)
        self.world = World(seed, agenda, assemble_peer, self.promises, tap=tap)
        self.world.scene.compact = compact_journal
        self.traceback = ""

    def run(self) -> tuple[Violation, ...]:
        """Run the world through its faults and to its end."""
        try:
            self._run()
        except Exception as error:  # noqa: BLE001 - A machine never raises.
            self.traceback = traceback.format_exc()
            self.violations.report("RAISED", f"{type(error).__name__}: {error}")
        return tuple(self.violations.found)

    def _run(self) -> None:
        world, script = self.world, self.script
        world.plans.update(script.behaviours)
        for spec in script.nodes:
            world.add(spec)
        world.agenda.at(LINKED_S, self._link)
        for number, job in enumerate(script.jobs):
            submit = JobSubmitted(number, job)
            world.agenda.at(SUBMIT_S + 0.3 * number, self._submit, submit)
        for begin, end, fault in script.faults:
            world.agenda.at(begin, fault.begin, world)
            if end is not None:
                world.agenda.at(end, fault.end, world)
        if script.code is not None:
            world.hosts[FIRST].blobs.keep(script.code)
        self.promises.hosts = world.hosts
        world.run(HEAL_S)
        self._heal()
        world.run(END_S)
        if not self.violations.found:
            self.promises.settle(list(world.hosts.values()))

    def _submit(self, request: JobSubmitted) -> None:
        self.world.submit(FIRST, request)

    def _link(self) -> None:
        hosts = list(self.world.hosts.values())
        for host in hosts:
            for other in hosts:
                if other is not host:
                    self.world.network.reach(host, other.id)

    def _heal(self) -> None:
        """End all faults but those for good."""
        for _, end, fault in self.script.faults:
            if end is None and isinstance(fault, Crash):
                for node in fault.nodes:
                    self.world.hosts[node].left = True
        if not self.violations.found:
            heal(self.world)
            self._link()
