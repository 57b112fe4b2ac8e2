"""Becoming a member: dial who invited us, prove who we are, and get a grant."""

from __future__ import annotations

import asyncio
import functools
import hmac
import socket
from typing import TYPE_CHECKING, Final, NamedTuple, final

from shoal.errors import ProtocolError, ShoalError, UsageError
from shoal.model.ids import RequestId
from shoal.net import invitations, multiaddr
from shoal.net.certificates import contexts
from shoal.net.connection import Connection
from shoal.net.dialling import Endpoint, race, resolve
from shoal.net.frames import Frame, Kind, framed, reason_of
from shoal.protocol import codec
from shoal.protocol.limits import FRAME_BYTES_MAX
from shoal.protocol.messages import Join, Refusal, Welcome

if TYPE_CHECKING:
    import ssl

    from shoal.model.ids import NodeId
    from shoal.net.certificates import Shown
    from shoal.net.identity import Identity
    from shoal.net.invitations import Invitation

JOIN_S: Final = 15.0
CONNECT_S: Final = 5.0


class Joined(NamedTuple):
    """Who let us in, and what it said."""

    inviter: NodeId
    welcome: Welcome


async def join(
    identity: Identity,
    invitation: Invitation,
    *,
    name: str = "",
    timeout_s: float = JOIN_S,
) -> Joined:
    """Ask to be let in by whoever gave out the invitation.

    The secret is sent to the node with the right key only. Raises `ShoalError` with
    all reasons if no address led to a grant. Asking again does no harm. Whether the
    grant is signed as it should be is for the caller to check.
    """
    context = contexts(identity, None).dialling
    answers: list[Joined] = []
    asked = functools.partial(_ask, context, invitation, identity.node, name, answers)
    try:
        async with asyncio.timeout(timeout_s):
            addresses = [multiaddr.parse(text) for text in invitation.addresses]
            places = await resolve(addresses)
            await race([functools.partial(asked, place) for place in places])
    except (ShoalError, TimeoutError) as error:
        said = error.because if isinstance(error, ShoalError) else ""
        raise ShoalError(
            f"could not join '{invitation.shoal}'",
            because=said or f"no answer within {timeout_s:g} s",
            hint="see that the other node is up; or ask for a new invitation",
        ) from None
    return answers[0]


async def _ask(
    context: ssl.SSLContext,
    invitation: Invitation,
    own: NodeId,
    name: str,
    answers: list[Joined],
    place: Endpoint,
) -> None:
    """Ask at one place; note the answer, or raise why there is none."""
    request = RequestId(f"{own}/join")
    asking = _Asking(
        invitation, Join(request=request, secret=invitation.secret, name=name)
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
    if isinstance(answer, str):
        raise ShoalError(f"{place.host} port {place.port}", because=answer)
    grant = answer.welcome.grant
    if (grant.node, grant.shoal) != (own, invitation.shoal):
        raise ShoalError(f"{place.host}", because="it granted something else")
    answers.append(answer)


@final
class _Asking:
    """The newcomer's end of one connection."""

    def __init__(self, invitation: Invitation, join: Join) -> None:
        self.answer: asyncio.Future[Joined | str] = (
            asyncio.get_running_loop().create_future()
        )
        self._invitation = invitation
        self._join = join
        self._inviter: NodeId | None = None

    def arrived(self, connection: Connection) -> None:
        """Wait for the proof."""

    def proved(self, connection: Connection, shown: Shown) -> None:
        """Show the secret to whom the invitation names, and to nobody else."""
        print_ = invitations.key_print(shown.node)
        if not hmac.compare_digest(print_, self._invitation.key_print):
            connection.close("not whom I was told to meet", "wrong id")
            return
        self._inviter = shown.node
        connection.widen(FRAME_BYTES_MAX)
        connection.send(framed(Kind.MESSAGES, codec.encode([self._join])[0]))

    def took(self, connection: Connection, frame: Frame) -> None:
        """Take the answer."""
        if frame.kind == Kind.CLOSE:
            connection.abort(f"it said: {reason_of(frame.payload)}", "closed by peer")
            return
        if frame.kind != Kind.MESSAGES or self._inviter is None:
            raise ProtocolError("a frame that nobody asked for")
        for message in codec.decode(frame.payload):
            if isinstance(message, Welcome) and message.request == self._join.request:
                self._settle(Joined(self._inviter, message))
            elif isinstance(message, Refusal):
                self._settle(f"it refused: {message.reason}")

    def drained(self, connection: Connection) -> None:
        """Go on; there is nothing more to send."""

    def ended(self, connection: Connection, why: str, kind: str) -> None:
        """Give up, if there was no answer."""
        self._settle(why)

    def gone(self, connection: Connection) -> None:
        """Be done."""

    def _settle(self, answer: Joined | str) -> None:
        if not self.answer.done():
            self.answer.set_result(answer)


def invitation_of(text: str) -> Invitation:
    """Return the invitation in a text, whose addresses can all be read.

    Raises `UsageError` if one cannot, or if it is no invitation at all.
    """
    invitation = invitations.decode(text)
    if not invitation.addresses:
        raise UsageError("the invitation says nowhere to dial")
    for address in invitation.addresses:
        multiaddr.parse(address)
    return invitation
