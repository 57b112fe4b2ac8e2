"""Handle requests of newcomers to join, and of users to invite.

`core.admission.admission_control` decides. This module feeds it each request under a
token, signs grants, writes the file of invitations, and returns the answers to
connections and users. The file holds hashes of secrets and who used them, so reading
it admits nobody.
"""

from __future__ import annotations

import asyncio
import time
from functools import partial
from secrets import token_bytes
from typing import TYPE_CHECKING, Any, Final, final

import msgspec

from shoal.core.admission.admission_control import HAND_OVER_S, AdmissionTools
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
from shoal.core.admission.invitation_book import OpenInvitation, range_flaw
from shoal.core.durability.audit_chain import AuditEntry
from shoal.errors import NotAllowedError, ShoalError, UsageError
from shoal.net.direct.connection_limits import origin_of
from shoal.net.identity.petname import petname
from shoal.net.joining.invitations import Invitation, encode, key_print, new_secret
from shoal.net.joining.join_codes import code_of, is_local
from shoal.protocol.admission_proofs import NONCE_BYTES, secret_digest
from shoal.protocol.messages import PeerAddress
from shoal.runtime.durability.audit_log import let_in
from shoal.runtime.membership.shoal_membership import write_private

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from shoal.core.admission.invitation_book import InvitationTerms
    from shoal.core.admission.join_requests import JoinRequest
    from shoal.core.events import Effect
    from shoal.model.ids import NodeId, OwnerId
    from shoal.protocol.admission import AdmissionHeard, AdmissionWanted
    from shoal.protocol.messages import Join, Refusal, Welcome
    from shoal.runtime.home import Home
    from shoal.runtime.node import Node

    Known = Iterable[tuple[NodeId, tuple[str, ...]]]
    """Members that a newcomer could dial, with their addresses."""

INVITATIONS_FILE: Final = "invitations.json"
TOOLS: Final = AdmissionTools(
    key_print=key_print,
    name_of=petname,
    code_of=code_of,
    nonce=partial(token_bytes, NONCE_BYTES),
)


