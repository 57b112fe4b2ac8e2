"""Serves the API of a node: on Unix sockets, and over TCP behind a `TlsDoor`.

Theory of operation. There are two gRPC servers. One listens on the user's Unix socket;
its file mode admits only the node's user, so every call there is the user's. The other
listens on a private socket behind the door, which takes TCP on loopback and, if the
user asks for it, from other machines. A call there must carry the node's token or come
with a member's certificate. Callers are authorised before any of their request is read.
Plain sockets for commands and for function calls are opened and closed alongside.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Final, NamedTuple, NoReturn, final

import grpc
import grpc.aio
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from shoal.api.call_frames import calls_socket
from shoal.api.client.credentials import EVERYWHERE
from shoal.api.client.socket_client import plain_socket
from shoal.api.failures import shown_of
from shoal.api.grpc_failures import packed
from shoal.api.methods import SERVICE
from shoal.api.node_file import socket_path
from shoal.api.server.rights import Rights
from shoal.api.server.socket_server import SocketServer
from shoal.api.server.task_door import TaskDoor
from shoal.api.server.tls_door import TlsDoor
from shoal.api.service.audited import Origin, came_from, refused
from shoal.api.service.callers import USER, Caller, answer_for
from shoal.api.service.function_calls import CallServer
from shoal.api.sockets import own_folder, private
from shoal.errors import NotAllowedError, ShoalError, UsageError

if TYPE_CHECKING:
    import ssl
    from pathlib import Path

    from google.protobuf.message import Message

    from shoal.api.methods import ApiMethod
    from shoal.api.server.rights import Verify
    from shoal.api.server.tls_door import Guest
    from shoal.api.service.service import Service
    from shoal.model.ids import OwnerId
    from shoal.runtime.home import Home

    Context = grpc.aio.ServicerContext[Any, Any]
    Authorise = Callable[[str, Context], Caller]
    """Returns the caller of a method; raises if it may not call it."""
    import grpc.aio

PORT: Final = 50_051
HOST: Final = "127.0.0.1"
MESSAGE_BYTES_MAX: Final = 64 << 20
STREAMS_MAX: Final = 256
"""Concurrent calls on one connection; more wait."""

STOP_GRACE_S: Final = 0.5
CUT_S: Final = 0.2
DOOR_SUFFIX: Final = ".door"

_OPTIONS: Final = (
    ("grpc.max_receive_message_length", MESSAGE_BYTES_MAX),
    ("grpc.max_send_message_length", MESSAGE_BYTES_MAX),
    ("grpc.max_concurrent_streams", STREAMS_MAX),
)


class ApiAddress(NamedTuple):
    """The address of the API for other machines."""

    host: str
    port: int

    @property
    def covers_loopback(self) -> bool:
        """Whether it also receives connections to its port on loopback."""
        return self.host in (*EVERYWHERE, HOST)


class Trust(NamedTuple):
    """What authorises callers, and identifies the node to them."""

    token: str
    owner: OwnerId  # of the node
    verify: Verify
    tls: ssl.SSLContext  # identifies the node


@final
class ApiServer:
    """Serves the API on its sockets and on one or two TCP addresses."""

    def __init__(self, home: Home, service: Service, trust: Trust) -> None:
        self.address = ""
        self.far_address = ""  # for other machines, if enabled
        self.socket = socket_path(home)
        self._home = home
        self.port_was_taken = False
        self._rights = Rights(trust.token, trust.owner, trust.verify)
        self._door = TlsDoor(trust.tls, self._rights.trouble)
        self._rights.guests = self._door.guests
        self._own = _server(service, _user, asks_first=False)
        self._guests = _server(service, self._authorise)
        self._standard = [StandardServices(each) for each in (self._own, self._guests)]
        self._ledger = service.audit
        self._calls = CallServer(
            service.calls, calls_socket(self.socket), self._ledger.opened_calls
        )
        self._plain = SocketServer(service.methods, plain_socket(self.socket))
        self._tasks = TaskDoor(service)

    async def start(self, port: int | None, place: ApiAddress | None = None) -> None:
        """Listen; without a port, on the usual one, or any free one if taken."""
        inner = self.socket.with_suffix(DOOR_SUFFIX)
        if self.socket != self._home.socket:  # The home is private already.
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
        self._tasks.open()
        for standard in self._standard:
            await standard.serve()
        await self._door.serve(inner)

    async def stop(self) -> None:
        """Stop; give running calls a short time to finish."""
        for standard in self._standard:
            await standard.leave()
        self._calls.close()
        await self._plain.close()
        await self._tasks.close()
        await self._guests.stop(STOP_GRACE_S)
        await self._own.stop(STOP_GRACE_S)
        self._door.close()
        self.socket.unlink(missing_ok=True)
        self.socket.with_suffix(DOOR_SUFFIX).unlink(missing_ok=True)

    def renew(self, token: str) -> None:
        """Require a new token, and drop clients that used the old one.

        They are dropped after `CUT_S`, so that the caller gets its answer.
        """
        self._rights.renew(token)
        loop = asyncio.get_running_loop()
        loop.call_later(CUT_S, self._door.cut, "token")

    async def _open_far(self, place: ApiAddress) -> int:
        """Open the far address; return its port if it covers loopback, else 0."""
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
    """Return the node's user: only that user can open the socket."""
    del method, context
    return USER


