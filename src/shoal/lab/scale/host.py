"""One simulated node of very many: the live machines, and as little else as possible.

It has the machines that find, judge and win workers, and those that spread what they
know: no blobs, channels, mail or calls. It runs no process: a task ends after its time.
Journals are safe at once. Many nodes share one source of chance, since a node of its
own would take more memory than all the machines.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final, final

from shoal.core.artifacts.events import StagingEnded
from shoal.core.discovery.events import KeepMembers, ReachPeer
from shoal.core.discovery.gate import Gate
from shoal.core.discovery.known_members import KnownMembers
from shoal.core.discovery.load_gossip import GossipNeighbours, LoadGossip
from shoal.core.discovery.neighbours import Neighbours
from shoal.core.events import (
    DeadlineReached,
    Event,
    LookedUp,
    LookUp,
    Provide,
    Publish,
    Send,
    Spread,
    StageTask,
    StartTask,
    TaskEnded,
)
from shoal.core.leasing.worker import Worker
from shoal.core.membership.membership import Membership
from shoal.core.membership.roster import Roster
from shoal.core.peer import Peer
from shoal.core.proximity.proximity import Proximity
from shoal.core.scheduling.scheduler import Scheduler
from shoal.protocol.messages import Outcome, PeerAddress
from shoal.sim.node import trust

if TYPE_CHECKING:
    from collections.abc import Callable

    from shoal.core.events import Effect
    from shoal.lab.scale.crowd import Crowd
    from shoal.model.ids import NodeId
    from shoal.model.resources import Capacity
    from shoal.protocol.messages import Grant

LEAN_KNOWN: Final = 128
NEVER_S: Final = float("inf")
DEADLINE_REACHED: Final = DeadlineReached()


@final
class ScaleHost:
    """A node: its machine, its links, and when its machine wants to be woken."""

    __slots__ = (
        "_armed_at",
        "_crowd",
        "_due",
        "capacity",
        "gates",
        "grant",
        "id",
        "is_gate",
        "life",
        "links",
        "machine",
        "met",
        "place",
        "submits",
        "up",
        "where",
    )

    def __init__(
        self,
        crowd: Crowd,
        node: NodeId,
        place: int,
        grant: Grant,
        capacity: Capacity,
        *,
        is_gate: bool,
        submits: bool,
    ) -> None:
        self.id, self.place, self.grant, self.capacity = node, place, grant, capacity
        self.is_gate, self.submits = is_gate, submits
        self.gates: tuple[str, ...] = ()
        self.met: dict[NodeId, tuple[str, ...]] = {}
        self.links: dict[NodeId, tuple[ScaleHost, float]] = {}  # and when it is up
        self.where = (0.0, 0.0)
        self.up = False
        self.life = 0
        self.machine: Peer | None = None
        self._crowd = crowd
        self._due: float | None = None
        self._armed_at = NEVER_S

    def assemble(self, now: float) -> None:
        """Build the machines of a new life."""
        rng, node = self._crowd.rng, self.id
        roster = Roster(trust.members(), trust.WALL_AT_START_S)
        lean = self._crowd.lean
        gossip = LoadGossip(
            node,
            rng,
            GossipNeighbours(known_max=LEAN_KNOWN) if lean else None,
            sign=partial(trust.sign, node),
            verify=trust.verify,
        )
        worker = Worker(node, self.capacity, roster, epoch=self.life + 1, rng=rng)
        scheduler = None
        if self.submits:
            scheduler = Scheduler(
                node, roster, grant=self.grant, heard=gossip.known, rng=rng, now=now
            )
        gate = Gate(node, rng=rng) if self.is_gate else None
        neighbours = Neighbours(node, KnownMembers(self.gates, self.met), rng)
        proximity = None if lean else Proximity(node, rng, probes=False)
        machines = (gossip, worker, scheduler, gate, neighbours, proximity)
        self.machine = Peer(
            Membership(node, roster, self.grant, ()),
            [machine for machine in machines if machine is not None],
        )
        self.up = True
        self._due, self._armed_at = None, NEVER_S

    def feed(self, event: Event) -> None:
        """Feed the machine one fact, and perform what it decides."""
        machine, crowd = self.machine, self._crowd
        if machine is None:
            return
        crowd.events += 1
        now = crowd.agenda.now
        effects = machine.handle(event, now)
        if effects:
            if self.submits:
                crowd.watch(self, effects)
            self._perform(effects)
        due = machine.next_deadline()
        if due != self._due:
            self._arm(due)

    def hear(self, life: int, event: Event) -> None:
        """Take in a fact, unless the node has gone since it was sent."""
        if self.up and life == self.life:
            self.feed(event)

    def _arm(self, due: float | None) -> None:
        self._due = due
        if due is not None:
            at = max(due, self._crowd.agenda.now)
            if at < self._armed_at:
                self._armed_at = at
                self._crowd.agenda.at(at, self._wake, self.life, at)

    def _wake(self, life: int, at: float) -> None:
        if life != self.life or at != self._armed_at or not self.up:
            return
        self._armed_at = NEVER_S
        due = self._due
        if due is None:
            return
        if due > self._crowd.agenda.now:
            self._arm(due)
            return
        self._due = None
        self.feed(DEADLINE_REACHED)

    def _perform(self, effects: list[Effect]) -> None:
        crowd = self._crowd
        for effect in effects:
            kind = type(effect)
            if kind is Send:
                crowd.send(self, effect.peer, effect.message)  # type: ignore[union-attr]
            else:
                performer = PERFORMERS.get(kind)
                if performer is not None:
                    performer(crowd, self, effect)


def _stage(crowd: Crowd, host: ScaleHost, effect: StageTask) -> None:
    ended = StagingEnded(effect.start.attempt, "")
    crowd.agenda.after(0.0, host.hear, host.life, ended)


def _start(crowd: Crowd, host: ScaleHost, effect: StartTask) -> None:
    crowd.changed_at[host.place] = crowd.agenda.now
    ended = TaskEnded(effect.attempt, Outcome("exited", exit_code=0))
    crowd.agenda.after(crowd.run_s(), _end, crowd, host, host.life, ended)


def _end(crowd: Crowd, host: ScaleHost, life: int, ended: TaskEnded) -> None:
    if host.life == life:
        crowd.changed_at[host.place] = crowd.agenda.now
    host.hear(life, ended)


def _reach(crowd: Crowd, host: ScaleHost, effect: ReachPeer) -> None:
    crowd.reach(host, effect.peer)


def _keep(_: Crowd, host: ScaleHost, effect: KeepMembers) -> None:
    host.met = effect.met


def _publish(crowd: Crowd, host: ScaleHost, effect: Publish) -> None:
    crowd.publish(host, effect.message)


def _spread(crowd: Crowd, host: ScaleHost, effect: Spread) -> None:
    crowd.spread(host, effect.message)


def _look_up(crowd: Crowd, host: ScaleHost, effect: LookUp) -> None:
    found, took_s = crowd.directory.find(effect.key, effect.limit, crowd.estimate())
    named = tuple(PeerAddress(node, ()) for node in found if node != host.id)
    answer = LookedUp(effect.lookup, named)
    crowd.agenda.after(took_s, host.hear, host.life, answer)


def _provide(crowd: Crowd, host: ScaleHost, effect: Provide) -> None:
    crowd.directory.provide(host.id, effect.keys, crowd.estimate())


PERFORMERS: Final[dict[type, Callable[[Any, ScaleHost, Any], None]]] = {
    StageTask: _stage,
    StartTask: _start,
    ReachPeer: _reach,
    KeepMembers: _keep,
    Publish: _publish,
    Spread: _spread,
    LookUp: _look_up,
    Provide: _provide,
}
"""What is not here is of no consequence: journals, answers to clients, addresses."""
