"""Plan the faults of a world: which, when, and for how long.

The plan is drawn from the seed. A fifth of all worlds are calm, so that seeds cover
both normal and faulty operation. Every fault ends by `heal_s`, when `heal` undoes
whatever is left.
"""

from __future__ import annotations

from random import Random
from typing import Final, Protocol

import msgspec

from shoal.core.events import DrainRequested
from shoal.model.ids import NodeId
from shoal.sim.node.host import SimHost
from shoal.sim.world import World

LOSS_MAX: Final = 0.3
DUPLICATION_MAX: Final = 0.5
DRIFT: Final = 0.004
"""Most that a clock runs fast or slow, so that any two stay in `DRIFT_MAX`."""

DRAIN_S: Final = 5.0
WRONG_CLOCK_SHARE: Final = 0.15  # share of worlds with a wrong wall clock
WRONG_CLOCK_S: Final = 30 * 86_400.0
LEAVE_AFTER_S: Final = 14.0  # time until a drained worker is gone


class Fault(Protocol):
    """A temporary fault."""

    def begin(self, world: World) -> None:
        """Start the fault."""
        ...

    def end(self, world: World) -> None:
        """End the fault, as far as possible."""
        ...


class Crash(msgspec.Struct, frozen=True):
    """Nodes crash together, and boot again."""

    nodes: tuple[NodeId, ...]
    power: bool = True

    def begin(self, world: World) -> None:
        """Crash the nodes."""
        for node in self.nodes:
            world.crash(node, power=self.power)

    def end(self, world: World) -> None:
        """Boot the nodes."""
        for node in self.nodes:
            world.restart(node)


class Partition(msgspec.Struct, frozen=True):
    """Block messages from some nodes to all others; with `both`, also back."""

    nodes: tuple[NodeId, ...]
    both: bool = True

    def begin(self, world: World) -> None:
        """Cut the paths."""
        inside, outside = self._sides(world)
        world.network.cut(inside, outside)
        if self.both:
            world.network.cut(outside, inside)

    def end(self, world: World) -> None:
        """Mend the paths."""
        inside, outside = self._sides(world)
        world.network.mend(inside, outside)
        if self.both:
            world.network.mend(outside, inside)

    def _sides(self, world: World) -> tuple[list[SimHost], list[SimHost]]:
        hosts = list(world.hosts.values())
        inside = [host for host in hosts if host.id in self.nodes]
        outside = [host for host in hosts if host.id not in self.nodes]
        return inside, outside


class Burst(msgspec.Struct, frozen=True):
    """The network loses and duplicates more messages."""

    loss: float
    duplication: float
    loss_before: float
    duplication_before: float

    def begin(self, world: World) -> None:
        """Raise loss and duplication."""
        world.network.loss = self.loss
        world.network.duplication = self.duplication

    def end(self, world: World) -> None:
        """Restore the previous rates."""
        world.network.loss = self.loss_before
        world.network.duplication = self.duplication_before


class SlowDisk(msgspec.Struct, frozen=True):
    """Each disk sync of a node takes up to seconds."""

    node: NodeId

    def begin(self, world: World) -> None:
        """Slow the disk down."""
        world.hosts[self.node].disk.slow = True

    def end(self, world: World) -> None:
        """Restore the disk's speed."""
        world.hosts[self.node].disk.slow = False


class SlowNode(msgspec.Struct, frozen=True):
    """Messages and timers reach a node late."""

    node: NodeId
    lag_s: float

    def begin(self, world: World) -> None:
        """Slow the node down."""
        world.hosts[self.node].lag_s = self.lag_s

    def end(self, world: World) -> None:
        """Restore the node's speed."""
        world.hosts[self.node].lag_s = 0.0


class WrongClock(msgspec.Struct, frozen=True):
    """A node's wall clock is wrong for a while."""

    node: NodeId
    error_s: float

    def begin(self, world: World) -> None:
        """Set the clock wrong."""
        world.hosts[self.node].set_wall(self.error_s)

    def end(self, world: World) -> None:
        """Set the clock right."""
        world.hosts[self.node].set_wall(0.0)


class OwnerReturns(msgspec.Struct, frozen=True):
    """The owner of a worker uses the machine for a while, if the node looks."""

    node: NodeId

    def begin(self, world: World) -> None:
        """Let the owner come."""
        world.owner_visits(self.node, 1)

    def end(self, world: World) -> None:
        """Let the owner leave."""
        world.owner_visits(self.node, -1)


class NodeLeaves(msgspec.Struct, frozen=True):
    """A worker drains and leaves for good."""

    node: NodeId

    def begin(self, world: World) -> None:
        """Ask the worker to drain."""
        world.feed(self.node, DrainRequested(grace_s=DRAIN_S))

    def end(self, world: World) -> None:
        """Remove the worker."""
        world.leave(self.node)


class Planned(msgspec.Struct, frozen=True, kw_only=True):
    """A fault with its start and end."""

    fault: Fault
    from_s: float
    until_s: float


