"""The world of one seed: workers that are allocated for a time, and the promises.

Two schedulers, a small worker that stays, and allocated ones that come one after
another, each for a while. Jobs are arrays of tasks; some tell how long they may take.
Messages get lost, and clocks run at different rates.

| id | promise |
|---|---|
| Z1 | no task starts that may take longer than its worker is there |
| Z2 | no end of a worker cuts off a task of a known length, nor others without notice |
| Z3 | a worker is gone when its time is over, and soon after it was idle for long |
| Z4 | a job whose tasks work ends well, though its workers come and go |
"""

from __future__ import annotations

from random import Random
from typing import Final, final

import msgspec

from shoal.core.events import DrainRequested, JobSubmitted
from shoal.core.lending.events import EndNode
from shoal.core.lending.lifetime import LAST_S, LOOK_S, Lifetime
from shoal.core.peer import Peer
from shoal.model.ids import JobId, NodeId, OwnerId, TaskId
from shoal.model.job import Job
from shoal.model.resources import Capacity
from shoal.protocol.messages import Role
from shoal.sim.agenda import Agenda
from shoal.sim.checkers.violations import Violation, Violations
from shoal.sim.faults.schedule import Burst
from shoal.sim.lending.timed_traffic import GRACE_S, draw_array, draw_bursts
from shoal.sim.node import trust
from shoal.sim.node.assembly import assemble_peer
from shoal.sim.node.driver import Behaviour, SimProcess
from shoal.sim.node.host import HostWatch, NodeSpec, SimHost
from shoal.sim.world import World

OWNER: Final = OwnerId("ann")
SCHEDULERS: Final = (NodeId("s0"), NodeId("s1"))
DRIFT: Final = 0.004
SUBMIT_S: Final = (1.0, 200.0)
LENGTHS_S: Final = (5.0, 20.0, 60.0, 180.0)
COME_S: Final = (0.5, 300.0)
TIME_LIMIT_S: Final = (12.0, 240.0)
IDLE_S: Final = (5.0, 60.0)
END_S: Final = 2_400.0
GONE_S: Final = 2 * LOOK_S + 5.0
"""How long after its end a worker may still be there."""


class AllocatedScript(msgspec.Struct, frozen=True):
    """Everything that the seed decides before the world begins."""

    workers: tuple[tuple[float, NodeSpec], ...]  # when each comes
    jobs: tuple[tuple[float, NodeId, Job], ...]
    behaviours: dict[TaskId, Behaviour]
    bursts: tuple[tuple[float, float, Burst], ...]


def draw_allocated_script(seed: int) -> AllocatedScript:
    """Draw workers, jobs and faults."""
    rng = Random(f"{seed}/allocated")
    workers = [(0.0, _node(rng, NodeId("w"), ("worker",), 4_000))]
    for number in range(rng.randint(2, 6)):
        spec = _node(rng, NodeId(f"a{number}"), ("worker",), rng.choice((1_000, 4_000)))
        limit_s = rng.uniform(*TIME_LIMIT_S) if rng.random() < 0.9 else None
        idle_s = rng.uniform(*IDLE_S) if rng.random() < 0.6 or limit_s is None else None
        spec = msgspec.structs.replace(
            spec, time_limit_s=limit_s, idle_timeout_s=idle_s
        )
        workers.append((rng.uniform(*COME_S), spec))
    jobs: list[tuple[float, NodeId, Job]] = []
    behaviours: dict[TaskId, Behaviour] = {}
    for number in range(rng.randint(2, 6)):
        job = draw_array(rng, JobId(f"j{number}"), OWNER, LENGTHS_S, behaviours)
        jobs.append((rng.uniform(*SUBMIT_S), rng.choice(SCHEDULERS), job))
    bursts = draw_bursts(rng)
    return AllocatedScript(tuple(workers), tuple(jobs), behaviours, bursts)


def _node(rng: Random, id_: NodeId, roles: tuple[Role, ...], cpu: int) -> NodeSpec:
    return NodeSpec(
        id=id_,
        roles=roles,
        owner=OWNER,
        grant=trust.grant(id_, roles, OWNER),
        capacity=Capacity(cpu_milli=cpu) if "worker" in roles else None,
        clock_rate=1.0 + rng.uniform(-DRIFT, DRIFT),
    )


