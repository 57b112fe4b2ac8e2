"""Serves the API of a node: on a unix socket, and on a port of the loopback interface.

Whoever can open the socket is the node's user. On the port anybody of this machine
could call, so each call there shows the token of the node.
"""

from __future__ import annotations

import hmac
import os
import re
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final, NoReturn, final

import grpc
import grpc.aio

from shoal.api import shoal_pb2 as pb
from shoal.api.call_frames import calls_socket
from shoal.api.calls import CallsDoor
from shoal.api.failures import packed
from shoal.api.standard import StandardServices
from shoal.api.whereabouts import socket_path
from shoal.errors import NotAllowedError, ShoalError

if TYPE_CHECKING:
    from pathlib import Path

    from google.protobuf.message import Message

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


@final
class ApiServer:
    """Listens in two places; `address` says which port it got."""

    def __init__(self, home: Home, service: Service, token: str) -> None:
        self.address = ""
        self.socket = socket_path(home)
        self.port_was_taken = False
        self._token = token
        self._server = grpc.aio.server(options=_OPTIONS)
        self._server.add_generic_rpc_handlers((self._handlers(service),))
        self._standard = StandardServices(self._server)
        self._calls = CallsDoor(service.calls, calls_socket(self.socket))

    async def start(self, port: int | None) -> None:
        """Listen; without a port on the usual one, or on any other if it is taken."""
        self._open_socket(self.socket)
        try:
            bound = self._listen(PORT if port is None else port)
        except ShoalError:
            if port is not None:
                raise
            self.port_was_taken = True
            bound = self._listen(0)
        self.address = f"{HOST}:{bound}"
        await self._server.start()
        self.socket.chmod(0o600)
        await self._calls.open()
        await self._standard.serve()

    async def stop(self) -> None:
        """Let calls under way end, briefly, and close."""
        await self._standard.leave()
        self._calls.close()
        await self._server.stop(STOP_GRACE_S)
        self.socket.unlink(missing_ok=True)

    def _open_socket(self, path: Path) -> None:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.unlink(missing_ok=True)  # The journal is ours, so nobody listens there.
        before = os.umask(0o177)
        try:
            self._server.add_insecure_port(f"unix:{path}")
        finally:
            os.umask(before)

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
            wrapped: Any = self._answering(call)
            if method.server_streaming:
                make = grpc.unary_stream_rpc_method_handler
                wrapped = self._streaming(call)
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
        self, call: Callable[[Any], Awaitable[Message]]
    ) -> Callable[[Any, Context], Awaitable[Message]]:
        async def answer(request: Message, context: Context) -> Message:
            try:
                self._authorise(context)
                return await call(request)
            except Exception as error:  # noqa: BLE001 - A client gets an answer.
                await _abort(context, error)

        return answer

    def _streaming(
        self, call: Callable[[Any], AsyncIterator[Message]]
    ) -> Callable[[Any, Context], AsyncIterator[Message]]:
        async def answer(request: Message, context: Context) -> AsyncIterator[Message]:
            try:
                self._authorise(context)
                async for message in call(request):
                    yield message
            except Exception as error:  # noqa: BLE001 - A client gets an answer.
                await _abort(context, error)

        return answer

    def _authorise(self, context: Context) -> None:
        if context.peer().startswith("unix"):
            return
        shown = dict(context.invocation_metadata() or ()).get("authorization", "")
        told = shown if isinstance(shown, str) else ""
        if not hmac.compare_digest(told.encode(), f"Bearer {self._token}".encode()):
            raise NotAllowedError(
                "the node does not know this client",
                because="calls over the network must show the token of the node",
                hint="set SHOAL_TOKEN to what is in api.token of the node's home",
            )


async def _abort(context: Context, error: Exception) -> NoReturn:
    if isinstance(error, grpc.aio.AbortError):
        raise error
    if isinstance(error, ShoalError):
        code, text, details = packed(error)
    else:
        traceback.print_exception(error)  # Into the node's log.
        bug = ShoalError(
            "the node failed",
            because=f"{type(error).__name__}: {error}",
            hint="this is a bug: the node's log has the details",
        )
        code, text, details = packed(bug, "error")
    await context.abort(code, text, details)


def _serialized(message: Message) -> bytes:
    return message.SerializeToString()


def snake(name: str) -> str:
    """Return the name of a call as the methods that answer it have it."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()
