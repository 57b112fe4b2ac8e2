"""Simulate API calls between nodes.

Some laptops join the world, with no role except to call the APIs of schedulers and of
each other. An API's answer is a function of the request, so every answer can be
checked where it arrives. Clients read slowly, leave early, and lose calls in crashes.
Some laptops have another owner, and one may be revoked during a call. The promises are
in `promises`.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any, Final, final

import msgspec

from shoal.core.forwarding.events import (
    AnswerTaken,
    CallAbandoned,
    CallAnswered,
    CallAsked,
    ContinueCall,
    DeliverAnswer,
    EndCall,
    RefuseCall,
    RunCall,
    StopCall,
)
from shoal.core.forwarding.forwarded_calls import SILENT_S
from shoal.model.ids import NodeId, OwnerId
from shoal.protocol.limits import OUTPUT_BYTES_MAX
from shoal.sim.forwarding.promises import ForwardingPromises
from shoal.sim.node import trust
from shoal.sim.node.host import NodeSpec

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from shoal.sim.checkers.suite import Suite
    from shoal.sim.node.host import SimHost
    from shoal.sim.world import World

WORLDS_SHARE: Final = 0.15  # share of worlds with laptops
STRANGER_SHARE: Final = 0.2  # share of calls to a node of any owner
REVOKED_SHARE: Final = 0.4  # share of those worlds that revoke one
LINKED_S: Final = 1.0  # time until a dialled link is up, if ever


class ApiErrand(msgspec.Struct, frozen=True, kw_only=True):
    """One call by a client at a laptop."""

    at_s: float
    asker: NodeId
    answerer: NodeId
    answers: int  # number of answers before the end
    pause_s: float  # between two answers
    read_s: float  # client's time to read one
    size: int  # bytes per answer
    leaves_after: int | None = None  # answers


class ApiScript(msgspec.Struct, frozen=True, kw_only=True):
    """All calls of a world; one laptop may be revoked meanwhile."""

    laptops: tuple[NodeSpec, ...]
    errands: tuple[ApiErrand, ...]
    revoked: tuple[NodeId, float] | None


def draw_api_script(
    rng: Random, schedulers: Sequence[NodeSpec], span_s: float
) -> ApiScript | None:
    """Draw laptops and their calls; None if this world has none."""
    if rng.random() >= WORLDS_SHARE:
        return None
    owners = [node.owner for node in schedulers]
    laptops = tuple(
        _draw_laptop(number, rng.choice(owners)) for number in range(rng.randint(2, 3))
    )
    errands = tuple(
        _draw_errand(rng, rng.choice(laptops), [*schedulers, *laptops], span_s)
        for _ in range(rng.randint(3, 12))
    )
    revoked = None
    if rng.random() < REVOKED_SHARE:
        revoked = (rng.choice(laptops).id, rng.uniform(1.0, span_s))
    return ApiScript(laptops=laptops, errands=errands, revoked=revoked)


def _draw_laptop(number: int, owner: OwnerId) -> NodeSpec:
    id_ = NodeId(f"l{number}")
    grant = trust.grant(id_, ("scheduler",), owner)
    return NodeSpec(id=id_, roles=(), owner=owner, grant=grant)


def _draw_errand(
    rng: Random, asker: NodeSpec, nodes: Sequence[NodeSpec], span_s: float
) -> ApiErrand:
    others = [node for node in nodes if node != asker]
    own = [node for node in others if node.owner == asker.owner]
    is_any = not own or rng.random() < STRANGER_SHARE
    big = rng.random() < 0.1
    answers = rng.choice((1, 1, 3, 20)) if big else rng.choice((0, 1, 5, 30, 100))
    return ApiErrand(
        at_s=rng.uniform(0.5, span_s),
        asker=asker.id,
        answerer=rng.choice(others if is_any else own).id,
        answers=answers,
        pause_s=rng.choice((0.0, 0.01, 0.3, 4.0)),
        read_s=rng.choice((0.0, 0.0, 0.05, 1.0)),
        size=3 * OUTPUT_BYTES_MAX + 1 if big else rng.choice((0, 10, 100)),
        leaves_after=rng.randint(0, answers) if rng.random() < 0.15 else None,
    )


class _Client(msgspec.Struct):
    """A client's progress with one call."""

    errand: int
    host: SimHost
    life: int
    got: int = 0
    has_left: bool = False


class _ApiRun(msgspec.Struct):
    """A call that a node's API is answering."""

    errand: int
    said: int = 0


_RunKey = tuple[NodeId, int, int]  # node, life, run


