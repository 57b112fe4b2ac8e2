"""A node: a rack of machines that share one identity and one way to the outside.

Theory of operation. Each machine says by its `Mount` which messages it takes, which
facts it hears and which effects of others it claims. From that the rack makes one
table, message type -> machines, when the node starts. Then it does four things and
decides nothing:

- A message of a peer goes to the machines that take it, in the order in which they were
  mounted. The roster is asked first: a peer without a valid grant is cut off before any
  machine hears it, except for messages that bring their own proof.
- A fact of the host goes to the machines that hear it, or to all of them.
- What machines of this node say to each other (`Send` to the node itself, `Tell`) is
  delivered at once, in its place among the other effects. It never leaves the node.
- An effect that a machine claims goes to that machine instead of the host.

What is left goes to the host in the order in which it was returned. The rack itself
keeps no state that outlives an event but one: when each machine wants to be woken. A
machine's deadline may change only while it is told something, so after an event the
rack asks only those that it told, and not all of them.
"""

from __future__ import annotations

from collections import deque
from math import inf
from typing import TYPE_CHECKING, Final, TypeVar, cast, final

from shoal.core.discovery.load_gossip import LoadGossip
from shoal.core.events import (
    Booted,
    DeadlineReached,
    Effect,
    Event,
    MessageReceived,
    PeerConnected,
    Send,
    Tell,
)
from shoal.core.leasing.worker import Worker
from shoal.core.scheduling.scheduler import Scheduler
from shoal.model.ids import RequestId
from shoal.protocol.messages import Goodbye, Inquiry, LoadDigest, LoadDigests, Role

if TYPE_CHECKING:
    from collections.abc import Sequence

    from shoal.core.machine import Claimant, Machine
    from shoal.core.membership.membership import Membership

STEPS_MAX: Final = 100_000
"""What a node may say to itself about one event; more is an endless loop."""

DEADLINE_REACHED: Final = DeadlineReached()

_UNLINKED: Final = (LoadDigest, LoadDigests)
"""Gossip comes without a link: there is nothing to cut, and no harm done."""

_Route = tuple["Machine", Role | None, bool]
"""A machine, the role that a sender must have, and whether it needs no grant at all."""

_M = TypeVar("_M")


