"""Simulate newcomers, and the admins and gates that admit them.

Some worlds have a few admins and a gate besides schedulers and workers. Users invite.
More newcomers than an invitation allows ask with it, at any of these nodes; others
guess, or ask without an invitation until a person decides. Admins crash, or leave in
good order and hand over to others. In some worlds they are restarted in turn, each
before the one before it is back: then an invitation goes from admin to admin, and
newcomers ask the one that gave it out. Newcomers are revoked and ask again with their
old invitation. After the last fault all that may join get time to. The promises are in
`promises`.

A newcomer has its own connection to the node that it asks. Messages on it may get
lost; then it asks again.
"""

from __future__ import annotations

import hashlib
from random import Random
from typing import TYPE_CHECKING, Any, Final, Literal, final

import msgspec

from shoal.core.admission.admission_control import AdmissionTools
from shoal.core.admission.events import (
    AdmissionSigned,
    AnnounceRequest,
    AnswerInvite,
    AnswerJoin,
    AuditJoin,
    HandedOver,
    HandOverRequested,
    InvitationsKept,
    Invited,
    JoinApproved,
    JoinAsked,
    JoinDeclined,
    KeepInvitations,
    SignAdmission,
)
from shoal.core.admission.invitation_book import InvitationTerms
from shoal.core.admission.join_requests import JoinAttempt
from shoal.core.events import MessageReceived
from shoal.core.membership.members import serial_for_grant, serial_for_revocation
from shoal.core.peer import Peer
from shoal.model.ids import NodeId, OwnerId, RequestId
from shoal.protocol.admission import AdmissionHeard, AdmissionWanted
from shoal.protocol.admission_proofs import (
    NONCE_BYTES,
    joining,
    proof_of,
    secret_digest,
)
from shoal.protocol.messages import Grant, Join, Refusal, Role, Welcome
from shoal.sim.admission.promises import AdmissionPromises
from shoal.sim.node import trust
from shoal.sim.node.host import NodeSpec

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from shoal.core.admission.events import AdmissionEvent
    from shoal.sim.checkers.suite import Suite
    from shoal.sim.node.host import SimHost
    from shoal.sim.world import World

WORLDS_SHARE: Final = 0.15  # share of worlds with newcomers
ROLLING_SHARE: Final = 0.25  # share of those whose admins are restarted in turn
NEXT_LEAVES_S: Final = (1.5, 4.0)
WRITE_S: Final = (0.001, 0.05)
SLOW_WRITE_S: Final = 1.0
LATENCY_S: Final = (0.001, 0.3)
LOST_SHARE: Final = 0.15  # share of newcomers' messages and answers
ASK_AGAIN_S: Final = (1.0, 6.0)
LINK_AGAIN_S: Final = 3.0
SETTLE_S: Final = 90.0  # time after the last fault by which all that may join are in
STUMBLE_SHARE: Final = 0.2  # share of welcomes after which the node crashes
STUMBLE_S: Final = (0.5, 4.0)
CROWD: Final = 20  # newcomers that ask a leaving node
CROWD_S: Final = 0.01
TERMS: Final = InvitationTerms(roles=("worker",), owner=OwnerId("ann"))
ADMIN: Final[tuple[Role, ...]] = ("scheduler", "worker", "gate", "admin")
NO_ADMIN: Final = "no admin"

Kind = Literal["invited", "guesser", "stranger"]


class SimInvitation(msgspec.Struct, frozen=True, kw_only=True):
    """An invitation issued by an admin's user."""

    at_s: float
    by: NodeId
    uses: int
    ttl_s: float
    secret: bytes


class Newcomer(msgspec.Struct, frozen=True, kw_only=True):
    """A machine that wants to join, with the invitation it was given."""

    id: NodeId
    kind: Kind
    at_s: float
    invitation: int
    doors: tuple[NodeId, ...]
    is_wanted: bool = False  # whether a person accepts
    revoked_at_s: float | None = None