@final
class ApiTraffic:
    """The APIs and clients of one world."""

    def __init__(self, script: ApiScript, world: World, suite: Suite) -> None:
        self.completed = 0
        self.promises = ForwardingPromises(
            suite.violations, suite.revocations, world.hosts
        )
        self._script = script
        self._world = world
        self._clients: dict[int, _Client] = {}  # by token; each is used once
        self._runs: dict[_RunKey, _ApiRun] = {}

    @property
    def performers(self) -> Mapping[type, Callable[[SimHost, Any], None]]:
        """The performer of each effect."""
        return {
            RunCall: self._run,
            RefuseCall: self._refuse,
            ContinueCall: self._continue,
            StopCall: self._stop,
            DeliverAnswer: self._deliver,
            EndCall: self._end,
        }

    def schedule(self) -> None:
        """Add the laptops, and schedule their calls."""
        world, script = self._world, self._script
        for spec in script.laptops:
            world.add(spec)
        for number, errand in enumerate(script.errands):
            world.agenda.at(errand.at_s, self._reach, number)
            world.agenda.at(errand.at_s + LINKED_S, self._ask, number)
        if script.revoked is not None:
            node, at_s = script.revoked
            world.agenda.at(at_s, world.revoke, node)

    # Clients.

    def _reach(self, number: int) -> None:
        errand = self._script.errands[number]
        host = self._world.hosts[errand.asker]
        if host.up:
            self._world.network.reach(host, errand.answerer)

    def _ask(self, number: int) -> None:
        errand = self._script.errands[number]
        host = self._world.hosts[errand.asker]
        token = number
        self._clients[token] = _Client(number, host, host.life)
        request = str(number).encode()
        host.feed(CallAsked(token, errand.answerer, "List", request))
        takes_s = (errand.answers + 1) * (errand.pause_s + errand.read_s + 10.0)
        bound_s = takes_s + 2 * SILENT_S
        check = self.promises.check_over
        self._world.agenda.after(bound_s, check, host, host.life, token)

    def _deliver(self, host: SimHost, effect: DeliverAnswer) -> None:
        client = self._clients[effect.token]
        errand = self._script.errands[client.errand]
        if client.has_left:
            return  # It was in transit when the client left.
        said = _answer(errand, client.errand, client.got)
        is_right = effect.data == said
        self.promises.delivered(host, errand.answerer, effect.token, is_right=is_right)
        client.got += 1
        if client.got == errand.leaves_after:
            client.has_left = True
            self.promises.left(effect.token)
            self._feed_later(client, 0.0, CallAbandoned(effect.token))
        else:
            self._feed_later(client, errand.read_s, AnswerTaken(effect.token))

    def _end(self, host: SimHost, effect: EndCall) -> None:
        client = self._clients[effect.token]
        if not client.has_left:
            expected = self._script.errands[client.errand].answers
            is_whole = effect.kind != "end" or client.got == expected
            self.completed += effect.kind == "end"
            self.promises.ended(effect.token, is_whole=is_whole)

    def _feed_later(
        self, client: _Client, delay_s: float, event: AnswerTaken | CallAbandoned
    ) -> None:
        self._world.agenda.after(delay_s, _feed, client.host, client.life, event)

    # APIs.

    def _run(self, host: SimHost, effect: RunCall) -> None:
        self.promises.ran(host, effect.caller.node)
        key = (host.id, host.life, effect.run)
        self._runs[key] = _ApiRun(int(effect.request))
        self._say_later(host, key)

    def _refuse(self, host: SimHost, effect: RefuseCall) -> None:
        answer = CallAnswered(effect.run, "error", b"other owners are told nothing")
        self._world.agenda.after(0.0, _feed, host, host.life, answer)

    def _continue(self, host: SimHost, effect: ContinueCall) -> None:
        self._say_later(host, (host.id, host.life, effect.run))

    def _stop(self, host: SimHost, effect: StopCall) -> None:
        self._runs.pop((host.id, host.life, effect.run), None)

    def _say_later(self, host: SimHost, key: _RunKey) -> None:
        run = self._runs.get(key)
        if run is not None:
            pause_s = self._script.errands[run.errand].pause_s
            self._world.agenda.after(pause_s, self._say, host, key)

    def _say(self, host: SimHost, key: _RunKey) -> None:
        run = self._runs.get(key)
        if run is None:
            return
        errand = self._script.errands[run.errand]
        if run.said == errand.answers:
            del self._runs[key]
            _feed(host, key[1], CallAnswered(key[2], "end"))
            return
        data = _answer(errand, run.errand, run.said)
        run.said += 1
        _feed(host, key[1], CallAnswered(key[2], "message", data))


def _answer(errand: ApiErrand, number: int, nth: int) -> bytes:
    """Return the correct answer of this number to an errand."""
    return f"{number}/{nth}".encode().ljust(errand.size, b".")


def _feed(
    host: SimHost, life: int, event: AnswerTaken | CallAbandoned | CallAnswered
) -> None:
    if host.up and host.life == life:
        host.feed(event)
