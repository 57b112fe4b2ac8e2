"""Narrate a small shoal that loses machines but no work.

Run: python -m shoal.sim.demo
"""

from __future__ import annotations

import os
import sys
import textwrap
import time
from collections import Counter
from typing import Final, final

import click
import msgspec

from shoal.core.durability.journal import Assigned, AttemptPlace, Finished, Incarnated
from shoal.core.events import (
    Answer,
    Booted,
    Effect,
    Event,
    MessageReceived,
    PeerLost,
    Publish,
    Record,
    Send,
)
from shoal.model.ids import Attempt, JobId, NodeId, OwnerId, TaskId
from shoal.model.job import Job
from shoal.model.resources import GIB, Capacity, Profile
from shoal.protocol.messages import (
    Announcement,
    Committed,
    Inventory,
    Offer,
    Preemption,
    Renewed,
    Role,
)
from shoal.sim.faults.schedule import Crash, FaultPlan, Planned
from shoal.sim.node import trust
from shoal.sim.node.driver import Behaviour, Plans
from shoal.sim.node.host import NodeSpec, SimHost
from shoal.sim.seeds import SeedOutcome, SeedScript, SeedTrial
from shoal.sim.workload import Errand, Workload, make_group

ANN: Final = OwnerId("ann")
ADA, BEA = NodeId("ada"), NodeId("bea")
OTTER, HERON = NodeId("brave-otter"), NodeId("calm-heron")
CROW, SEAL = NodeId("old-crow"), NodeId("wise-seal")
CPUS: Final = {OTTER: 4, HERON: 4, CROW: 2, SEAL: 2}
HEAL_S: Final = 40.0
TOGETHER_S: Final = 0.5  # repeated actions within this share a line
SEED: Final = 5  # its world shows every part of the story
WIDTH: Final = 78

CHAPTERS: Final = (
    (0.9, "A job looks for workers"),
    (4.9, "A gang starts whole or not at all"),
    (8.9, "A worker loses power"),
    (16.9, "Urgent work displaces what can wait"),
    (23.9, "A scheduler is killed"),
    (28.0, "The rest comes to its end"),
)
COLOURS: Final = {
    "fault": "red",
    "announces": "cyan",
    "offers": "cyan",
    "commits": "green",
    "starts": "green",
    "sends": "blue",
    "notice": "yellow",
    "adopts": "magenta",
    "done": "green",
}


def demo_script() -> SeedScript:
    """Return the nodes, jobs and faults of the demo."""
    errands = (
        _errand("sweep", ADA, 1.0, tasks=6),
        _errand("train", BEA, 5.0, tasks=4, gang=True),
        _errand("batch", ADA, 15.0, tasks=8, priority=-10),
        _errand("hotfix", BEA, 17.0, tasks=1, cpus=4, priority=50),
    )
    plans: Plans = {}
    for errand in errands:
        run_s = {"train": 9.0, "hotfix": 3.0}.get(errand.job.id, 12.0)
        for task in errand.job.tasks():
            plans[task.id] = Behaviour(run_s=run_s)
    faults = (
        Planned(fault=Crash((HERON,)), from_s=9.0, until_s=14.0),
        Planned(fault=Crash((ADA,), power=False), from_s=24.0, until_s=26.0),
    )
    nodes = (_node(ADA), _node(BEA), *(_node(id_, n) for id_, n in CPUS.items()))
    return SeedScript(
        nodes=nodes,
        joins_s={},
        workload=Workload(errands=errands, plans=plans),
        plan=FaultPlan(
            loss=0.0,
            duplication=0.0,
            jitter_s=0.001,
            ordered=True,
            directory_errors=0.0,
            faults=faults,
            heal_s=HEAL_S,
        ),
        forger=None,
        encoded=False,
    )


def _node(id_: NodeId, cpus: int = 0) -> NodeSpec:
    roles: tuple[Role, ...] = ("worker",) if cpus else ("scheduler",)
    capacity = Capacity(cpu_milli=1_000 * cpus, memory_bytes=8 * GIB)
    return NodeSpec(
        id=id_,
        roles=roles,
        grant=trust.grant(id_, roles, ANN),
        capacity=capacity if cpus else None,
    )


def _errand(
    id_: str,
    scheduler: NodeId,
    at_s: float,
    *,
    tasks: int,
    cpus: int = 1,
    gang: bool = False,
    priority: int = 0,
) -> Errand:
    group = make_group(id_, "t", tasks, (Profile(cpu_milli=1_000 * cpus),))
    if gang:
        group = msgspec.structs.replace(group, gang_min=tasks)
    job = Job(
        id=JobId(id_),
        owner=ANN,
        groups=(group,),
        priority=priority,
        preempt=priority > 0,
        preemptible=not gang,
    )
    return Errand(job=job, scheduler=scheduler, at_s=at_s)


