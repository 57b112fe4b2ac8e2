"""The world of one seed: jobs that schedulers forward to each other, and checkers.

Two to four schedulers of one owner, and workers. The first scheduler gets all jobs. It
is far from the workers while another is near, or it has too much to do, or it leaves.
Nodes crash and come back, are cut off, have slow disks, and messages get lost. In the
end everybody is back, and every job must end at one node.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Final, Literal

import msgspec

from shoal.core.proximity.events import SitesChanged
from shoal.core.succession.forwarding import ForwardRule
from shoal.model.ids import NodeId
from shoal.sim.faults.schedule import Burst, Crash, Fault, Partition, SlowDisk
from shoal.sim.succession.script import (
    FAULT_S,
    FIRST,
    SUBMIT_S,
    KeptScript,
    LeaveForGood,
    PairCut,
    draw_jobs,
    draw_node,
    with_files,
)

if TYPE_CHECKING:
    from shoal.sim.world import World

Why = Literal["far", "busy", "leaves"]

FEW_TASKS: Final = 6
"""So many are too many, in worlds whose first scheduler is busy."""

FAULTS_S: Final = (1.5, 30.0)
SOON_S: Final = (1.8, 3.5)
"""Jobs are on their way then."""

SOON_SHARE: Final = 0.6
TOLD_EVERY_S: Final = 5.0


class SitesFound(msgspec.Struct, frozen=True):
    """All nodes find out which of them are near each other, again and again."""

    sites: dict[NodeId, str]

    def begin(self, world: World) -> None:
        """Tell those that are up."""
        for host in world.hosts.values():
            if host.up:
                host.feed(SitesChanged(self.sites))
        world.agenda.after(TOLD_EVERY_S, self.begin, world)

    def end(self, world: World) -> None:
        """Go on telling."""


def draw_forward_script(seed: int) -> KeptScript:
    """Draw nodes, jobs and faults."""
    rng = Random(f"{seed}/forwarding")
    whys: tuple[Why, ...] = ("far", "busy", "leaves")
    why = rng.choice(whys)
    schedulers = [NodeId(f"s{n}") for n in range(rng.randint(2, 4))]
    workers = [NodeId(f"w{n}") for n in range(rng.randint(2, 4))]
    busy_tasks = FEW_TASKS if why == "busy" else 1_000
    rule = ForwardRule(is_on=True, takes=True, busy_tasks=busy_tasks)
    replace = msgspec.structs.replace
    nodes = [
        replace(draw_node(rng, s, ("scheduler",), is_worker=False), forward=rule)
        for s in schedulers
    ]
    nodes += [draw_node(rng, w, ("worker",), is_worker=True) for w in workers]
    jobs, behaviours = draw_jobs(rng, 0)
    faults: list[tuple[float, float | None, Fault]] = []
    if why == "far":
        sites = dict.fromkeys(schedulers[:1], "far")
        sites |= dict.fromkeys([*schedulers[1:], *workers], "near")
        faults.append((rng.uniform(1.2, 8.0), None, SitesFound(sites)))
    elif why == "leaves":
        at = rng.uniform(SUBMIT_S, FAULTS_S[1])
        faults.append((at, None, LeaveForGood(FIRST)))
    for _ in range(rng.choice((0, 1, 1, 2, 3))):
        begin = rng.uniform(*(SOON_S if rng.random() < SOON_SHARE else FAULTS_S))
        end = begin + rng.uniform(*FAULT_S)
        faults.append((begin, end, _fault(rng, schedulers, workers)))
    script = KeptScript(tuple(nodes), tuple(jobs), behaviours, tuple(faults))
    return with_files(Random(f"{seed}/files"), script)


def _fault(rng: Random, schedulers: list[NodeId], workers: list[NodeId]) -> Fault:
    match rng.choice(("first", "other", "cut", "pair", "worker", "disk", "burst")):
        case "first":
            return Crash((FIRST,))
        case "other":
            return Crash((rng.choice(schedulers[1:]),))
        case "cut":
            inside = rng.sample(schedulers, rng.randint(1, len(schedulers)))
            return Partition(tuple(inside), both=rng.random() < 0.7)
        case "pair":
            return PairCut(FIRST, rng.choice(schedulers[1:]))
        case "worker":
            return Crash((rng.choice(workers),))
        case "disk":
            return SlowDisk(rng.choice(schedulers))
        case _:
            return Burst(rng.uniform(0.0, 0.6), rng.uniform(0.0, 0.5), 0.0, 0.0)