class FaultPlan(msgspec.Struct, frozen=True, kw_only=True):
    """All faults of one world before `heal_s`."""

    loss: float
    duplication: float
    jitter_s: float
    ordered: bool
    directory_errors: float
    faults: tuple[Planned, ...]
    heal_s: float

    def schedule(self, world: World) -> None:
        """Schedule every fault, and the final healing."""
        network = world.network
        network.loss = self.loss
        network.duplication = self.duplication
        network.jitter_s = self.jitter_s
        network.ordered = self.ordered
        world.directory.errors = self.directory_errors
        for planned in self.faults:
            world.agenda.at(planned.from_s, planned.fault.begin, world)
            world.agenda.at(planned.until_s, planned.fault.end, world)
        world.agenda.at(self.heal_s, heal, world)


def heal(world: World) -> None:
    """End every fault: boot all nodes that have not left; repair the network."""
    world.network.loss = 0.0
    world.network.duplication = 0.0
    world.network.mend_all()
    world.directory.errors = 0.0
    for host in world.hosts.values():
        host.disk.slow = False
        host.lag_s = 0.0
        if host.wall_error_s:
            host.set_wall(0.0)
        world.restart(host.id)


class Cast(msgspec.Struct, frozen=True, kw_only=True):
    """The nodes that faults can affect; `leaving` is a worker that will leave."""

    schedulers: tuple[NodeId, ...]
    workers: tuple[NodeId, ...]
    leaving: NodeId | None = None

    @property
    def everybody(self) -> list[NodeId]:
        """All nodes without duplicates, in order."""
        return list(dict.fromkeys((*self.schedulers, *self.workers)))


def draw_plan(rng: Random, cast: Cast, span_s: float) -> FaultPlan:
    """Draw the faults within `span_s`; a fifth of all worlds have none."""
    calm = rng.random() < 0.2
    loss = 0.0 if calm else rng.choice((0.0, 0.01, 0.1, LOSS_MAX))
    duplication = 0.0 if calm else rng.choice((0.0, 0.05, DUPLICATION_MAX))
    faults: list[Planned] = []
    for _ in range(0 if calm else rng.randint(1, 6)):
        fault = _draw_fault(rng, cast, loss, duplication)
        from_s = rng.uniform(1.0, span_s * 0.8)
        lasts_s = rng.choice((0.5, 3.0, 10.0, 30.0)) * rng.uniform(0.5, 1.0)
        until_s = min(from_s + lasts_s, span_s)
        faults.append(Planned(fault=fault, from_s=from_s, until_s=until_s))
    if cast.leaving is not None:
        at = rng.uniform(1.0, max(2.0, span_s - LEAVE_AFTER_S))
        fault = NodeLeaves(cast.leaving)
        faults.append(Planned(fault=fault, from_s=at, until_s=at + LEAVE_AFTER_S))
    return FaultPlan(
        loss=loss,
        duplication=duplication,
        jitter_s=rng.choice((0.0005, 0.005, 0.05)),
        ordered=rng.random() < 0.3,
        directory_errors=rng.choice((0.0, 0.3)),
        faults=tuple(faults),
        heal_s=span_s,
    )


def with_wrong_clock(rng: Random, cast: Cast, plan: FaultPlan) -> FaultPlan:
    """Add a temporarily wrong wall clock, in some worlds.

    It is ahead, so that all grants seem expired. A clock that is behind would admit
    expired grants, which no node can notice. Only workers get a wrong clock, because a
    scheduler rightly refuses jobs meanwhile.
    """
    workers = [node for node in cast.workers if node not in cast.schedulers]
    if not workers or rng.random() >= WRONG_CLOCK_SHARE:
        return plan
    fault = WrongClock(rng.choice(workers), WRONG_CLOCK_S)
    from_s = rng.uniform(0.0, plan.heal_s * 0.8)
    until_s = min(from_s + rng.uniform(0.5, 20.0), plan.heal_s)
    planned = Planned(fault=fault, from_s=from_s, until_s=until_s)
    return msgspec.structs.replace(plan, faults=(*plan.faults, planned))


_KINDS: Final = (
    "crash",
    "crash",
    "crash-scheduler",
    "crash-several",
    "partition",
    "partition",
    "burst",
    "slow-disk",
    "slow-node",
    "owner",
)


def _draw_fault(rng: Random, cast: Cast, loss: float, duplication: float) -> Fault:
    everybody = cast.everybody
    match rng.choice(_KINDS):
        case "crash":
            return Crash((rng.choice(everybody),), power=rng.random() < 0.5)
        case "crash-scheduler":
            return Crash((rng.choice(cast.schedulers),), power=rng.random() < 0.5)
        case "crash-several":
            return Crash(tuple(rng.sample(everybody, rng.randint(1, len(everybody)))))
        case "partition":
            count = rng.randint(1, max(1, len(everybody) // 2))
            return Partition(tuple(rng.sample(everybody, count)), rng.random() < 0.5)
        case "burst":
            return Burst(LOSS_MAX, DUPLICATION_MAX, loss, duplication)
        case "slow-disk":
            return SlowDisk(rng.choice(cast.schedulers))
        case "slow-node":
            return SlowNode(rng.choice(everybody), rng.choice((0.1, 1.0, 4.0)))
        case _:
            return OwnerReturns(rng.choice(cast.workers))