@final
class AdmissionDesk:
    """Feeds requests to the machine and performs its admission effects."""

    def __init__(self, node: Node, known: Known, say: Callable[[str], None]) -> None:
        """Name `known` members to newcomers; tell users about requests by `say`."""
        self._node = node
        self._known = known
        self._say = say
        self._machine = node.admission_control
        self._loop = asyncio.get_running_loop()
        self._token = 0
        self._open: dict[int, asyncio.Future[Any]] = {}  # pending requests by token

    @property
    def performers(self) -> Mapping[type[Effect], Callable[..., None]]:
        """The performer of each effect."""
        return {
            AnswerJoin: self._answer_join,
            AnswerInvite: self._answer_invite,
            HandedOver: self._handed_over,
            SignAdmission: self._sign,
            KeepInvitations: self._keep,
            AuditJoin: self._audit,
            AnnounceRequest: self._announce,
        }

    # For users.

    @property
    def has_invited(self) -> bool:
        """Whether an open invitation of this node may exist."""
        return self._machine.has_invited(self._loop.time())

    @property
    def waiting(self) -> list[JoinRequest]:
        """Newcomers without an invitation that await a decision."""
        return self._machine.waiting(self._loop.time())

    def decide(
        self, node: NodeId, *, accepted: bool, owner: OwnerId | None = None
    ) -> None:
        """Accept or decline a waiting newcomer."""
        decided = JoinApproved(node, owner) if owner else JoinApproved(node)
        self._node.feed(decided if accepted else JoinDeclined(node))

    async def invite(
        self,
        terms: InvitationTerms,
        *,
        uses: int,
        ttl_s: float,
        addresses: Sequence[str],
    ) -> str:
        """Return a new invitation's text; raise if this node may not invite."""
        self._node.granting.check()
        if not addresses:
            raise ShoalError(
                "nobody could follow an invitation",
                because="this node listens nowhere",
                hint="restart it with --listen HOST:PORT",
            )
        if flaw := range_flaw(uses, ttl_s):
            raise _refused(flaw, "write it like --uses 3 --ttl 2d")
        secret = new_secret()
        digest = secret_digest(secret)
        if refused := await self._ask(Invited, digest, terms, uses, ttl_s):
            raise _refused(refused, "wait until some expire")
        invitation = Invitation(
            shoal=self._node.membership.shoal,
            key_print=key_print(self._node.id),
            secret=secret,
            expires_wall_s=int(time.time() + ttl_s),
            addresses=tuple(addresses),
        )
        return encode(invitation)

    async def hand_over(self) -> None:
        """Pass open invitations to an admin, before this node leaves."""
        try:
            async with asyncio.timeout(2 * HAND_OVER_S):
                await self._ask(HandOverRequested)
        except TimeoutError:
            pass  # The machine no longer answers.

    # For newcomers.

    async def __call__(
        self, peer: NodeId, message: Join | AdmissionWanted, address: str = ""
    ) -> Welcome | Refusal | AdmissionHeard:
        """Answer a newcomer's request, which came on its own connection."""
        origin, is_near = origin_of(address), is_local(address)
        objection = self._objection()

        def asked(token: int) -> JoinAsked:
            return JoinAsked(
                token=token,
                peer=peer,
                message=message,
                address=address,
                origin=origin,
                is_near=is_near,
                objection=objection,
            )

        answer: Welcome | Refusal | AdmissionHeard = await self._ask(asked)
        return answer

    def _objection(self) -> str:
        try:
            self._node.granting.check()
        except NotAllowedError as error:
            return str(error)
        return ""

    async def _ask(self, fact: Callable[..., Any], *fields: object) -> Any:  # noqa: ANN401
        self._token += 1
        token = self._token
        self._open[token] = self._loop.create_future()
        self._node.feed(fact(token, *fields))
        try:
            return await self._open[token]
        finally:
            del self._open[token]

    def _answer_join(self, effect: AnswerJoin) -> None:
        self._settle(effect.token, effect.answer)

    def _answer_invite(self, effect: AnswerInvite) -> None:
        self._settle(effect.token, effect.refused)

    def _handed_over(self, effect: HandedOver) -> None:
        self._settle(effect.token, None)

    def _settle(self, token: int, answer: object) -> None:
        future = self._open.get(token)
        if future is not None and not future.done():
            future.set_result(answer)

    # Effects of the machine.

    def _sign(self, effect: SignAdmission) -> None:
        grant, reason = None, ""
        try:
            grant = self._node.granting.grant(effect.peer, effect.terms)
        except (ShoalError, OSError) as error:
            reason = str(error)
        others = (each for each in self._known if each[0] != self._node.id)
        peers = tuple(PeerAddress(node, at) for node, at in others)
        self._node.feed(AdmissionSigned(effect.case, grant, reason, peers))

    def _keep(self, effect: KeepInvitations) -> None:
        trouble = ""
        try:
            save_invitations(self._node.home, effect.invitations)
        except OSError as error:
            trouble = str(error)
        self._node.feed(InvitationsKept(effect.case, trouble))

    def _audit(self, effect: AuditJoin) -> None:
        entry = AuditEntry(
            what="join",
            result="refused",
            way="wire",
            node=effect.peer,
            address=effect.address,
            because=effect.because,
        )
        if effect.grant is not None:
            entry = let_in(effect.grant, effect.address, effect.because)
        self._node.audit.note(entry)

    def _announce(self, effect: AnnounceRequest) -> None:
        shoal = self._node.membership.shoal
        self._say(
            f'{petname(effect.peer)} wants to join "{shoal}":'
            " `shoal accept`, and type the code that its screen shows"
        )


def load_invitations(home: Home) -> list[OpenInvitation]:
    """Load the saved invitations."""
    path = home.path / INVITATIONS_FILE
    try:
        return msgspec.json.decode(path.read_bytes(), type=list[OpenInvitation])
    except FileNotFoundError:
        return []
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise UsageError(
            f"{path} cannot be read",
            because=str(error),
            hint="move it away; who was invited before asks for a new invitation",
        ) from error


def save_invitations(home: Home, invitations: Sequence[OpenInvitation]) -> None:
    """Write the invitations atomically."""
    text = msgspec.json.format(msgspec.json.encode(invitations), indent=2)
    write_private(home.path / INVITATIONS_FILE, text)


def _refused(flaw: str, hint: str) -> UsageError:
    what, _, because = flaw.partition(": ")
    return UsageError(what, because=because, hint=hint)
