"""The world of one seed: schedulers that want workers, and a cluster that lends some.

`s0` may ask the cluster; `s1` is of the same owner and only announces what it lacks;
`s2` is a stranger's. A small worker stays. The cluster queues, refuses, preempts and
kills pilots, and does not always answer; `s0` crashes. After `HEAL_S` all goes well.

| id | promise |
|---|---|
| Q1 | there are never more pilots at one time than the user allows |
| Q2 | no pilot waits or idles for long once nobody wants it |
| Q3 | no task starts that may take longer than the cluster lets its worker live |
| Q4 | a job that pilots can run ends well |
| Q5 | no pilot is submitted that no task of the owner wants |
| Q6 | nothing is submitted that the cluster has refused for good |
"""

from __future__ import annotations

from collections import deque
from random import Random
from typing import Final, final

import msgspec

from shoal.core.allocation.allocator import LABEL, Allocator
from shoal.core.allocation.events import (
    AllocationAdded,
    AllocationChanged,
    SubmitPilot,
)
from shoal.core.allocation.records import AllocationTerms
from shoal.core.events import Event, JobSubmitted
from shoal.core.leasing.owner_rules import OwnerRules
from shoal.core.lending.events import EndNode
from shoal.core.peer import Peer
from shoal.model.ids import JobId, NodeId, OwnerId, TaskId
from shoal.model.job import ENDS, Job
from shoal.model.resources import Capacity
from shoal.protocol.messages import Role
from shoal.sim.agenda import Agenda
from shoal.sim.allocation.cluster import ClusterJob, ClusterPlan, SimCluster
from shoal.sim.checkers.violations import Violation, Violations
from shoal.sim.faults.schedule import Burst
from shoal.sim.lending.timed_traffic import GRACE_S, HEAL_S, draw_array, draw_bursts
from shoal.sim.node import trust
from shoal.sim.node.assembly import assemble_peer
from shoal.sim.node.driver import Behaviour, SimProcess
from shoal.sim.node.host import HostWatch, NodeSpec, SimHost
from shoal.sim.world import World

OWNER: Final = OwnerId("ann")
STRANGER: Final = OwnerId("bob")
ASKS, LACKS, FOREIGN = NodeId("s0"), NodeId("s1"), NodeId("s2")
NAME: Final = "slurm"
DRIFT: Final = 0.004
SUBMIT_S: Final = (1.0, 250.0)
LENGTHS_S: Final = (3.0, 20.0, 60.0)  # for some no pilot lives so long
END_S: Final = 2_400.0
LOOK_S: Final = 1.0
STALE_S: Final = 75.0
"""Until then a scheduler may believe that another one lacks workers."""

OWN_STALE_S: Final = 5.0
"""And so long what its own tasks lack."""

GONE_S: Final = STALE_S + 60.0
"""How long after its idle time a pilot may still be there."""


class AllocationScript(msgspec.Struct, frozen=True):
    """Everything that the seed decides before the world begins."""

    terms: AllocationTerms
    plan: ClusterPlan
    pilot_cpu: int
    jobs: tuple[tuple[float, NodeId, Job], ...]
    behaviours: dict[TaskId, Behaviour]
    bursts: tuple[tuple[float, float, Burst], ...]
    crashes: tuple[float, ...]  # of the scheduler that asks


def draw_allocation_script(seed: int) -> AllocationScript:
    """Draw the terms, how the cluster behaves, jobs and faults."""
    rng = Random(f"{seed}/allocation")
    pilots_max = rng.randint(1, 6)
    terms = AllocationTerms(
        name=NAME,
        engine="sim",
        time_limit_s=rng.choice((60.0, 120.0, 300.0)),
        idle_s=rng.uniform(5.0, 40.0),
        pilots_max=pilots_max,
        backlog=rng.randint(1, min(2, pilots_max)),
    )
    longest_queue_s = rng.choice((1.0, 30.0, 400.0))
    plan = ClusterPlan(
        queue_s=(0.2, 0.2 + longest_queue_s),
        refuses=rng.choice((0.0, 0.0, 0.3)),
        forbids=rng.random() < 0.1,
        fails=rng.choice((0.0, 0.0, 0.2)),
        mute=rng.choice((0.0, 0.1, 0.3)),
        preempts_s=rng.choice((None, 60.0)),
    )
    jobs: list[tuple[float, NodeId, Job]] = []
    behaviours: dict[TaskId, Behaviour] = {}
    for number in range(rng.randint(2, 6)):
        node = rng.choice((ASKS, ASKS, LACKS, FOREIGN))
        owner = STRANGER if node == FOREIGN else OWNER
        job = draw_array(rng, JobId(f"j{number}"), owner, LENGTHS_S, behaviours)
        jobs.append((rng.uniform(*SUBMIT_S), node, job))
    bursts = draw_bursts(rng)
    crashes = tuple(rng.uniform(5.0, HEAL_S - 30.0) for _ in range(rng.randint(0, 2)))
    pilot_cpu = rng.choice((1_000, 4_000))
    parts = (terms, plan, pilot_cpu, tuple(jobs), behaviours, bursts, crashes)
    return AllocationScript(*parts)