@final
class Peer:
    """One node. What its machines say to each other never leaves it."""

    def __init__(self, membership: Membership, machines: Sequence[Machine]) -> None:
        """Mount `machines` behind `membership`; facts reach them in this order."""
        self.node = membership.node
        self.membership = membership
        self.counts = membership.counts
        self._roster = membership.roster
        self._others = tuple(machines)
        self._machines: tuple[Machine, ...] = (membership, *machines)
        self._due: dict[Machine, float] = dict.fromkeys(self._machines, inf)
        self._told = set(self._machines)  # since they were asked for their deadline
        self._routes = _routes(self._machines)
        self._heard_by = _heard_by(self._machines)
        self._claimed_by = {
            kind: cast("Claimant", m) for m in machines for kind in m.mount.claims
        }
        self.worker = self.find(Worker)
        self.scheduler = self.find(Scheduler)
        self.gossip = self.find(LoadGossip)

    def find(self, kind: type[_M]) -> _M | None:
        """Return the machine of this kind, if it is mounted."""
        return next((m for m in self._machines if isinstance(m, kind)), None)

    def handle(self, event: Event, now: float) -> list[Effect]:
        """Take in one fact; return what to do about it, in order. Raising is a bug."""
        # By type: to find that a struct is of another class costs six times as much.
        if type(event) is MessageReceived:
            effects = self._on_message(event, now)
        elif type(event) is DeadlineReached:
            effects = self._on_deadline(now)
        else:
            effects = self._tell(event, now)
        node, claimed = self.node, self._claimed_by
        for effect in effects:
            kind = type(effect)
            if kind is Send:
                if effect.peer == node:  # type: ignore[union-attr]
                    return self._settle(effects, now)
            elif kind is Tell or kind in claimed:
                return self._settle(effects, now)
        return effects

    def next_deadline(self) -> float | None:
        """When to deliver `DeadlineReached`, if ever."""
        due = self._due
        for machine in self._told:
            at = machine.next_deadline()
            due[machine] = inf if at is None else at
        self._told.clear()
        first = min(due.values())
        return None if first == inf else first

    def _on_deadline(self, now: float) -> list[Effect]:
        self.next_deadline()
        woken = [machine for machine, at in self._due.items() if at <= now]
        self._told.update(woken)
        effects: list[Effect] = []
        for machine in woken:
            effects += machine.handle(DEADLINE_REACHED, now)
        return effects

    def _on_message(self, event: MessageReceived, now: float) -> list[Effect]:
        """Hand a message to the machines that take it, if its sender may send it."""
        routes = self._routes.get(type(event.message))
        if routes is None:
            return self._on_unrouted(event, now)
        peer = event.peer
        effects: list[Effect] = []
        for machine, sender, open_to_all in routes:
            if not open_to_all:
                admission = self._roster.get(peer, now)
                if admission is None:
                    return effects + self._turn_away(event)
                if sender is not None and sender not in admission.roles:
                    self.counts[f"from a node that is no {sender}"] += 1
                    continue
            self._told.add(machine)
            answer = machine.handle(event, now)
            effects = effects + answer if effects else answer
        return effects

    def _on_unrouted(self, event: MessageReceived, now: float) -> list[Effect]:
        """Take in a message that no machine takes: a goodbye is for all of them."""
        if self._roster.get(event.peer, now) is None:
            return self._turn_away(event)
        if type(event.message) is Goodbye:
            return self._tell(event, now)
        self.counts["for a role we do not have"] += 1
        return []

    def _turn_away(self, event: MessageReceived) -> list[Effect]:
        if isinstance(event.message, _UNLINKED):
            self.counts["digest of an unknown node"] += 1
            return []
        return self.membership.turn_away(event.peer, "not a member")

    def _tell(self, event: Event, now: float) -> list[Effect]:
        """Tell a fact to the machines that hear it, or to all of them."""
        kind = type(event)
        machines = self._heard_by.get(kind, self._machines)
        effects: list[Effect] = []
        if kind is PeerConnected:
            self._told.add(self.membership)
            effects += self.membership.handle(event, now)
            if self._roster.get(event.peer, now) is None:  # type: ignore[union-attr]
                return effects
            machines = self._others
        self._told.update(machines)
        for machine in machines:
            effects += machine.handle(event, now)
        if kind is Booted and self.worker is not None and self.scheduler is not None:
            # Our own worker is the first that our scheduler knows.
            inquiry = Inquiry(request=RequestId(f"{self.node}/self"))
            effects.append(Send(self.node, inquiry))
        return effects

    def _settle(self, said: list[Effect], now: float) -> list[Effect]:
        """Hand on what is for machines of this node, each thing where it was said."""
        todo = deque(said)
        effects: list[Effect] = []
        steps = 0
        while todo:
            effect = todo.popleft()
            if type(effect) is Send and effect.peer == self.node:
                received = MessageReceived(self.node, effect.message)
                answer = self._on_message(received, now)
            elif type(effect) is Tell:
                answer = self._tell(effect.event, now)
            elif (claimant := self._claimed_by.get(type(effect))) is not None:
                self._told.add(claimant)
                answer = claimant.claimed(effect, now)
                if any(each is effect for each in answer):
                    effects.append(effect)
                    answer = [each for each in answer if each is not effect]
            else:
                effects.append(effect)
                continue
            steps += 1
            assert steps < STEPS_MAX, "a node talks to itself without end"
            todo.extendleft(reversed(answer))
        return effects


def _routes(machines: Sequence[Machine]) -> dict[type, tuple[_Route, ...]]:
    routes: dict[type, tuple[_Route, ...]] = {}
    for machine in machines:
        mount = machine.mount
        for kind in mount.from_strangers:
            routes[kind] = (*routes.get(kind, ()), (machine, None, True))
        for kind, sender in mount.takes.items():
            routes[kind] = (*routes.get(kind, ()), (machine, sender, False))
    return routes


def _heard_by(machines: Sequence[Machine]) -> dict[type, tuple[Machine, ...]]:
    heard_by: dict[type, tuple[Machine, ...]] = {}
    for machine in machines:
        for kind in machine.mount.hears:
            heard_by[kind] = (*heard_by.get(kind, ()), machine)
    return heard_by
