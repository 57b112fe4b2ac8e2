"""Serves the API of a node: on a unix socket, on loopback, and behind a door.

Whoever can open the socket is the node's user. On the port anybody of this machine
could call, so each call there shows the token of the node. Other machines come through
the door, which is there only if the user says so, with the token or a certificate.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final, NamedTuple, NoReturn, final

import grpc
import grpc.aio

from shoal.api import shoal_pb2 as pb
from shoal.api.call_frames import calls_socket
from shoal.api.calls import CallsDoor
from shoal.api.credentials import EVERYWHERE
from shoal.api.failures import shown_of
from shoal.api.grpc_failures import packed
from shoal.api.methods import snake
from shoal.api.plain import plain_socket
from shoal.api.plain_door import PlainDoor
from shoal.api.rights import Rights
from shoal.api.sockets import own_folder, private
from shoal.api.standard import StandardServices
from shoal.api.whereabouts import socket_path
from shoal.errors import ShoalError

if TYPE_CHECKING:
    from pathlib import Path

    from google.protobuf.message import Message

    from shoal.api.door import Door, Guest
    from shoal.api.rights import Admit
    from shoal.api.service import Service
    from shoal.runtime.home import Home

    Context = grpc.aio.ServicerContext[Any, Any]

PORT: Final = 50_051
HOST: Final = "127.0.0.1"
MESSAGE_BYTES_MAX: Final = 64 << 20
STOP_GRACE_S: Final = 0.5

_OPTIONS: Final = (
    ("grpc.so_reuseport", 0),  # Or two nodes would share a port without noticing.
    ("grpc.max_receive_message_length", MESSAGE_BYTES_MAX),
    ("grpc.max_send_message_length", MESSAGE_BYTES_MAX),
)


class DoorPlace(NamedTuple):
    """A door, and where it is to be."""

    door: Door
    host: str
    port: int

    @property
    def covers_loopback(self) -> bool:
        """Whether it also gets what is sent to its port on loopback."""
        return self.host in (*EVERYWHERE, HOST)


@final
class ApiServer:
    """Listens in up to three places; the addresses say which ports it got."""

    def __init__(self, home: Home, service: Service, token: str, admit: Admit) -> None:
        self.address = ""
        self.far_address = ""  # Of the door, if there is one.
        self.socket = socket_path(home)
        self._home = home
        self.port_was_taken = False
        self._guests: dict[int, Guest] = {}
        self._rights = Rights(token, admit, self._guests)
        self._door: Door | None = None
        self._server = grpc.aio.server(options=_OPTIONS)
        self._server.add_generic_rpc_handlers((self._handlers(service),))
        self._standard = StandardServices(self._server)
        self._calls = CallsDoor(service.calls, calls_socket(self.socket))
        self._plain = PlainDoor(service.methods, plain_socket(self.socket))

    async def start(self, port: int | None, place: DoorPlace | None = None) -> None:
        """Listen; without a port on the usual one, or on any other if it is taken."""
        self._open_socket(self.socket)
        shared = await self._open_door(place) if place is not None else 0
        if shared and port in (shared, None):
            inner = self._listen(0)  # The door passes on what is said on loopback.
            self.address = f"{HOST}:{shared}"
        else:
            inner = self._listen_inside(port)
            self.address = f"{HOST}:{inner}"
        await self._server.start()
        self.socket.chmod(0o600)
        await self._calls.open()
        await self._plain.open()
        await self._standard.serve()
        if self._door is not None:
            await self._door.serve(inner)

    async def stop(self) -> None:
        """Let calls under way end, briefly, and close."""
        await self._standard.leave()
        self._calls.close()
        await self._plain.close()
        await self._server.stop(STOP_GRACE_S)
        if self._door is not None:
            self._door.close()
        self.socket.unlink(missing_ok=True)

    async def _open_door(self, place: DoorPlace) -> int:
        """Return the port that the door has on loopback too; 0 if it has none there."""
        self._door = place.door
        self._door.guests = self._guests
        port = await place.door.open(place.host, place.port)
        host = f"[{place.host}]" if ":" in place.host else place.host
        self.far_address = f"{host}:{port}"
        return port if place.covers_loopback else 0

    def _listen_inside(self, port: int | None) -> int:
        try:
            return self._listen(PORT if port is None else port)
        except ShoalError:
            if port is not None:
                raise
            self.port_was_taken = True
            return self._listen(0)

    def _open_socket(self, path: Path) -> None:
        if path != self._home.socket:  # Nobody else makes our home.
            own_folder(path.parent)
        with private(path):
            self._server.add_insecure_port(f"unix:{path}")

    def _listen(self, port: int) -> int:
        try:
            return self._server.add_insecure_port(f"{HOST}:{port}")
        except RuntimeError as error:
            raise ShoalError(
                f"cannot listen on {HOST}:{port}",
                because="another program has the port, or it is not allowed",
                hint="--port 0 takes any port that is free",
            ) from error

    def _handlers(self, service: Service) -> grpc.GenericRpcHandler:
        described = pb.DESCRIPTOR.services_by_name["Shoal"]
        handlers: dict[str, grpc.RpcMethodHandler[Any, Any]] = {}
        for method in described.methods:
            call = getattr(service, f"on_{snake(method.name)}")
            make = grpc.unary_unary_rpc_method_handler
            wrapped: Any = self._answering(method.name, call)
            if method.server_streaming:
                make = grpc.unary_stream_rpc_method_handler
                wrapped = self._streaming(method.name, call)
            if method.client_streaming:
                make = grpc.stream_unary_rpc_method_handler
                if method.server_streaming:
                    make = grpc.stream_stream_rpc_method_handler
            handlers[method.name] = make(
                wrapped,
                request_deserializer=getattr(pb, method.input_type.name).FromString,
                response_serializer=_serialized,
            )
        return grpc.method_handlers_generic_handler(described.full_name, handlers)

    def _answering(
        self, method: str, call: Callable[[Any], Awaitable[Message]]
    ) -> Callable[[Any, Context], Awaitable[Message]]:
        async def answer(request: Message, context: Context) -> Message:
            try:
                self._authorise(method, context)
                return await call(request)
            except Exception as error:  # noqa: BLE001 - A client gets an answer.
                await _abort(context, error)

        return answer

    def _streaming(
        self, method: str, call: Callable[[Any], AsyncIterator[Message]]
    ) -> Callable[[Any, Context], AsyncIterator[Message]]:
        async def answer(request: Message, context: Context) -> AsyncIterator[Message]:
            try:
                self._authorise(method, context)
                async for message in call(request):
                    yield message
            except Exception as error:  # noqa: BLE001 - A client gets an answer.
                await _abort(context, error)

        return answer

    def _authorise(self, method: str, context: Context) -> None:
        shown = dict(context.invocation_metadata() or ()).get("authorization", "")
        told = shown if isinstance(shown, str) else ""
        self._rights.check(method, context.peer(), told)


async def _abort(context: Context, error: Exception) -> NoReturn:
    if isinstance(error, grpc.aio.AbortError):
        raise error
    code, text, details = packed(*shown_of(error))
    await context.abort(code, text, details)


def _serialized(message: Message) -> bytes:
    return message.SerializeToString()