class JoinScript(msgspec.Struct, frozen=True, kw_only=True):
    """Invitations and newcomers, and faults of admitting nodes."""

    nodes: tuple[NodeSpec, ...]
    invitations: tuple[SimInvitation, ...]
    newcomers: tuple[Newcomer, ...]
    crashes: tuple[tuple[float, NodeId, float], ...]  # time, node, duration
    leavings: tuple[tuple[float, NodeId, float], ...]


def draw_join_script(rng: Random, span_s: float) -> JoinScript | None:
    """Draw admins, invitations and newcomers; None if this world has none."""
    if rng.random() >= WORLDS_SHARE:
        return None
    admins = [NodeId(f"a{n}") for n in range(rng.randint(2, 3))]
    doors = (*admins, NodeId("g0"))
    nodes = tuple(_node(id_, is_root=id_ == admins[0]) for id_ in doors)
    invitations = tuple(
        SimInvitation(
            at_s=rng.uniform(0.5, span_s / 2),
            by=rng.choice(admins),
            uses=rng.choice((1, 1, 2, 3)),
            ttl_s=rng.choice((span_s / 2, 1e4, 1e4)),
            secret=rng.randbytes(16),
        )
        for _ in range(rng.randint(1, 4))
    )
    newcomers = [
        _newcomer(rng, f"n{number}-{n}", "invited", number, doors, span_s)
        for number, one in enumerate(invitations)
        for n in range(one.uses + rng.randint(1, 2))
    ]
    uninvited: tuple[tuple[str, Kind], ...] = (("eve", "guesser"), ("p", "stranger"))
    for name, kind in uninvited:
        newcomers += [
            _newcomer(rng, f"{name}{n}", kind, 0, doors, span_s)
            for n in range(rng.randint(0, 2))
        ]
    script = JoinScript(
        nodes=nodes,
        invitations=invitations,
        newcomers=tuple(newcomers),
        crashes=_interruptions(rng, doors, span_s),
        leavings=_interruptions(rng, admins, span_s),
    )
    order = rng.sample(admins, len(admins))
    if rng.random() < ROLLING_SHARE:
        return _restarted_in_turn(rng, script, order, span_s)
    return script


def _restarted_in_turn(
    rng: Random, script: JoinScript, order: list[NodeId], span_s: float
) -> JoinScript:
    """Let all admins but the last leave in this order, the inviter first.

    Each leaves while those before it are away, so that nothing is given back. Those who
    were invited come later, and know only the inviter.
    """
    begin_s = rng.uniform(0.2, 0.4) * span_s
    leavings: list[tuple[float, NodeId, float]] = []
    leaves_s = begin_s
    for admin in order[:-1]:
        leavings.append((leaves_s, admin, rng.uniform(8.0, 15.0)))
        leaves_s += rng.uniform(*NEXT_LEAVES_S)
    return msgspec.structs.replace(
        script,
        invitations=tuple(
            msgspec.structs.replace(
                one, by=order[0], at_s=rng.uniform(0.5, begin_s - 1.0), ttl_s=1e4
            )
            for one in script.invitations
        ),
        newcomers=tuple(
            msgspec.structs.replace(
                one, at_s=rng.uniform(begin_s, span_s), doors=(order[0],)
            )
            if one.kind == "invited"
            else one
            for one in script.newcomers
        ),
        leavings=tuple(leavings),
    )


def _node(id_: NodeId, *, is_root: bool) -> NodeSpec:
    roles = ADMIN if id_ != "g0" else ADMIN[:-1]
    grant = trust.grant(id_, roles, OwnerId("ann"))
    return NodeSpec(id=id_, roles=(), grant=grant, holds_root=is_root)


def _newcomer(
    rng: Random,
    name: str,
    kind: Kind,
    invitation: int,
    doors: tuple[NodeId, ...],
    span_s: float,
) -> Newcomer:
    is_revoked = kind == "invited" and rng.random() < 0.2
    return Newcomer(
        id=NodeId(name),
        kind=kind,
        at_s=rng.uniform(1.0, span_s),
        invitation=invitation,
        doors=tuple(rng.sample(doors, rng.randint(1, len(doors)))),
        is_wanted=rng.random() < 0.5,
        revoked_at_s=rng.uniform(span_s / 2, span_s) if is_revoked else None,
    )


