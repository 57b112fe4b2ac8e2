"""Standard gRPC services: reflection and health.

They reveal only the proto and that the node is serving, so they need no token: a tool
can describe the service before its user has one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from shoal.api.methods import SERVICE

if TYPE_CHECKING:
    import grpc.aio

NAME: Final = SERVICE.full_name


@final
class StandardServices:
    """Reflection and health services of one server."""

    def __init__(self, server: grpc.aio.Server) -> None:
        self._health = health.aio.HealthServicer()
        health_pb2_grpc.add_HealthServicer_to_server(self._health, server)
        names = (NAME, health.SERVICE_NAME, reflection.SERVICE_NAME)
        reflection.enable_server_reflection(names, server)

    async def serve(self) -> None:
        """Report the node as serving."""
        for name in ("", NAME):
            await self._health.set(name, health_pb2.HealthCheckResponse.SERVING)

    async def leave(self) -> None:
        """Report the node as not serving, also to open watches."""
        await self._health.enter_graceful_shutdown()
