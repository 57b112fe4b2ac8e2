"""Simulate owners who use their machines, and programs that take memory.

In some worlds workers lend by the rule `idle`. Their owners come for a while, some
again and again, and type or run a program; the host looks as often as the worker wants,
now and then not for a while. Other programs take and free memory. By the last fault all
owners have left and all programs have ended. The promises are in `promises`.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Final, final

import msgspec

from shoal.core.leasing.owner_rules import OwnerRules
from shoal.core.lending.events import MachineMeasured, OwnerObserved
from shoal.core.lending.lend_rule import IDLE_MIN_S, LendRule
from shoal.core.lending.owner_presence import SILENCE_S
from shoal.core.timing import LOOK_LENT_S
from shoal.model.ids import NodeId
from shoal.model.resources import total
from shoal.protocol.messages import Offer
from shoal.sim.lending.promises import YIELD_S, LendingPromises, worker_of

if TYPE_CHECKING:
    from shoal.sim.checkers.suite import Suite
    from shoal.sim.node.host import NodeSpec, SimHost
    from shoal.sim.world import World

WORLDS_SHARE: Final = 0.2
LENDERS_SHARE: Final = 0.6  # share of workers whose owners come and go
MEASURE_S: Final = 4.0
BLIND_SHARE: Final = 0.02  # share of looks after which nobody looks for a while
BLIND_S: Final = (5.0, 30.0)
LEAVE_S: Final = 1.0  # before the last fault ends
GONE_S: Final = 3_600.0  # since the last input, when the world begins
RULE: Final = LendRule(idle_s=IDLE_MIN_S, calm=True)


class OwnerVisit(msgspec.Struct, frozen=True, kw_only=True):
    """An owner who uses the machine for a while, by typing or by a program."""

    node: NodeId
    from_s: float
    until_s: float
    types: bool


class Hoard(msgspec.Struct, frozen=True, kw_only=True):
    """A program that takes a share of a machine's memory for a while."""

    node: NodeId
    from_s: float
    until_s: float
    share: float


class LendingScript(msgspec.Struct, frozen=True, kw_only=True):
    """What owners and their programs do."""

    lenders: tuple[NodeId, ...]
    visits: tuple[OwnerVisit, ...]
    hoards: tuple[Hoard, ...]
    heal_s: float


def draw_lending_script(
    rng: Random, workers: list[NodeId], heal_s: float
) -> LendingScript | None:
    """Draw who lends by a rule, and what their owners do; None in most worlds."""
    lenders = tuple(node for node in workers if rng.random() < LENDERS_SHARE)
    if rng.random() >= WORLDS_SHARE or not lenders:
        return None
    visits: list[OwnerVisit] = []
    hoards: list[Hoard] = []
    last_s = heal_s - LEAVE_S
    for node in lenders:
        from_s = rng.uniform(0.5, last_s)
        restless = rng.random() < 0.3
        while from_s < last_s and len(visits) < 100:
            stay_s = rng.choice((0.0, 2.0, 15.0)) * rng.uniform(0.5, 1.5)
            until_s = min(from_s + stay_s, last_s)
            types = stay_s < 1.0 or rng.random() < 0.7
            visits.append(
                OwnerVisit(node=node, from_s=from_s, until_s=until_s, types=types)
            )
            pause_s = rng.uniform(11.0, 14.0) if restless else rng.uniform(5.0, 60.0)
            from_s = until_s + pause_s
        if rng.random() < 0.5:
            begin_s = rng.uniform(0.5, last_s)
            end_s = rng.uniform(begin_s, last_s)
            share = rng.uniform(0.2, 1.0)
            hoard = Hoard(node=node, from_s=begin_s, until_s=end_s, share=share)
            hoards.append(hoard)
    return LendingScript(
        lenders=lenders, visits=tuple(visits), hoards=tuple(hoards), heal_s=heal_s
    )


def with_lending_rule(node: NodeSpec, script: LendingScript) -> NodeSpec:
    """Let a worker of the script lend by the rule."""
    if node.id not in script.lenders:
        return node
    rules = OwnerRules(own=node.owner, lend=RULE)
    return msgspec.structs.replace(node, rules=rules)


