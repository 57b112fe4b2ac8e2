"""Ask for admission: by an invitation, or at a node on the local network.

A newcomer dials, proves its key, sends one request and gets one answer. By invitation,
the secret is sent only to the inviting node; on the local network, people compare a
code (`net.joining.join_codes`).
"""

from __future__ import annotations

import asyncio
import functools
import hmac
import socket
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Final, Generic, NamedTuple, TypeVar, final

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
from shoal.protocol.admission import AdmissionHeard, AdmissionWanted
from shoal.protocol.limits import FRAME_BYTES_MAX
from shoal.protocol.messages import Join, Refusal, Welcome

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from shoal.model.ids import NodeId
    from shoal.net.identity.certificates import Shown
    from shoal.net.identity.identity import Identity
    from shoal.net.joining.invitations import Invitation
    from shoal.net.joining.lan_discovery import Near
    from shoal.protocol.messages import AnyMessage

T = TypeVar("T")

JOIN_S: Final = 15.0
CONNECT_S: Final = 5.0
KNOCK_S: Final = 8.0
CONNECT_NEAR_S: Final = 3.0


class Joined(NamedTuple):
    """The node that admitted us, and its answer."""

    inviter: NodeId
    welcome: Welcome


Answer = Welcome | Refusal | AdmissionHeard


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
    context, own = contexts(identity, None).dialling, identity.node
    request = RequestId(f"{own}/join")
    message = Join(request=request, secret=invitation.secret, name=name)
    answers: list[Joined | Refusal] = []

    async def ask(place: Endpoint) -> None:
        asking = _Asking(invitation, message, own)
        answer = await _exchanged(asking, Connection(asking, context), place, CONNECT_S)
        answers.append(answer)
        if isinstance(answer, Refusal):
            because = f"it refused: {answer.reason}"
            raise ShoalError(f"{place.host} port {place.port}", because=because)

    try:
        async with asyncio.timeout(timeout_s):
            await _anywhere(invitation.addresses, ask)
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


async def knock(identity: Identity, near: Near, wanted: AdmissionWanted) -> Answer:
    """Ask a node on the local network once.

    Raises `ShoalError` if the node cannot be reached, or is another.
    """
    context = contexts(identity, None).dialling
    answers: list[Answer] = []

    async def ask(place: Endpoint) -> None:
        knocking = _Knocking(wanted)
        connection = Connection(knocking, context, expects=near.node)
        answer = await _exchanged(knocking, connection, place, CONNECT_NEAR_S)
        answers.append(answer)

    try:
        async with asyncio.timeout(KNOCK_S):
            await _anywhere(near.addresses, ask)
    except TimeoutError:
        raise ShoalError("no answer", because=f"not within {KNOCK_S:g} s") from None
    return answers[0]


async def _anywhere(
    addresses: Sequence[str], ask: Callable[[Endpoint], Awaitable[None]]
) -> None:
    places = await resolve([multiaddr.parse(text) for text in addresses])
    await race([functools.partial(ask, place) for place in places])


async def _exchanged(
    exchange: _Exchange[T], connection: Connection, place: Endpoint, connect_s: float
) -> T:
    """Dial one address and return the answer, or raise the reason for none."""
    sock = socket.socket(place.family, socket.SOCK_STREAM)
    loop = asyncio.get_running_loop()
    is_connected = False
    try:
        sock.setblocking(False)
        async with asyncio.timeout(connect_s):
            await loop.sock_connect(sock, (place.host, place.port))
        is_connected = True
        await loop.create_connection(lambda: connection, sock=sock)
        answer = await exchange.answer
    except BaseException as error:
        connection.abort("asking stopped", "stopped")
        if not is_connected:
            sock.close()
        if isinstance(error, TimeoutError):
            raise ShoalError(f"{place.host} does not answer") from None
        raise
    connection.close("thank you", "done")
    if isinstance(answer, str):
        raise ShoalError(f"{place.host} port {place.port}", because=answer)
    return answer


class _Exchange(ABC, Generic[T]):
    """The newcomer's end of one connection; `answer` is a text if there is none."""

    def __init__(self) -> None:
        self.answer: asyncio.Future[T | str] = (
            asyncio.get_running_loop().create_future()
        )

    @abstractmethod
    def proved(self, connection: Connection, shown: Shown) -> None:
        """Send the request, if this is the right node."""

    @abstractmethod
    def heard(self, message: AnyMessage) -> None:
        """Settle, if the message is the answer."""

    def arrived(self, connection: Connection) -> None:
        """Wait for the proof."""

    def took(self, connection: Connection, frame: Frame) -> None:
        """Handle the answer."""
        if frame.kind == FrameKind.CLOSE:
            connection.abort(f"it said: {reason_of(frame.payload)}", "closed by peer")
            return
        if frame.kind != FrameKind.MESSAGES:
            raise ProtocolError("a frame that nobody asked for")
        for message in codec.decode(frame.payload):
            self.heard(message)

    def drained(self, connection: Connection) -> None:
        """Do nothing: there is nothing more to send."""

    def ended(self, connection: Connection, why: str, kind: str) -> None:
        """Give up, if there was no answer."""
        self._settle(why)

    def gone(self, connection: Connection) -> None:
        """Be done."""

    def _send(self, connection: Connection, message: AnyMessage) -> None:
        connection.widen(FRAME_BYTES_MAX)
        connection.send(framed(FrameKind.MESSAGES, codec.encode([message])[0]))

    def _settle(self, answer: T | str) -> None:
        if not self.answer.done():
            self.answer.set_result(answer)


@final
class _Knocking(_Exchange[Answer]):
    """Asks the node whose key was announced, and no other."""

    def __init__(self, wanted: AdmissionWanted) -> None:
        super().__init__()
        self._wanted = wanted

    def proved(self, connection: Connection, shown: Shown) -> None:
        if shown.node != connection.expects:
            connection.close("another node was meant", "wrong id")
            return
        self._send(connection, self._wanted)

    def heard(self, message: AnyMessage) -> None:
        if isinstance(message, Welcome | Refusal | AdmissionHeard):
            self._settle(message)


@final
class _Asking(_Exchange[Joined | Refusal]):
    """Sends the secret to the inviting node, or a proof of it to a gate."""

    def __init__(self, invitation: Invitation, join: Join, own: NodeId) -> None:
        super().__init__()
        self._invitation = invitation
        self._join = join
        self._own = own
        self._answerer: NodeId | None = None
        self._is_inviter = False

    def proved(self, connection: Connection, shown: Shown) -> None:
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
        self._send(connection, join)

    def heard(self, message: AnyMessage) -> None:
        if self._answerer is None:
            raise ProtocolError("a frame that nobody asked for")
        if isinstance(message, Welcome) and message.request == self._join.request:
            if not self._is_inviter and not self._is_proved(message):
                raise ProtocolError("a welcome of somebody who did not invite us")
            grant = message.grant
            if (grant.node, grant.shoal) == (self._own, self._invitation.shoal):
                self._settle(Joined(self._answerer, message))
            else:
                self._settle("it granted something else")
        elif isinstance(message, Refusal):
            self._settle(message)

    def _is_proved(self, welcome: Welcome) -> bool:
        what = admission_proofs.welcoming(welcome.grant)
        proof = admission_proofs.proof_of(self._invitation.secret, what)
        return hmac.compare_digest(proof, welcome.proof)


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