@final
class AllocationPromises(HostWatch):
    """Watches where tasks start."""

    def __init__(self, agenda: Agenda) -> None:
        super().__init__()
        self.agenda = agenda
        self.violations = Violations(agenda)
        self.cluster: SimCluster
        self.placed = 0  # tasks of a known length, on pilots
        self.running: dict[TaskId, NodeId] = {}

    def started(self, host: SimHost, process: SimProcess) -> None:
        """Check that the task may end before the cluster kills its worker."""
        task = process.start.task
        self.running[task.id] = host.id
        job = self.cluster.find(host.id)
        if job is None or task.time_limit_s is None:
            return
        self.placed += 1
        over_s = self.agenda.now + task.time_limit_s + GRACE_S - job.ends_at
        if over_s > 0.0:
            what = f"{task.id} may take {over_s:.1f} s more than {host.id} is there"
            self.violations.report("Q3", what)

    def reaped(self, host: SimHost, process: SimProcess) -> None:
        """Note that a task runs no more."""
        self.running.pop(process.start.task.id, None)


@final
class AllocationTrial:
    """The world of one seed, with its promises."""

    def __init__(self, seed: int) -> None:
        """Prepare the world; nothing happens before `run`."""
        self.script = draw_allocation_script(seed)
        agenda = Agenda()
        self.promises = AllocationPromises(agenda)
        self.violations = self.promises.violations
        self.world = World(seed, agenda, assemble_peer, self.promises)
        self.world.scene.performers[EndNode] = self._end
        self.cluster = SimCluster(self.world, self.script.plan, self._pilot)
        self.cluster.on_submit = self._on_submit
        self.promises.cluster = self.cluster
        lacks = any(node == LACKS for _, node, _ in self.script.jobs)
        seen_s = STALE_S if lacks else OWN_STALE_S
        self._waited: deque[int] = deque(maxlen=int(seen_s / LOOK_S))
        self._unwanted_since = 0.0
        self._rng = self.world.stream("pilots")

    def run(self) -> tuple[Violation, ...]:
        """Run the world through its faults and to its end."""
        return self.violations.found_in(self._run)

    def _run(self) -> None:
        world, script = self.world, self.script
        agenda, rng = world.agenda, world.stream("schedulers")
        world.plans.update(script.behaviours)
        for node, owner in ((ASKS, OWNER), (LACKS, OWNER), (FOREIGN, STRANGER)):
            world.add(_spec(rng, node, "scheduler", owner))
        world.add(_worker(rng, NodeId("w"), 1_000))
        agenda.at(0.5, self._feed, AllocationAdded(1, script.terms))
        for number, (at_s, node, job) in enumerate(script.jobs):
            agenda.at(at_s, self._submit, node, JobSubmitted(number, job))
        for begin_s, end_s, burst in script.bursts:
            agenda.at(begin_s, burst.begin, world)
            agenda.at(end_s, burst.end, world)
        for at_s in script.crashes:
            agenda.at(at_s, world.crash, ASKS)
            agenda.at(at_s + 4.0, world.restart, ASKS)
        agenda.at(HEAL_S, self._heal)
        agenda.after(LOOK_S, self._look)
        world.run(END_S)
        if not self.violations.found:
            self._settle()

    def _feed(self, event: Event) -> None:
        self.world.feed(ASKS, event)

    def _submit(self, node: NodeId, submitted: JobSubmitted) -> None:
        """Submit a job; who finds the node down tries again."""
        if not self.world.submit(node, submitted):
            self.world.agenda.after(1.0, self._submit, node, submitted)
        self._waited.append(self._waiting())

    def _heal(self) -> None:
        """Let the cluster behave, and the user give it another chance."""
        self.cluster.heal()
        self._feed(AllocationChanged(2, NAME, "resume"))

    def _pilot(self, job: ClusterJob) -> NodeId:
        """Begin the node of a pilot, as its script does."""
        node = NodeId(f"p{job.native}")
        left_s = job.ends_at - self.world.now
        spec = msgspec.structs.replace(
            _worker(self._rng, node, self.script.pilot_cpu, f"{NAME}/{job.number}"),
            time_limit_s=left_s,
            idle_timeout_s=job.terms.idle_s,
        )
        host = self.world.add(spec)
        for scheduler in (ASKS, LACKS):
            self.world.network.reach(host, scheduler)
        return node

    def _end(self, host: SimHost, effect: EndNode) -> None:
        job = self.cluster.find(host.id)
        assert job is not None, effect
        self.world.agenda.after(0.0, self.cluster.end, job)

    # What is true.

    def _waiting(self) -> int:
        """Count the owner's tasks that a pilot could run and that do not run."""
        running = self.promises.running
        return sum(
            task.id not in running and not self._has_ended(node, task.id)
            for node, job in self._wanted()
            for group in job.groups
            for task in group.tasks
        )

    def _wanted(self) -> list[tuple[NodeId, Job]]:
        """Return the owner's jobs that were submitted and fit a pilot."""
        longest_s = self.script.terms.time_limit_s
        return [
            (node, job)
            for at_s, node, job in self.script.jobs
            if node != FOREIGN
            and at_s <= self.world.now
            and job.groups[0].tasks[0].profiles[0].longest_s <= longest_s
        ]

    def _has_ended(self, node: NodeId, task: TaskId) -> bool:
        machine = self.world.hosts[node].machine
        if not isinstance(machine, Peer) or machine.scheduler is None:
            return False
        tasks = machine.scheduler.book.tasks
        return task in tasks and tasks[task].state in ENDS

    def _look(self) -> None:
        """Check what must hold at any time."""
        self.world.agenda.after(LOOK_S, self._look)
        terms, now = self.script.terms, self.world.now
        live = [job for job in self.cluster.live if job.terms.name == NAME]
        if len(live) > terms.pilots_max:
            what = f"{len(live)} pilots are there, {terms.pilots_max} are allowed"
            self.violations.report("Q1", what)
        self._waited.append(self._waiting())
        if self._waited[-1] or self.promises.running:
            self._unwanted_since = now
        idle_s = now - self._unwanted_since
        if now > HEAL_S + GONE_S and live and idle_s > terms.idle_s + GONE_S:
            what = f"{len(live)} pilots are there, unwanted for {idle_s:.0f} s"
            self.violations.report("Q2", what)

    def _on_submit(self, host: SimHost, effect: SubmitPilot) -> None:
        """Check that what is submitted is wanted, and allowed."""
        if self.script.plan.forbids and not self.cluster.healed:
            self.violations.report("Q6", f"{host.id} submits what was refused")
        coming = [job for job in self.cluster.live if job.node is None]
        spare = self.cluster.arriving + sum(not job.unwanted for job in coming)
        waited = max(max(self._waited, default=0), self._waiting())
        if waited <= spare:
            what = (
                f"{waited} tasks wait, {spare} pilots come, and one more is submitted"
            )
            self.violations.report("Q5", what)

    def _settle(self) -> None:
        """Check the jobs that pilots can run."""
        for node, job in self._wanted():
            machine = self.world.hosts[node].machine
            assert isinstance(machine, Peer)
            assert machine.scheduler is not None
            record = machine.scheduler.book.jobs.get(job.id)
            state = "unknown" if record is None else record.state
            if state != "done":
                self.violations.report("Q4", f"{job.id} is {state} in the end")

    @property
    def allocator(self) -> Allocator:
        """The machine of the scheduler that asks."""
        machine = self.world.hosts[ASKS].machine
        assert isinstance(machine, Peer)
        found = machine.find(Allocator)
        assert found is not None
        return found


def _spec(rng: Random, id_: NodeId, role: Role, owner: OwnerId) -> NodeSpec:
    roles: tuple[Role, ...] = (role,)
    return NodeSpec(
        id=id_,
        roles=roles,
        owner=owner,
        grant=trust.grant(id_, roles, owner),
        clock_rate=1.0 + rng.uniform(-DRIFT, DRIFT),
    )


def _worker(rng: Random, id_: NodeId, cpu: int, label: str = "") -> NodeSpec:
    """Return a worker that takes tasks of its owner only."""
    labels = ((LABEL, label),) if label else ()
    return msgspec.structs.replace(
        _spec(rng, id_, "worker", OWNER),
        capacity=Capacity(cpu_milli=cpu, labels=labels),
        rules=OwnerRules(own=OWNER, owners=(OWNER,)),
    )