def _interruptions(
    rng: Random, nodes: tuple[NodeId, ...] | list[NodeId], span_s: float
) -> tuple[tuple[float, NodeId, float], ...]:
    return tuple(
        (rng.uniform(2.0, span_s), rng.choice(nodes), rng.uniform(0.5, 15.0))
        for _ in range(rng.randint(0, 3))
    )


def sim_tools(rng: Random) -> AdmissionTools:
    """Return simulated tools for an admission machine."""
    return AdmissionTools(
        key_print=sim_key_print,
        name_of=str,
        code_of=lambda a, b, theirs, ours: f"{a}-{b}-{theirs.hex()}-{ours.hex()}",
        nonce=lambda: rng.randbytes(16),
    )


def sim_key_print(node: NodeId) -> bytes:
    """Return the fingerprint of a node's key."""
    return hashlib.blake2b(node.encode(), digest_size=16).digest()


class _Asking(msgspec.Struct):
    """A newcomer's progress."""

    newcomer: Newcomer
    tries: int = 0
    is_over: bool = False
    attempts: dict[NodeId, JoinAttempt] = {}  # of a stranger, by the node it asks


@final
class JoinTraffic:
    """The newcomers of one world, their connections, and invitation files."""

    def __init__(self, script: JoinScript, world: World, suite: Suite) -> None:
        invited = {
            one.id: (one.invitation, script.invitations[one.invitation].uses)
            for one in script.newcomers
            if one.kind == "invited"
        }
        self.promises = AdmissionPromises(
            suite.violations, world.agenda, suite.revocations, invited
        )
        self.welcomed = 0
        self._script = script
        self._world = world
        self._rng = world.stream("joining")
        # The script drew its secrets from a stream like the one above.
        self._guesses = world.stream("guesses")
        self._asking = {one.id: _Asking(one) for one in script.newcomers}
        self._tokens: dict[int, _Asking] = {}  # each token is used once
        self._token = 0
        self._is_settling = False

    @property
    def performers(self) -> Mapping[type, Callable[[SimHost, Any], None]]:
        """The performer of each effect."""
        return {
            AnswerJoin: self._answer,
            SignAdmission: self._sign,
            KeepInvitations: self._keep,
            AnnounceRequest: self._announce,
            HandedOver: self._handed_over,
            AnswerInvite: self._answer_invite,
            AuditJoin: _nobody_reads,
        }

    def schedule(self) -> None:
        """Add the admins and the gate, and schedule the script."""
        world, agenda, script = self._world, self._world.agenda, self._script
        for spec in script.nodes:
            world.add(spec)
        self._link()
        for number, one in enumerate(script.invitations):
            agenda.at(one.at_s, self._invite, number, one)
        for asking in self._asking.values():
            newcomer = asking.newcomer
            agenda.at(newcomer.at_s, self._ask, asking)
            if newcomer.revoked_at_s is not None:
                agenda.at(newcomer.revoked_at_s, self._revoke, asking)
        for at_s, node, down_s in script.crashes:
            agenda.at(at_s, world.crash, node)
            agenda.at(at_s + down_s, world.restart, node)
        for at_s, node, down_s in script.leavings:
            agenda.at(at_s, self._leave, world.hosts[node])
            agenda.at(at_s + down_s, world.restart, node)

    def _link(self) -> None:
        """Keep admitting nodes linked, as neighbours do."""
        hosts = [self._world.hosts[spec.id] for spec in self._script.nodes]
        for host in hosts:
            for other in hosts:
                if host.up and host is not other:
                    self._world.network.reach(host, other.id)
        self._world.agenda.after(LINK_AGAIN_S, self._link)

    def settle(self) -> None:
        """Let newcomers ask for a while without faults; see who is in (A4)."""
        self._is_settling = True
        self._world.run(self._world.now + SETTLE_S)
        for asking in self._asking.values():
            if not asking.is_over:
                self.promises.left_out(asking.newcomer.id)

    def _invite(self, number: int, one: SimInvitation) -> None:
        digest = secret_digest(one.secret)
        self._world.feed(one.by, Invited(number, digest, TERMS, one.uses, one.ttl_s))

    def _answer_invite(self, host: SimHost, effect: AnswerInvite) -> None:
        """Note since when a user may pass on an invitation."""
        if not effect.refused:
            ttl_s = self._script.invitations[effect.token].ttl_s
            self.promises.issued(effect.token, self._world.now + ttl_s)

    def _revoke(self, asking: _Asking) -> None:
        """Revoke a newcomer at all admins; let it ask again."""
        node = asking.newcomer.id
        revocation = trust.revocation(node, serial_for_revocation(-1))
        for spec in self._script.nodes:
            self._world.feed(spec.id, MessageReceived(trust.ROOT, revocation))
        self.promises.revoked(node)
        asking.is_over = False
        self._ask(asking)

    # Newcomers.

    def _ask(self, asking: _Asking) -> None:
        if asking.is_over:
            return
        newcomer = asking.newcomer
        door = self._world.hosts[newcomer.doors[asking.tries % len(newcomer.doors)]]
        self._ask_at(asking, door)
        delay_s = self._rng.uniform(*ASK_AGAIN_S)
        self._world.agenda.after(delay_s, self._ask, asking)

    def _ask_at(self, asking: _Asking, door: SimHost) -> None:
        if asking.is_over:
            return
        newcomer = asking.newcomer
        asking.tries += 1
        self._token += 1
        self._tokens[self._token] = asking
        if self._rng.random() >= LOST_SHARE:
            asked = JoinAsked(
                token=self._token,
                peer=newcomer.id,
                message=self._message(asking, door.id),
                origin=newcomer.id,
                objection="" if _is_admin(door) else NO_ADMIN,
            )
            delay_s = self._rng.uniform(*LATENCY_S)
            self._world.agenda.after(delay_s, _feed, door, door.life, asked)

    def _message(self, asking: _Asking, door: NodeId) -> Join | AdmissionWanted:
        newcomer = asking.newcomer
        request = RequestId(f"{newcomer.id}/{asking.tries}")
        if newcomer.kind == "stranger":
            return self._attempt(asking, door).wanted(request)
        told = self._script.invitations[newcomer.invitation]
        secret = (
            told.secret if newcomer.kind == "invited" else self._guesses.randbytes(16)
        )
        proof = proof_of(secret, joining(newcomer.id))
        print_ = sim_key_print(told.by)
        return Join(request=request, secret=b"", proof=proof, inviter=print_)

    def _attempt(self, asking: _Asking, door: NodeId) -> JoinAttempt:
        if door not in asking.attempts:
            drawn = self._rng.randbytes
            asking.attempts[door] = JoinAttempt(
                asking.newcomer.id, door, lambda: drawn(NONCE_BYTES)
            )
        return asking.attempts[door]

    def _answer(self, host: SimHost, effect: AnswerJoin) -> None:
        asking = self._tokens[effect.token]
        if isinstance(effect.answer, Welcome):
            self.promises.welcomed(host, effect.answer)
            self._stumble(host)
        if self._rng.random() >= LOST_SHARE:
            delay_s = self._rng.uniform(*LATENCY_S)
            self._world.agenda.after(
                delay_s, self._hear, asking, host.id, effect.answer
            )

    def _stumble(self, host: SimHost) -> None:
        """Sometimes crash a node that has just admitted another."""
        if not self._is_settling and self._rng.random() < STUMBLE_SHARE:
            self._world.agenda.after(0.0, self._end_life, host, host.life)
            back_s = self._rng.uniform(*STUMBLE_S)
            self._world.agenda.after(back_s, self._world.restart, host.id)

    def _hear(
        self, asking: _Asking, door: NodeId, answer: Welcome | Refusal | AdmissionHeard
    ) -> None:
        if isinstance(answer, Welcome):
            self.welcomed += not asking.is_over
            asking.is_over = True
        elif asking.newcomer.kind == "stranger":
            self._attempt(asking, door).hear(answer)

    # Effects of admins' machines.

    def _sign(self, host: SimHost, effect: SignAdmission) -> None:
        self.promises.signed(host, effect.peer)
        own, machine, terms = host.grant, host.machine, effect.terms
        assert own is not None
        assert isinstance(machine, Peer)
        if not _is_admin(host):
            self._feed_later(host, AdmissionSigned(effect.case, None, NO_ADMIN))
            return
        wall_s = trust.WALL_AT_START_S + self._world.now
        revoked_up_to = machine.membership.roster.revoked_up_to(effect.peer)
        key = trust.ROOT if host.spec.holds_root else host.id
        unsigned = Grant(
            node=effect.peer,
            shoal=trust.SHOAL,
            roles=terms.roles,
            owner=terms.owner or OwnerId(effect.peer),
            serial=serial_for_grant(revoked_up_to, wall_s),
            expires_wall_s=own.expires_wall_s,
            delegation=None if host.spec.holds_root else own,
            signer=key,
        )
        signed = trust.sign_grant(unsigned, key)
        self._feed_later(host, AdmissionSigned(effect.case, signed))

    def _keep(self, host: SimHost, effect: KeepInvitations) -> None:
        delay_s = self._rng.uniform(*WRITE_S)
        if host.disk.slow:
            delay_s += SLOW_WRITE_S
        # Writes are sequential, as in a live host.
        at = host.invitations_busy_until = max(
            host.invitations_busy_until, self._world.now + delay_s
        )
        self._world.agenda.at(at, self._kept, host, host.life, effect)

    def _kept(self, host: SimHost, life: int, effect: KeepInvitations) -> None:
        if host.up and host.life == life:
            host.invitations = effect.invitations
            host.feed(InvitationsKept(effect.case))

    def _announce(self, host: SimHost, effect: AnnounceRequest) -> None:
        """Let a person decide after a delay."""
        newcomer = self._asking[effect.peer].newcomer
        decided: JoinApproved | JoinDeclined = JoinDeclined(effect.peer)
        if newcomer.is_wanted:
            self.promises.approved(effect.peer)
            decided = JoinApproved(effect.peer)
        self._feed_later(host, decided, self._rng.uniform(0.5, 5.0))

    def _leave(self, host: SimHost) -> None:
        """Make a node hand over its invitations while many newcomers ask it."""
        host.feed(HandOverRequested(0))
        held = self._script.invitations
        crowd = [
            asking
            for asking in self._asking.values()
            if asking.newcomer.kind == "invited"
            and held[asking.newcomer.invitation].by == host.id
        ]
        for nth in range(CROWD if crowd else 0):
            asking = self._rng.choice(crowd)
            self._world.agenda.after(nth * CROWD_S, self._ask_at, asking, host)

    def _handed_over(self, host: SimHost, effect: HandedOver) -> None:
        """Remove a node that has handed over its invitations."""
        self._world.agenda.after(0.0, self._end_life, host, host.life)

    def _end_life(self, host: SimHost, life: int) -> None:
        if host.life == life:
            self._world.crash(host.id)

    def _feed_later(
        self, host: SimHost, event: AdmissionEvent, delay_s: float = 0.0
    ) -> None:
        self._world.agenda.after(delay_s, _feed, host, host.life, event)


def _feed(host: SimHost, life: int, event: AdmissionEvent) -> None:
    if host.up and host.life == life:
        host.feed(event)


def _is_admin(host: SimHost) -> bool:
    return host.grant is not None and "admin" in host.grant.roles


def _nobody_reads(host: SimHost, effect: AuditJoin) -> None:
    """Ignore it: there is no user."""