def _server(
    service: Service, authorise: Authorise, *, asks_first: bool = True
) -> grpc.aio.Server:
    """Return a server of all methods that authorises a call before reading it.

    gRPC reads the request before it invokes a handler, except for handlers of request
    streams. Both look the same on the wire, so every handler takes a stream, unless
    whoever can connect may call: a handler of one request costs a third less.
    """
    server = grpc.aio.server(options=_OPTIONS)
    handlers: dict[str, grpc.RpcMethodHandler[Any, Any]] = {}
    for name, method in service.methods.by_name.items():
        is_unary = not (asks_first or method.takes_stream or method.answers_stream)
        make: Any = grpc.stream_stream_rpc_method_handler
        if is_unary:
            make = grpc.unary_unary_rpc_method_handler
        handlers[name] = make(
            (_replying if is_unary else _answering)(method, authorise),
            request_deserializer=method.request.FromString,
            response_serializer=_serialized,
        )
    handler = grpc.method_handlers_generic_handler(SERVICE.full_name, handlers)
    server.add_generic_rpc_handlers((handler,))
    return server


def _answering(
    method: ApiMethod, authorise: Authorise
) -> Callable[[AsyncIterator[Any], Context], AsyncIterator[Message]]:
    async def answer(
        requests: AsyncIterator[Any], context: Context
    ) -> AsyncIterator[Message]:
        try:
            answer_for(authorise(method.name, context))
            asked = requests if method.takes_stream else await _only(requests)
            async with aclosing(method.replies(asked)) as replies:
                async for message in replies:
                    yield message
        except Exception as error:  # noqa: BLE001 - Reported to the client.
            await _abort(context, error)

    return answer


def _replying(
    method: ApiMethod, authorise: Authorise
) -> Callable[[Any, Context], Awaitable[Message]]:
    async def reply(request: Any, context: Context) -> Message:  # noqa: ANN401
        try:
            answer_for(authorise(method.name, context))
            answer: Message = await method.call(request)
        except Exception as error:  # noqa: BLE001 - Reported to the client.
            await _abort(context, error)
        return answer

    return reply


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


@final
class StandardServices:
    """Reflection and health services of one server.

    They reveal only the proto and that the node is serving, so they need no token: a
    tool can describe the service before its user has one.
    """

    def __init__(self, server: grpc.aio.Server) -> None:
        self._health = health.aio.HealthServicer()
        health_pb2_grpc.add_HealthServicer_to_server(self._health, server)
        names = (SERVICE.full_name, health.SERVICE_NAME, reflection.SERVICE_NAME)
        reflection.enable_server_reflection(names, server)

    async def serve(self) -> None:
        """Report the node as serving."""
        for name in ("", SERVICE.full_name):
            await self._health.set(name, health_pb2.HealthCheckResponse.SERVING)

    async def leave(self) -> None:
        """Report the node as not serving, also to open watches."""
        await self._health.enter_graceful_shutdown()
