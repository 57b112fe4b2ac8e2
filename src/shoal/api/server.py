"""Serves the API of a node: on a unix socket, and to TCP behind a door.

Whoever can open the socket is the node's user, and has a server of its own here. All
others come through the door, on loopback and, if the user says so, from elsewhere. Each
call there shows the token of the node, or comes by the certificate of a member. Who it
is, is looked at before anything of a request is read.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Final, NamedTuple, NoReturn, final

import grpc
import grpc.aio

from shoal.api import shoal_pb2 as pb
from shoal.api.auditing import Origin, came_from, refused
from shoal.api.call_frames import calls_socket
from shoal.api.callers import USER, Caller, answer_for
from shoal.api.calls import CallsDoor
from shoal.api.credentials import EVERYWHERE
from shoal.api.door import Door
from shoal.api.failures import shown_of
from shoal.api.grpc_failures import packed
from shoal.api.methods import snake
from shoal.api.plain import plain_socket
from shoal.api.plain_door import PlainDoor
from shoal.api.rights import Rights
from shoal.api.sockets import own_folder, private
from shoal.api.standard import StandardServices
from shoal.api.whereabouts import socket_path
from shoal.errors import NotAllowedError, ShoalError, UsageError

if TYPE_CHECKING:
    import ssl
    from pathlib import Path

    from google.protobuf.descriptor import MethodDescriptor
    from google.protobuf.message import Message

    from shoal.api.door import Guest
    from shoal.api.rights import Verify
    from shoal.api.service import Service
    from shoal.model.ids import OwnerId
    from shoal.runtime.home import Home

    Context = grpc.aio.ServicerContext[Any, Any]
    Authorise = Callable[[str, Context], Caller]
    """Says who makes a call; raises unless it may."""

PORT: Final = 50_051
HOST: Final = "127.0.0.1"
MESSAGE_BYTES_MAX: Final = 64 << 20
STREAMS_MAX: Final = 256
"""Calls on one connection at a time; more wait."""

STOP_GRACE_S: Final = 0.5
CUT_S: Final = 0.2
DOOR_SUFFIX: Final = ".door"

_OPTIONS: Final = (
    ("grpc.max_receive_message_length", MESSAGE_BYTES_MAX),
    ("grpc.max_send_message_length", MESSAGE_BYTES_MAX),
    ("grpc.max_concurrent_streams", STREAMS_MAX),
)


class Place(NamedTuple):
    """Where clients of other machines come to the door."""

    host: str
    port: int

    @property
    def covers_loopback(self) -> bool:
        """Whether it also gets what is sent to its port on loopback."""
        return self.host in (*EVERYWHERE, HOST)


class Trust(NamedTuple):
    """What decides who may call."""

    token: str
    owner: OwnerId  # of the node
    verify: Verify
    tls: ssl.SSLContext  # by which the node proves itself


@final
class ApiServer:
    """Listens in up to three places; the addresses say which ports it got."""

    def __init__(self, home: Home, service: Service, trust: Trust) -> None:
        self.address = ""
        self.far_address = ""  # Where other machines come, if they may.
        self.socket = socket_path(home)
        self._home = home
        self.port_was_taken = False
        self._rights = Rights(trust.token, trust.owner, trust.verify)
        self._door = Door(trust.tls, self._rights.trouble)
        self._rights.guests = self._door.guests
        self._own = _server(service, _user)
        self._guests = _server(service, self._authorise)
        self._standard = [StandardServices(each) for each in (self._own, self._guests)]
        self._ledger = service.audit
        self._calls = CallsDoor(
            service.calls, calls_socket(self.socket), self._ledger.opened_calls
        )
        self._plain = PlainDoor(service.methods, plain_socket(self.socket))

    async def start(self, port: int | None, place: Place | None = None) -> None:
        """Listen; without a port on the usual one, or on any other if it is taken."""
        inner = self.socket.with_suffix(DOOR_SUFFIX)
        if self.socket != self._home.socket:  # Nobody else makes our home.
            own_folder(self.socket.parent)
        _open_socket(self._own, self.socket)
        _open_socket(self._guests, inner)
        shared = await self._open_far(place) if place is not None else 0
        if shared and port in (shared, None):
            self.address = f"{HOST}:{shared}"
        else:
            self.address = f"{HOST}:{await self._open_here(port)}"
        for server in (self._own, self._guests):
            await server.start()
        for path in (self.socket, inner):
            path.chmod(0o600)
        await self._calls.open()
        await self._plain.open()
        for standard in self._standard:
            await standard.serve()
        await self._door.serve(inner)

    async def stop(self) -> None:
        """Let calls under way end, briefly, and close."""
        for standard in self._standard:
            await standard.leave()
        self._calls.close()
        await self._plain.close()
        await self._guests.stop(STOP_GRACE_S)
        await self._own.stop(STOP_GRACE_S)
        self._door.close()
        self.socket.unlink(missing_ok=True)
        self.socket.with_suffix(DOOR_SUFFIX).unlink(missing_ok=True)

    def renew(self, token: str) -> None:
        """Know this token from now on, and cut off who came in by the last one.

        Not before the one who asked for that has its answer.
        """
        self._rights.renew(token)
        loop = asyncio.get_running_loop()
        loop.call_later(CUT_S, self._door.cut, "token")

    async def _open_far(self, place: Place) -> int:
        """Return the port that the door has on loopback too; 0 if it has none there."""
        try:
            port = await self._door.open(place.host, place.port)
        except OSError as error:
            raise ShoalError(
                f"cannot listen on {place.host}:{place.port} for clients of other "
                "machines",
                because=error.strerror or str(error),
                hint="name another address or port: --api HOST:PORT",
            ) from None
        host = f"[{place.host}]" if ":" in place.host else place.host
        self.far_address = f"{host}:{port}"
        return port if place.covers_loopback else 0

    async def _open_here(self, port: int | None) -> int:
        wanted = PORT if port is None else port
        try:
            return await self._door.open(HOST, wanted)
        except OSError as error:
            if port is None:
                self.port_was_taken = True
                return await self._door.open(HOST, 0)
            raise ShoalError(
                f"cannot listen on {HOST}:{port}",
                because=error.strerror or str(error),
                hint="--port 0 takes any port that is free",
            ) from None

    def _authorise(self, method: str, context: Context) -> Caller:
        shown = dict(context.invocation_metadata() or ()).get("authorization", "")
        told = shown if isinstance(shown, str) else ""
        peer = context.peer()
        guest = self._door.guests.get(peer)
        try:
            caller = self._rights.check(method, peer, told)
        except NotAllowedError as error:
            self._note_refusal(method, guest, bool(told), error)
            if guest is not None:
                guest.refuse()
            raise
        came_from(guest.address if guest is not None else "")
        if guest is not None:
            guest.prove("token" if caller.way == "token" else "certificate")
        return caller

    def _note_refusal(
        self, method: str, guest: Guest | None, has_token: bool, error: NotAllowedError
    ) -> None:
        shown = guest.shown if guest is not None else None
        place = Origin(
            way="certificate" if shown is not None and not has_token else "token",
            node=shown.node if shown is not None else "",
            address=guest.address if guest is not None else "",
        )
        refused(self._ledger.note, method, place, str(error))


def _user(method: str, context: Context) -> Caller:
    """Let in who could open the socket: its mode has decided."""
    del method, context
    return USER


def _server(service: Service, authorise: Authorise) -> grpc.aio.Server:
    """Return a server of all calls, none of which is read before it is authorised.

    gRPC reads the request of a call before it calls what answers it, unless that
    takes a stream. On the wire both look the same, so all take streams here.
    """
    server = grpc.aio.server(options=_OPTIONS)
    described = pb.DESCRIPTOR.services_by_name["Shoal"]
    handlers: dict[str, grpc.RpcMethodHandler[Any, Any]] = {}
    for method in described.methods:
        handlers[method.name] = grpc.stream_stream_rpc_method_handler(
            _answering(method, getattr(service, f"on_{snake(method.name)}"), authorise),
            request_deserializer=getattr(pb, method.input_type.name).FromString,
            response_serializer=_serialized,
        )
    handler = grpc.method_handlers_generic_handler(described.full_name, handlers)
    server.add_generic_rpc_handlers((handler,))
    return server


def _answering(
    method: MethodDescriptor, call: Callable[[Any], Any], authorise: Authorise
) -> Callable[[AsyncIterator[Any], Context], AsyncIterator[Message]]:
    async def answer(
        requests: AsyncIterator[Any], context: Context
    ) -> AsyncIterator[Message]:
        try:
            answer_for(authorise(method.name, context))
            asked = requests if method.client_streaming else await _only(requests)
            if not method.server_streaming:
                yield await call(asked)
                return
            async with aclosing(call(asked)) as replies:
                async for message in replies:
                    yield message
        except Exception as error:  # noqa: BLE001 - A client gets an answer.
            await _abort(context, error)

    return answer


async def _only(requests: AsyncIterator[Any]) -> Any:  # noqa: ANN401 - Any message.
    async for request in requests:
        return request
    raise UsageError("the call has no request")


def _open_socket(server: grpc.aio.Server, path: Path) -> None:
    with private(path):
        server.add_insecure_port(f"unix:{path}")


async def _abort(context: Context, error: Exception) -> NoReturn:
    if isinstance(error, grpc.aio.AbortError):
        raise error
    code, text, details = packed(*shown_of(error))
    await context.abort(code, text, details)


def _serialized(message: Message) -> bytes:
    return message.SerializeToString()
