"""A node with its roles: lets in who is allowed, and hands every fact to its role."""

from __future__ import annotations

from collections import Counter, deque
from typing import TYPE_CHECKING, Final, Literal, final, get_args

from shoal.core import events
from shoal.core.catching_up import CatchingUp
from shoal.core.events import (
    Booted,
    DeadlineReached,
    Disconnect,
    Effect,
    Event,
    GrantSigned,
    KeepGrant,
    MessageReceived,
    PeerConnected,
    PeerLost,
    Publish,
    Record,
    Send,
    Spread,
    WallClockRead,
)
from shoal.core.journal import Entry, Revoked
from shoal.core.renewing import Renewing
from shoal.model.ids import RequestId
from shoal.protocol.grants import GrantRenewed, GrantWanted
from shoal.protocol.messages import (
    Announcement,
    Goodbye,
    Hello,
    Inquiry,
    LoadDigest,
    LoadDigests,
    Revocation,
    Role,
    ToGate,
    ToScheduler,
    ToWorker,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from shoal.core.gate import Gate
    from shoal.core.gossip import Gossip
    from shoal.core.roster import Roster
    from shoal.core.scheduler import Scheduler
    from shoal.core.worker import Worker
    from shoal.model.ids import NodeId
    from shoal.protocol.messages import Grant

STEPS_MAX: Final = 100_000
"""Messages a node says to itself while handling one event; more is an endless loop."""

DEADLINE_REACHED: Final = DeadlineReached()

RoleName = Literal["worker", "scheduler", "gate", "gossip"]

_RECEIVER: Final[dict[type, RoleName]] = {
    **dict.fromkeys(get_args(ToWorker), "worker"),
    **dict.fromkeys(get_args(ToScheduler), "scheduler"),
    **dict.fromkeys(get_args(ToGate), "gate"),
    LoadDigests: "gossip",
}

_PLAIN: Final = frozenset(_RECEIVER) - {Announcement}
"""Messages that need nothing but to be handed on: an announcement shows a grant."""

_SENDER: Final[dict[RoleName, Role | None]] = {
    "worker": "scheduler",  # only schedulers may tell a worker anything
    "scheduler": "worker",
    "gate": None,  # any member
    "gossip": None,
}

_ONLY_FOR: Final[dict[type, RoleName]] = {
    events.TaskEnded: "worker",
    events.TaskProgressed: "worker",
    events.TaskWrote: "worker",
    events.TaskStaged: "worker",
    events.TaskSaved: "worker",
    events.CacheChanged: "worker",
    events.OwnerActive: "worker",
    events.DriverOpened: "worker",
    events.DrainRequested: "worker",
    events.JobSubmitted: "scheduler",
    events.CancelRequested: "scheduler",
    events.LookedUp: "scheduler",
    events.PathMeasured: "scheduler",
    events.NeighboursChanged: "gossip",
}


@final
class Peer:
    """One node. What its roles say to each other never leaves it."""

    def __init__(
        self,
        node: NodeId,
        roster: Roster,
        *,
        grant: Grant | None,
        worker: Worker | None = None,
        scheduler: Scheduler | None = None,
        gate: Gate | None = None,
        gossip: Gossip | None = None,
        journal: Iterable[Entry] = (),
    ) -> None:
        """Join the roles of one node; `journal` is what its earlier lives wrote."""
        self.node = node
        self.worker = worker
        self.scheduler = scheduler
        self.gate = gate
        self.gossip = gossip
        self.counts: Counter[str] = Counter()
        self._roster = roster
        self.renewing = Renewing(node, grant, roster)
        machines: dict[RoleName, Worker | Scheduler | Gate | Gossip | None] = {
            "worker": worker,
            "scheduler": scheduler,
            "gate": gate,
            "gossip": gossip,
        }
        self._roles = {name: m for name, m in machines.items() if m is not None}
        self._machines = tuple(self._roles.values())
        self._catching_up = CatchingUp(roster)
        self._deadlines = (
            *(m.next_deadline for m in self._machines),
            self._catching_up.next_deadline,
            self.renewing.next_deadline,
        )
        # One role alone has nobody in its node to talk to: gossip tells only others.
        self._has_company = len(self._roles.keys() - {"gossip"}) > 1
        # By message: the machine it is for, and the role that its sender must have.
        self._routes = {
            message: (self._roles[role], _SENDER[role])
            for message, role in _RECEIVER.items()
            if role in self._roles
        }
        for entry in journal:
            if isinstance(entry, Revoked):
                roster.revoke(entry.revocation)

    def handle(self, event: Event, now: float) -> list[Effect]:
        """Take in one fact; return what to do about it, in order. Raising is a bug."""
        # By type: to find that a struct is of another class costs six times as much.
        if type(event) is MessageReceived:
            if type(event.message) in _PLAIN:
                effects = self._to_role(event, now)  # By far the most frequent.
            else:
                effects = self._on_message(event, now)
        elif type(event) is DeadlineReached:
            effects = self._on_deadline(now)
        elif type(event) is PeerConnected:
            effects = self._on_peer_connected(event, now)
        elif type(event) is Booted:
            effects = self._on_booted(now)
        elif type(event) is WallClockRead:
            self._roster.read_wall(event.wall_s, now)
            self.renewing.wall_read(now)
            effects = self._to_roles(event, now)
        elif type(event) is GrantSigned:
            effects = self._renewed(self.renewing.on_signed(event, now))
        else:
            if type(event) is PeerLost:
                self._catching_up.lost(event.peer)
                self.renewing.lost(event.peer)
            effects = self._to_roles(event, now)
        if self._has_company:
            for effect in effects:
                if type(effect) is Send and effect.peer == self.node:
                    return self._talk_to_self(effects, now)
        return effects

    def _talk_to_self(self, said: list[Effect], now: float) -> list[Effect]:
        """Hand on what the roles say to each other, each where it was said."""
        todo = deque(said)
        effects: list[Effect] = []
        steps = 0
        while todo:
            effect = todo.popleft()
            if type(effect) is Send and effect.peer == self.node:
                steps += 1
                assert steps < STEPS_MAX, "a node talks to itself without end"
                received = MessageReceived(self.node, effect.message)
                todo.extendleft(reversed(self._to_role(received, now)))
            else:
                effects.append(effect)
        return effects

    def next_deadline(self) -> float | None:
        """When to deliver `DeadlineReached`, if ever."""
        first: float | None = None
        for next_deadline in self._deadlines:
            at = next_deadline()
            if at is not None and (first is None or at < first):
                first = at
        return first

    def _on_booted(self, now: float) -> list[Effect]:
        """Start the roles; our own worker is the first that our scheduler knows."""
        self._roster.meet(self.node, self.renewing.grant, now)
        self.renewing.booted(now)
        effects = self._to_roles(Booted(), now)
        if self.worker is not None and self.scheduler is not None:
            inquiry = Inquiry(request=RequestId(f"{self.node}/self"))
            effects.append(Send(self.node, inquiry))
        return effects

    def _on_deadline(self, now: float) -> list[Effect]:
        effects: list[Effect] = []
        due = self._catching_up.next_deadline()
        if due is not None and due <= now:
            effects += self._catching_up.on_deadline(now)
        due = self.renewing.next_deadline()
        if due is not None and due <= now:
            effects += self._renewed(self.renewing.on_deadline(now))
        for machine in self._machines:
            at = machine.next_deadline()
            if at is not None and at <= now:
                effects += machine.handle(DEADLINE_REACHED, now)
        if self.gossip is not None:
            for effect in effects:
                if type(effect) is Spread:
                    return self._gossiped(effects, now)
        return effects

    def _gossiped(self, effects: list[Effect], now: float) -> list[Effect]:
        """Let what our worker says of its room go from neighbour to neighbour."""
        assert self.gossip is not None
        kept: list[Effect] = []
        for effect in effects:
            if type(effect) is Spread and type(effect.message) is LoadDigest:
                self.gossip.tell(effect.message, now)
            else:
                kept.append(effect)
        return kept

    def _on_peer_connected(self, event: PeerConnected, now: float) -> list[Effect]:
        admission = self._roster.meet(event.peer, event.grant, now)
        if isinstance(admission, str):
            return self._turn_away(event.peer, admission)
        effects = self._catching_up.connected(event.peer, now)
        self.renewing.connected(event.peer, now)
        return effects + self._to_roles(event, now)

    def _on_message(self, event: MessageReceived, now: float) -> list[Effect]:
        message = event.message
        match message:
            case Announcement():
                # Gossip comes from peers without a link: the grant is in the message.
                if message.scheduler != event.peer:
                    self.counts["announcement of another node"] += 1
                    return []
                self._roster.meet(event.peer, message.grant, now)
                return self._to_role(event, now)
            case Revocation():
                return self._on_revocation(message, now)
            case GrantWanted():
                return self.renewing.on_wanted(event.peer, message, now)
            case GrantRenewed():
                answered = self.renewing.on_answer(event.peer, message, now)
                return self._renewed(answered)
            case Hello():
                admission = self._roster.meet(event.peer, message.grant, now)
                if isinstance(admission, str):
                    return self._turn_away(event.peer, admission)
                return []
            case _:
                return self._to_role(event, now)

    def _on_revocation(self, revocation: Revocation, now: float) -> list[Effect]:
        """Cut off who is revoked, and end all that it has here."""
        if not self._roster.revoke(revocation):
            return []
        node, reason = revocation.node, f"revoked up to serial {revocation.serial}"
        effects: list[Effect] = [Record(Revoked(revocation)), Publish(revocation)]
        if self._roster.get(node, now) is None:
            left = MessageReceived(node, Goodbye(reason=reason))
            effects += self._to_roles(left, now)
        return [*effects, Disconnect(node, reason)]

    def _renewed(self, effects: list[Effect]) -> list[Effect]:
        """Have our roles show the new grant, if there is one."""
        grant = self.renewing.grant
        if self.scheduler is not None and grant is not None:
            for effect in effects:
                if type(effect) is KeepGrant:
                    self.scheduler.renew(grant)
        return effects

    def _to_role(self, event: MessageReceived, now: float) -> list[Effect]:
        """Hand a message to the role it is for, if its sender may send it."""
        message = event.message
        admission = self._roster.get(event.peer, now)
        if admission is None:
            if isinstance(message, LoadDigest | LoadDigests):
                self.counts["digest of an unknown node"] += 1
                return []  # Gossip without a link: nothing to cut, and no harm done.
            return self._turn_away(event.peer, "not a member")
        route = self._routes.get(type(message))
        if route is None:
            return self._to_no_role(event, now)
        machine, needed = route
        if needed is not None and needed not in admission.roles:
            self.counts[f"from a node that is no {needed}"] += 1
            return []
        effects = machine.handle(event, now)
        if machine is self.gossip and self.scheduler is not None:
            effects += self.scheduler.handle(event, now)
        return effects

    def _to_no_role(self, event: MessageReceived, now: float) -> list[Effect]:
        """Take in a message of a member that none of our roles is there for."""
        kind = type(event.message)
        if kind is Goodbye:
            return self._to_roles(event, now)  # It is for all of them.
        if kind in _RECEIVER:
            self.counts["for a role we do not have"] += 1
        return []

    def _to_roles(self, event: Event, now: float) -> list[Effect]:
        only = _ONLY_FOR.get(type(event))
        effects: list[Effect] = []
        for name, machine in self._roles.items():
            if only is None or name == only:
                effects += machine.handle(event, now)
        return effects

    def _turn_away(self, peer: NodeId, reason: str) -> list[Effect]:
        self.counts["turned away"] += 1
        return [Disconnect(peer, reason)]