@final
class LendingTraffic:
    """The owners of one world."""

    def __init__(self, script: LendingScript, world: World, suite: Suite) -> None:
        self._script = script
        self._world = world
        self._promises = suite.lending = LendingPromises(suite.violations)
        self._rng = world.stream("lending")
        self._input_at: dict[NodeId, float] = {}
        self._busy: dict[NodeId, int] = {}  # programs of the owner that run
        self._typing: dict[NodeId, int] = {}
        self._shares: dict[NodeId, float] = {}
        suite.also_sent(Offer, self._promises.offered)
        suite.facts[OwnerObserved] = self._promises.observed

    def schedule(self) -> None:
        """Schedule what owners and programs do, and that nodes look."""
        agenda = self._world.agenda
        for visit in self._script.visits:
            agenda.at(visit.from_s, self._come, visit)
            agenda.at(visit.until_s, self._leave, visit)
        for hoard in self._script.hoards:
            agenda.at(hoard.from_s, self._hoard, hoard, hoard.share)
            agenda.at(hoard.until_s, self._hoard, hoard, 0.0)
        for node in self._script.lenders:
            agenda.after(self._rng.uniform(0.0, 1.0), self._look, node)
            agenda.after(self._rng.uniform(0.0, 1.0), self._measure, node)

    def settle(self) -> None:
        """Run until the slowest machine believes that its owner is gone."""
        world = self._world
        if world.agenda.stopped:
            return
        hosts = [world.hosts[node] for node in self._script.lenders]
        hosts = [host for host in hosts if host.up and not host.left]
        workers = [worker for host in hosts if (worker := worker_of(host))]
        waits = [worker.lender.presence.away_after_s for worker in workers]
        world.run(world.now + max(waits, default=0.0) + SILENCE_S)
        for host in hosts:
            self._promises.settled(host)

    # Owners.

    def _come(self, visit: OwnerVisit) -> None:
        counts = self._typing if visit.types else self._busy
        counts[visit.node] = counts.get(visit.node, 0) + 1
        self._input_at.setdefault(visit.node, -GONE_S)
        if visit.types:
            self._input_at[visit.node] = self._world.now
        host, came_at = self._world.hosts[visit.node], self._world.now
        self._world.agenda.after(YIELD_S, self._check_from, host, host.life, came_at)

    def _leave(self, visit: OwnerVisit) -> None:
        counts = self._typing if visit.types else self._busy
        counts[visit.node] -= 1
        if visit.types:
            self._input_at[visit.node] = self._world.now

    def _look(self, node: NodeId) -> None:
        """Look at an owner as the host does, and expect that others are gone soon."""
        world, host = self._world, self._world.hosts[node]
        worker = worker_of(host)
        pause_s = 1.0
        if worker is not None and host.up:
            pause_s = worker.lender.look_again_s or pause_s
            faulty = world.now < self._script.heal_s
            if faulty and self._rng.random() < BLIND_SHARE:
                pause_s = self._rng.uniform(*BLIND_S)
            self._tell(host)
        if not host.left:
            world.agenda.after(pause_s, self._look, node)

    def _tell(self, host: SimHost) -> None:
        node, now = host.id, self._world.now
        if self._typing.get(node, 0) or self._world.visits.get(node, 0) > 0:
            self._input_at[node] = now
        idle_s = now - self._input_at.get(node, -GONE_S)
        is_busy = self._busy.get(node, 0) > 0
        is_there = is_busy or idle_s < IDLE_MIN_S
        if is_there and node not in self._promises.present:
            self._world.agenda.after(YIELD_S, self._check, host, host.life)
        seen = OwnerObserved(idle_s, "tty1", 1_500 if is_busy else 0)
        if is_there:
            self._promises.present.setdefault(node, now)
            host.feed(seen)
        else:
            self._promises.present.pop(node, None)
            host.feed(seen)

    def _check_from(self, host: SimHost, life: int, came_at: float) -> None:
        """Check what is left of others, if the node looked as soon as it should."""
        seen_at = self._promises.present.get(host.id)
        if seen_at is not None and seen_at <= came_at + LOOK_LENT_S:
            self._check(host, life)

    def _check(self, host: SimHost, life: int) -> None:
        if host.up and host.life == life and host.id in self._promises.present:
            self._promises.came(host)

    # Programs that take memory.

    def _hoard(self, hoard: Hoard, share: float) -> None:
        self._shares[hoard.node] = share

    def _measure(self, node: NodeId) -> None:
        host = self._world.hosts[node]
        worker = worker_of(host)
        if worker is not None and host.up:
            size = worker.capacity.memory_bytes
            taken = round(size * self._shares.get(node, 0.0))
            # Tasks use all that they leased.
            used = total(lease.taken for lease in worker.leases).memory_bytes
            host.feed(MachineMeasured(taken + used, used))
            self._promises.taken[node, host.life] = taken
        if not host.left:
            self._world.agenda.after(MEASURE_S, self._measure, node)