@final
class AllocatedPromises(HostWatch):
    """Watches workers that are there for a time."""

    def __init__(self) -> None:
        super().__init__()
        self.violations: Violations
        self.started_in_time = 0  # tasks of a known length, on allocated workers
        self.facts[DrainRequested] = self._notice

    def started(self, host: SimHost, process: SimProcess) -> None:
        """Check that the task may end before its worker does."""
        lifetime, limit_s = lifetime_of(host), process.start.task.time_limit_s
        if lifetime is None or lifetime.ends_at is None or limit_s is None:
            return
        self.started_in_time += 1
        over_s = host.clock() + limit_s + GRACE_S - lifetime.ends_at
        if over_s > 0.0:
            what = (
                f"{process.start.task.id} may take {over_s:.1f} s more than {host.id}"
            )
            self.violations.report("Z1", f"{what} is there")

    def ends(self, host: SimHost, effect: EndNode) -> None:
        """Check what an end cuts off."""
        running = [p for p in host.driver.processes.values() if p.exit_code is None]
        for process in running:
            noticed = process.kill_at is not None
            if process.start.task.time_limit_s is not None or not noticed:
                what = (
                    f"{process.start.task.id} runs as {host.id} ends: {effect.reason}"
                )
                self.violations.report("Z2", what)

    def _notice(self, host: SimHost, *_: object) -> None:
        """Nobody else drains workers here."""
        self.violations.report("Z2", f"{host.id} was drained by somebody else")

    def still_there(self, host: SimHost) -> None:
        """Check that a worker whose time is over has left."""
        if host.up:
            self.violations.report("Z3", f"{host.id} is there after its end")


def lifetime_of(host: SimHost) -> Lifetime | None:
    """Return the machine that ends a node in time, if it has one."""
    machine = host.machine
    return machine.find(Lifetime) if isinstance(machine, Peer) else None


@final
class AllocatedTrial:
    """The world of one seed, with its promises."""

    def __init__(self, seed: int) -> None:
        """Prepare the world; nothing happens before `run`."""
        self.script = draw_allocated_script(seed)
        agenda = Agenda()
        self.promises = AllocatedPromises()
        self.violations = self.promises.violations = Violations(agenda)
        self.world = World(seed, agenda, assemble_peer, self.promises)
        self.world.scene.performers[EndNode] = self._end
        self.ended: dict[NodeId, str] = {}  # why each allocated worker left

    def run(self) -> tuple[Violation, ...]:
        """Run the world through its faults and to its end."""
        return self.violations.found_in(self._run)

    def _run(self) -> None:
        world, script = self.world, self.script
        agenda = world.agenda
        world.plans.update(script.behaviours)
        rng = world.stream("schedulers")
        for node in SCHEDULERS:
            world.add(_node(rng, node, ("scheduler",), 0))
        for come_s, spec in script.workers:
            world.add(spec, up=False)
            agenda.at(come_s, self._come, spec)
        for number, (at_s, node, job) in enumerate(script.jobs):
            submitted = JobSubmitted(number, job)
            agenda.at(at_s, self._submit, node, submitted)
        for begin_s, end_s, burst in script.bursts:
            agenda.at(begin_s, burst.begin, world)
            agenda.at(end_s, burst.end, world)
        world.run(END_S)
        if not self.violations.found:
            self._settle()

    def _submit(self, node: NodeId, submitted: JobSubmitted) -> None:
        self.world.submit(node, submitted)

    def _come(self, spec: NodeSpec) -> None:
        world, limit_s = self.world, spec.time_limit_s
        world.restart(spec.id)
        for node in SCHEDULERS:
            world.network.reach(world.hosts[spec.id], node)
        if limit_s is not None:
            late_s = limit_s / spec.clock_rate + GONE_S
            world.agenda.after(late_s, self.promises.still_there, world.hosts[spec.id])

    def _end(self, host: SimHost, effect: EndNode) -> None:
        """Let a node go for good, as its host would; what runs is killed."""
        self.promises.ends(host, effect)
        self.ended[host.id] = effect.reason
        self.world.agenda.after(0.0, self.world.leave, host.id)

    def _settle(self) -> None:
        """Check the jobs, and that only the worker is there that stays."""
        for _, spec in self.script.workers:
            if spec.time_limit_s is not None or spec.idle_timeout_s is not None:
                self.promises.still_there(self.world.hosts[spec.id])
        for _, node, job in self.script.jobs:
            machine = self.world.hosts[node].machine
            assert isinstance(machine, Peer)
            assert machine.scheduler is not None
            record = machine.scheduler.book.jobs.get(job.id)
            state = "unknown" if record is None else record.state
            if state != "done":
                self.violations.report("Z4", f"{job.id} is {state} in the end")


assert GONE_S < LAST_S
