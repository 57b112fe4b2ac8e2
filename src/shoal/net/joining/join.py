"""Join a shoal: dial the inviting node, prove the secret, receive a grant."""

from __future__ import annotations

import asyncio
import functools
import hmac
import socket
from typing import TYPE_CHECKING, Final, NamedTuple, final

import msgspec

from shoal.errors import ProtocolError, ShoalError, UnreachableError, UsageError
from shoal.model.ids import RequestId
from shoal.net import multiaddr
from shoal.net.direct.connection import Connection
from shoal.net.direct.dialler import Endpoint, race, resolve
from shoal.net.direct.frames import Frame, FrameKind, framed, reason_of
from shoal.net.identity.certificates import contexts
from shoal.net.joining import invitations
from shoal.protocol import admission_proofs, codec
from shoal.protocol.limits import FRAME_BYTES_MAX
from shoal.protocol.messages import Join, Refusal, Welcome

if TYPE_CHECKING:
    import ssl

    from shoal.model.ids import NodeId
    from shoal.net.identity.certificates import Shown
    from shoal.net.identity.identity import Identity
    from shoal.net.joining.invitations import Invitation

JOIN_S: Final = 15.0
CONNECT_S: Final = 5.0


class Joined(NamedTuple):
    """The node that admitted us, and its answer."""

    inviter: NodeId
    welcome: Welcome


async def join(
    identity: Identity,
    invitation: Invitation,
    *,
    name: str = "",
    timeout_s: float = JOIN_S,
) -> Joined:
    """Ask the inviting node to admit us, directly or through a gate.

    The secret is sent only to the node with the right key; a gate sees a proof of it,
    and its answer is proved as well. Raises `ShoalError` with all reasons if no address
    led to a grant, or `UnreachableError` if the inviting node was not reached. Asking
    again does no harm. The caller checks the signature of the grant.
    """
    context = contexts(identity, None).dialling
    answers: list[Joined | Refusal] = []
    asked = functools.partial(_ask, context, invitation, identity.node, name, answers)
    try:
        async with asyncio.timeout(timeout_s):
            addresses = [multiaddr.parse(text) for text in invitation.addresses]
            places = await resolve(addresses)
            await race([functools.partial(asked, place) for place in places])
    except (ShoalError, TimeoutError) as error:
        said = error.because if isinstance(error, ShoalError) else ""
        refusals = [one for one in answers if isinstance(one, Refusal)]
        is_refused = any(one.retry_in_s is None for one in refusals)
        raise (ShoalError if is_refused else UnreachableError)(
            f"could not join '{invitation.shoal}'",
            because=said or f"no answer within {timeout_s:g} s",
            hint="check that the other node is up, or ask for a new invitation",
        ) from None
    return next(one for one in answers if isinstance(one, Joined))


async def _ask(
    context: ssl.SSLContext,
    invitation: Invitation,
    own: NodeId,
    name: str,
    answers: list[Joined | Refusal],
    place: Endpoint,
) -> None:
    """Ask at one address; record the answer, or raise the reason."""
    request = RequestId(f"{own}/join")
    asking = _Asking(
        invitation, Join(request=request, secret=invitation.secret, name=name), own
    )
    connection = Connection(asking, context)
    sock = socket.socket(place.family, socket.SOCK_STREAM)
    loop = asyncio.get_running_loop()
    joined = False
    try:
        sock.setblocking(False)
        async with asyncio.timeout(CONNECT_S):
            await loop.sock_connect(sock, (place.host, place.port))
        joined = True
        await loop.create_connection(lambda: connection, sock=sock)
        answer = await asking.answer
    except BaseException:
        connection.abort("asking stopped", "stopped")
        if not joined:
            sock.close()
        raise
    connection.close("thank you", "done")
    if isinstance(answer, Refusal):
        answers.append(answer)
        answer = f"it refused: {answer.reason}"
    if isinstance(answer, str):
        raise ShoalError(f"{place.host} port {place.port}", because=answer)
    grant = answer.welcome.grant
    if (grant.node, grant.shoal) != (own, invitation.shoal):
        raise ShoalError(f"{place.host}", because="it granted something else")
    answers.append(answer)


@final
class _Asking:
    """The newcomer's end of one connection."""

    def __init__(self, invitation: Invitation, join: Join, own: NodeId) -> None:
        self.answer: asyncio.Future[Joined | Refusal | str] = (
            asyncio.get_running_loop().create_future()
        )
        self._invitation = invitation
        self._join = join
        self._own = own
        self._answerer: NodeId | None = None
        self._is_inviter = False

    def arrived(self, connection: Connection) -> None:
        """Wait for the proof."""

    def proved(self, connection: Connection, shown: Shown) -> None:
        """Send the secret to the inviting node, or a proof to a gate."""
        print_ = invitations.key_print(shown.node)
        wanted = self._invitation.key_print
        self._is_inviter = hmac.compare_digest(print_, wanted)
        if not self._is_inviter and shown.grant is None:
            connection.close("not whom I was told to meet", "wrong id")
            return
        join = self._join
        if not self._is_inviter:
            what = admission_proofs.joining(self._own)
            proof = admission_proofs.proof_of(join.secret, what)
            join = msgspec.structs.replace(
                join, secret=b"", proof=proof, inviter=wanted
            )
        self._answerer = shown.node
        connection.widen(FRAME_BYTES_MAX)
        connection.send(framed(FrameKind.MESSAGES, codec.encode([join])[0]))

    def took(self, connection: Connection, frame: Frame) -> None:
        """Handle the answer."""
        if frame.kind == FrameKind.CLOSE:
            connection.abort(f"it said: {reason_of(frame.payload)}", "closed by peer")
            return
        if frame.kind != FrameKind.MESSAGES or self._answerer is None:
            raise ProtocolError("a frame that nobody asked for")
        for message in codec.decode(frame.payload):
            if isinstance(message, Welcome) and message.request == self._join.request:
                if not self._is_inviter and not self._is_proved(message):
                    raise ProtocolError("a welcome of somebody who did not invite us")
                self._settle(Joined(self._answerer, message))
            elif isinstance(message, Refusal):
                self._settle(message)

    def drained(self, connection: Connection) -> None:
        """Do nothing: there is nothing more to send."""

    def ended(self, connection: Connection, why: str, kind: str) -> None:
        """Give up, if there was no answer."""
        self._settle(why)

    def gone(self, connection: Connection) -> None:
        """Be done."""

    def _is_proved(self, welcome: Welcome) -> bool:
        what = admission_proofs.welcoming(welcome.grant)
        proof = admission_proofs.proof_of(self._invitation.secret, what)
        return hmac.compare_digest(proof, welcome.proof)

    def _settle(self, answer: Joined | Refusal | str) -> None:
        if not self.answer.done():
            self.answer.set_result(answer)


def invitation_of(text: str) -> Invitation:
    """Parse an invitation and its addresses.

    Raises `UsageError` if the text or an address is not valid.
    """
    invitation = invitations.decode(text)
    if not invitation.addresses:
        raise UsageError("the invitation says nowhere to dial")
    for address in invitation.addresses:
        multiaddr.parse(address)
    return invitation
