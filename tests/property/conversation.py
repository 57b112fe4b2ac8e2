"""A hostile member that talks to a whole node: well-formed messages, out of turn.

The node has all roles, a job and a lease or two. The member knows what it was told, so
its messages name real leases, attempts and tasks, in places where they do not belong.
Whatever it says, no machine raises.
"""

from collections.abc import Iterator
from functools import cache
from random import Random
from typing import Any, Final

import msgspec
from tests.fake_keys import ROOT, SHOAL, granted, verify
from tests.property import mutation
from tests.wire.examples import EXAMPLES

from shoal.core import events
from shoal.core.discovery.gate import Gate
from shoal.core.discovery.load_gossip import LoadGossip
from shoal.core.leasing.worker import Worker
from shoal.core.membership.members import Members
from shoal.core.membership.membership import Membership
from shoal.core.membership.roster import Roster
from shoal.core.peer import Peer
from shoal.core.scheduling.scheduler import Scheduler
from shoal.errors import ProtocolError
from shoal.model.derive import derive
from shoal.model.ids import JobId, NodeId, OwnerId
from shoal.model.resources import Capacity
from shoal.model.spec.submission import load_spec
from shoal.protocol import codec
from shoal.protocol.messages import Outcome

NODE: Final = NodeId("n")
MEMBERS: Final = (NodeId("a"), NodeId("b"))
ROLES: Final = ("scheduler", "worker", "gate")
STEPS: Final = 60
SPANS: Final = (0.0, 0.0, 0.01, 0.3, 2.0, 40.0)
WORDS_MAX: Final = 300
CAPACITY: Final = Capacity(
    cpu_milli=4_000, memory_bytes=8 << 30, disk_bytes=8 << 30, devices=()
)
SPEC: Final = '{"command": "true", "array": 3}'


def converse(data: bytes) -> None:
    """Let a member say things that follow from these bytes; raise if a machine does."""
    Conversation(Random(data)).run()


@cache
def _examples() -> list[dict[str, Any]]:
    frames = [f for message in EXAMPLES.values() for f in codec.encode([message])]
    return [msgspec.msgpack.decode(frame)[0] for frame in frames]


class Conversation:
    """One life of a node, and what is said in it."""

    def __init__(self, draw: Random) -> None:
        self._draw = draw
        self._now = 0.0
        self._said: list[dict[str, Any]] = []  # by the node, to anybody
        self._words: list[Any] = [NODE, *MEMBERS]
        self._node = _node(draw)

    def run(self) -> None:
        """Begin as a node does, and listen for a while."""
        self._feed(events.Booted())
        job = derive(load_spec(SPEC, "json"), JobId("j"), OwnerId("ann"))
        self._feed(events.JobSubmitted(1, job, None))
        for member in MEMBERS:
            grant = granted(member, roles=ROLES, owner=member)
            self._feed(events.PeerConnected(member, grant))
        for _ in range(STEPS):
            self._now += self._draw.choice(SPANS)
            if self._draw.random() < 0.15:
                self._feed(events.DeadlineReached())
            self._say()

    def _say(self) -> None:
        """Say something; what is no message does not come this far."""
        try:
            frame = msgspec.msgpack.encode([self._message()])
        except (TypeError, ValueError, OverflowError, RecursionError):
            return
        try:
            found = codec.decode(frame)
        except ProtocolError:
            return
        for message in found:
            peer = self._draw.choice(MEMBERS)
            self._feed(events.MessageReceived(peer, message))

    def _message(self) -> Any:  # noqa: ANN401 - Nearly a message.
        draw = self._draw
        if self._said and draw.random() < 0.3:
            told: Any = draw.choice(self._said)
        else:
            told = draw.choice(_examples())
        told = self._renamed(told)
        return mutation.harmed(draw, told) if draw.random() < 0.3 else told

    def _renamed(self, value: Any) -> Any:  # noqa: ANN401 - Any value.
        """Put words that the node has used in the place of others."""
        draw = self._draw
        if isinstance(value, dict):
            return {
                key: each if key == "type" else self._renamed(each)
                for key, each in value.items()
            }
        if isinstance(value, list):
            return [self._renamed(each) for each in value]
        if isinstance(value, str | int) and draw.random() < 0.5:
            kind = type(value)
            alike = [word for word in self._words if type(word) is kind]
            return draw.choice(alike) if alike else value
        return value

    def _feed(self, event: events.Event) -> None:
        for effect in self._node.handle(event, self._now):
            match effect:
                case events.Send():
                    [frame] = codec.encode([effect.message])
                    [told] = msgspec.msgpack.decode(frame)
                    self._said.append(told)
                    self._words += _leaves(told)
                    del self._words[:-WORDS_MAX]
                case events.StartTask() if self._draw.random() < 0.5:
                    ended = events.TaskEnded(effect.attempt, Outcome("exited"))
                    self._feed(ended)
                case _:
                    pass


def _leaves(value: Any) -> Iterator[Any]:  # noqa: ANN401 - Any value.
    if isinstance(value, dict):
        for key, each in value.items():
            if key != "type":
                yield from _leaves(each)
    elif isinstance(value, list):
        for each in value:
            yield from _leaves(each)
    elif isinstance(value, str | int):
        yield value


def _node(draw: Random) -> Peer:
    grant = granted(NODE, roles=ROLES)
    roster = Roster(Members(SHOAL, ROOT, verify), 0.0)
    roster.meet(NODE, grant, 0.0)
    gossip = LoadGossip(NODE, draw)
    scheduler = Scheduler(NODE, roster, grant=grant, heard=gossip.known, rng=draw)
    worker = Worker(NODE, CAPACITY, roster, epoch=1, rng=draw)
    machines = (gossip, worker, scheduler, Gate(NODE, rng=draw))
    return Peer(Membership(NODE, roster, grant), machines)