class DemoLine(msgspec.Struct):
    """A line about one action of a node on several items."""

    at_s: float
    node: NodeId
    kind: str
    text: str  # template with a place for the items
    things: list[str]

    def continues(self, other: DemoLine) -> bool:
        """Whether this line can be merged into `other`."""
        return (self.node, self.text) == (
            other.node,
            other.text,
        ) and self.at_s - other.at_s < TOGETHER_S


@final
class Narrator:
    """Prints events in a trial's world as they happen."""

    def __init__(self, trial: SeedTrial, *, colour: bool) -> None:
        self.counts: Counter[str] = Counter()
        self.ends: Counter[TaskId] = Counter()  # ends per task; must be 1
        self._agenda = trial.world.agenda
        self._jobs = {one.job.id: one.job for one in trial.script.workload.errands}
        self._colour = colour
        self._placed: dict[TaskId, NodeId] = {}
        self._adopted: dict[Attempt, None] = {}
        self._met: dict[tuple[NodeId, NodeId], None] = {}
        self._open: DemoLine | None = None  # printed when something else happens
        for at_s, title in CHAPTERS:
            self._agenda.at(at_s, self._chapter, title)
        for planned in trial.script.plan.faults:
            self._agenda.at(planned.from_s, self._fault, planned.fault)

    def tap(self, host: SimHost, event: Event, effects: list[Effect]) -> None:
        """Print an event if it matters, and a node's reaction."""
        if isinstance(event, Booted) and host.life > 0:
            self._say(host.id, "notice", "is back")
        match event:
            case PeerLost(peer=peer) if peer in CPUS and host.id not in CPUS:
                text = f"has lost its link to {peer}"
                self._say(host.id, "fault", text)
            case MessageReceived(peer=peer, message=Renewed() as renewed):
                self._say_adopted(host, peer, renewed)
            case _:
                pass
        for effect in effects:
            match effect:
                case Send():
                    self._on_send(host.id, effect)
                case Publish(message=Announcement() as announcement):
                    count = sum(want.count for want in announcement.wants)
                    text = f"announces by gossip that it needs room for {_tasks(count)}"
                    self._say(host.id, "announces", text)
                case Record():
                    self._on_record(host.id, effect)
                case Answer():
                    text = f"acknowledges {effect.job}, which is on disk"
                    self._say(host.id, "notice", text)
                case _:
                    pass

    def _on_send(self, node: NodeId, effect: Send) -> None:
        match effect.message:
            case Inventory() if (node, effect.peer) not in self._met:
                self._met[node, effect.peer] = None
                text = f"answers {effect.peer}: {CPUS[node]} CPUs, here is my room"
                self._say(node, "offers", text)
            case Offer(leases=leases, displaces=displaces):
                more = f", displacing {displaces}" if displaces else ""
                text = f"offers {effect.peer} room for {_tasks(len(leases))}{more}"
                self._say(node, "offers", text)
            case Committed(leases=leases):
                text = f"commits {_leases(len(leases))} to {effect.peer}"
                self._say(node, "commits", text)
            case Preemption(reason=reason) if ">" in reason:
                self.counts["preempted"] += 1
                text = f"preempts tasks with notice: {reason}"
                self._say(node, "notice", text)
            case _:
                pass

    def _on_record(self, node: NodeId, effect: Record) -> None:
        match effect.entry:
            case Assigned(places=places):
                self._say_assigned(node, places)
            case Finished(task=task, state=state):
                self.counts[state] += 1
                self.ends[task] += 1
                self._say(node, "done", f"{{}} {state}", task)
            case Incarnated(generation=generation) if generation > 1:
                text = f"reads its journal; generation {generation} is on disk"
                self._say(node, "adopts", text)
            case _:
                pass

    def _say_assigned(self, node: NodeId, places: tuple[AttemptPlace, ...]) -> None:
        if len(places) > 1:
            workers = ", ".join(sorted({place.worker for place in places}))
            gang = places[0].task.partition(".")[0]
            text = f"starts all {len(places)} of the gang {gang} on {workers}"
            self._say(node, "starts", text)
        for place in places:
            before = self._placed.get(place.task)
            self._placed[place.task] = place.worker
            if before is not None:
                self.counts["tried again"] += 1
            if len(places) == 1:
                again = "again " if before is not None else ""
                text = f"sends {{}} {again}to {place.worker}"
                self._say(node, "sends", text, place.task)

    def _say_adopted(self, host: SimHost, peer: NodeId, renewed: Renewed) -> None:
        for occupied in renewed.leases:
            attempt = occupied.attempt
            if attempt is None or attempt in self._adopted:
                continue
            if attempt.generation <= host.life:
                self._adopted[attempt] = None
                self.counts["adopted"] += 1
                text = f"takes up {{}}, still running at {peer}"
                self._say(host.id, "adopts", text, str(attempt))

    def _chapter(self, title: str) -> None:
        self.flush()
        print()
        print(self._styled(f"{title} ".ljust(WIDTH, "-"), "white", bold=True))

    def _fault(self, fault: object) -> None:
        assert isinstance(fault, Crash)
        what = "loses power" if fault.power else "is killed with SIGKILL"
        for node in fault.nodes:
            self.counts["crashes"] += 1
            self._say(node, "fault", what)

    def _say(self, node: NodeId, kind: str, text: str, thing: str = "") -> None:
        """Print a line, or extend the previous one."""
        line = DemoLine(self._agenda.now, node, kind, text, [thing])
        if self._open is not None and line.continues(self._open):
            self._open.things.append(thing)
        else:
            self.flush()
            self._open = line

    def flush(self) -> None:
        """Print the pending line."""
        line, self._open = self._open, None
        if line is None:
            return
        plain = f"{line.at_s:6.2f} s  {line.node:<12} "
        text = line.text.format(_listed(list(dict.fromkeys(line.things))))
        for number, part in enumerate(_wrapped(text, WIDTH - len(plain))):
            start = " " * len(plain) if number else plain
            print(start + self._styled(part, COLOURS.get(line.kind, "white")))

    def _styled(self, text: str, colour: str, *, bold: bool = False) -> str:
        return click.style(text, fg=colour, bold=bold) if self._colour else text


