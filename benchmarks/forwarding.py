"""Measure what a job gains that goes to a scheduler near the workers.

A node at home takes jobs of short tasks; eight workers and another scheduler of the
same owner are at the end of a line, 20 ms away. In virtual time, with the machines of
live nodes: once all tasks travel, and once whole jobs are forwarded. Each line is one
seed and one way: how long jobs took on average, and what crossed the line.

Run: python -m benchmarks.forwarding 5 >> benchmarks/results.jsonl
"""

from __future__ import annotations

import json
import statistics
import sys
from collections import Counter
from random import Random
from typing import TYPE_CHECKING, final

import msgspec

from shoal.core.durability.journal import Finished
from shoal.core.events import JobSubmitted
from shoal.core.proximity.events import SitesChanged
from shoal.core.succession.forwarding import ForwardRule
from shoal.model.caches import TREE
from shoal.model.ids import JobId, NodeId, OwnerId, TaskId
from shoal.model.job import Job, Work
from shoal.model.resources import Capacity, Profile
from shoal.protocol.limits import PIECE_BYTES_MAX
from shoal.sim.agenda import Agenda
from shoal.sim.artifacts.workload import with_work
from shoal.sim.node import trust
from shoal.sim.node.assembly import assemble_peer
from shoal.sim.node.blobs import pack_tree
from shoal.sim.node.driver import Behaviour
from shoal.sim.node.host import HostWatch, NodeSpec
from shoal.sim.workload import make_group
from shoal.sim.world import World

if TYPE_CHECKING:
    from collections.abc import Sequence

    from shoal.core.durability.journal import Entry
    from shoal.protocol.messages import AnyMessage, Role
    from shoal.sim.node.host import SimHost

LINE_S, LAN_S = 20e-3, 100e-6
WORKERS, JOBS, TASKS = 8, 10, 40
RUN_S = (0.1, 0.5)
CODE_BYTES = 4 * PIECE_BYTES_MAX
HOME, DESK, OWNER = NodeId("home"), NodeId("desk"), OwnerId("ann")
SUBMIT_S, EVERY_S, UNTIL_S = 3.0, 2.0, 300.0


@final
class Line:
    """The paths between both places, and what crosses the line."""

    def __init__(self) -> None:
        self.messages = Counter[str]()
        self.size = 0

    def latency_s(self, src: int, dst: int) -> float:
        """Return the latency between two nodes; the first one is at home."""
        return LINE_S if (src == 0) != (dst == 0) else LAN_S

    def carried(self, src: int, dst: int, message: AnyMessage) -> None:
        """Count what crosses the line."""
        if (src == 0) != (dst == 0):
            self.messages[type(message).__name__] += 1
            self.size += len(msgspec.msgpack.encode(message))


@final
class Ends(HostWatch):
    """Notes when the last task of each job ended."""

    def __init__(self, agenda: Agenda) -> None:
        super().__init__()
        self.tasks: dict[TaskId, float] = {}
        self._agenda = agenda

    def safe(self, host: SimHost, entries: Sequence[Entry]) -> None:
        """Note ends that are on a disk."""
        for entry in entries:
            if isinstance(entry, Finished):
                self.tasks[entry.task] = self._agenda.now


def measure(seed: int, *, forward: bool) -> dict[str, object]:
    """Run one world."""
    rng, agenda, line = Random(seed), Agenda(), Line()
    ends = Ends(agenda)
    world = World(seed, agenda, assemble_peer, ends)
    world.network.paths = line
    world.network.jitter_s = 0.0
    rule = ForwardRule(is_on=forward, takes=forward)
    desks = [(HOME, None), (DESK, None)]
    names = [(NodeId(f"w{n}"), Capacity(cpu_milli=1_000)) for n in range(WORKERS)]
    for id_, capacity in [*desks, *names]:
        role: Role = "scheduler" if capacity is None else "worker"
        grant = trust.grant(id_, (role,), OWNER)
        about = {"id": id_, "roles": (role,), "owner": OWNER, "grant": grant}
        world.add(NodeSpec(**about, capacity=capacity, forward=rule))  # type: ignore[arg-type]
    code = pack_tree(rng.randbytes(16), [rng.randbytes(CODE_BYTES)])
    world.hosts[HOME].blobs.keep(code)
    jobs = [_job(number, code.name) for number in range(JOBS)]
    for number, job in enumerate(jobs):
        for task in job.tasks():
            world.plans[task.id] = Behaviour(run_s=rng.uniform(*RUN_S))
        at_s = SUBMIT_S + EVERY_S * number
        agenda.at(at_s, _submit, world, JobSubmitted(number, job))
    agenda.at(1.0, _link, world)
    world.run(UNTIL_S)
    took: list[float] = []
    for number, job in enumerate(jobs):
        ended = [ends.tasks[task.id] for task in job.tasks()]
        took.append(max(ended) - SUBMIT_S - EVERY_S * number)
    return {
        "benchmark": "forwarding",
        "seed": seed,
        "way": "jobs forwarded" if forward else "tasks travel",
        "mean_s": round(statistics.mean(took), 3),
        "longest_s": round(max(took), 3),
        "messages": line.messages.total(),
        "kilobytes": round(line.size / 1e3),
        "most": dict(line.messages.most_common(4)),
    }


def _job(number: int, tree: str) -> Job:
    id_ = JobId(f"j{number}")
    group = make_group(id_, "main", TASKS, (Profile(cpu_milli=1_000),))
    job = Job(id=id_, owner=OWNER, groups=(group,))
    return with_work(job, Work(workdir=f"{TREE}{tree}"))


def _submit(world: World, request: JobSubmitted) -> None:
    world.submit(HOME, request)


def _link(world: World) -> None:
    hosts = list(world.hosts.values())
    near = {host.id: "near" for host in hosts if host.id != HOME}
    for host in hosts:
        for other in hosts:
            if other is not host:
                world.network.reach(host, other.id)
        host.feed(SitesChanged({**near, HOME: "home"}))


if __name__ == "__main__":
    for drawn in range(int(sys.argv[1]) if len(sys.argv) > 1 else 3):
        for way in (False, True):
            print(json.dumps(measure(drawn, forward=way)))