def _wrapped(text: str, width: int) -> list[str]:
    return textwrap.wrap(text, width, break_on_hyphens=False)


def _listed(things: list[str]) -> str:
    """Join ids with a common prefix: the first in full, then the differences."""
    heads = {thing.rpartition(".")[0] for thing in things}
    if len(things) < 2 or len(heads) > 1:
        return ", ".join(things)
    first, *rest = sorted(things, key=lambda thing: (len(thing), thing))
    return ", ".join([first, *(f".{thing.rpartition('.')[2]}" for thing in rest)])


def _tasks(count: int) -> str:
    return "1 task" if count == 1 else f"{count} tasks"


def _leases(count: int) -> str:
    return "1 lease" if count == 1 else f"{count} leases"


def tell() -> SeedOutcome:
    """Run the demo; return its world's outcome."""
    colour = sys.stdout.isatty() and "NO_COLOR" not in os.environ
    trial = SeedTrial(SEED, demo_script())
    narrator = Narrator(trial, colour=colour)
    trial.world.scene.tap = narrator.tap
    began = time.perf_counter()
    print("Two schedulers (ada, bea) and four workers; time is virtual.")
    outcome = trial.run()
    narrator.flush()
    tasks = sum(
        1 for one in trial.clients.orders.values() for _ in one.errand.job.tasks()
    )
    _sum_up(narrator, tasks, outcome, time.perf_counter() - began)
    return outcome


def _sum_up(
    narrator: Narrator, tasks: int, outcome: SeedOutcome, spent_s: float
) -> None:
    counts = narrator.counts
    lost = tasks - len(narrator.ends)
    twice = sum(ends > 1 for ends in narrator.ends.values())
    print()
    print("Summary ".ljust(WIDTH, "-"))
    print(f"  {counts['done']} of {tasks} tasks done, ", end="")
    print(f"{lost or 'none'} lost, {twice or 'none'} ended twice")
    print(f"  {counts['crashes']} crashes, {counts['preempted']} preempted, ", end="")
    print(f"{counts['tried again']} sent again, {counts['adopted']} taken up again")
    print(f"  {outcome.virtual_s:.0f} s of virtual time in {spent_s:.1f} s", end="")
    print(f", {outcome.events:,} events")
    for violation in outcome.violations:
        print(f"  BROKEN {violation}")
    if not outcome.violations:
        print("  every promise was kept")
    print()
    print("next: make sim-soak SEEDS=300   random jobs and faults, hundreds of times")


if __name__ == "__main__":
    raise SystemExit(1 if tell().violations else 0)
