"""The services that gRPC tools expect of any server: reflection and health.

They tell what is in the proto and that the node serves, which is no secret, so they ask
for no token: a tool can describe the service before its user has looked for one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from shoal.api import shoal_pb2 as pb

if TYPE_CHECKING:
    import grpc.aio

SERVICE = pb.DESCRIPTOR.services_by_name["Shoal"].full_name


@final
class StandardServices:
    """Reflection and health of one server."""

    def __init__(self, server: grpc.aio.Server) -> None:
        self._health = health.aio.HealthServicer()
        health_pb2_grpc.add_HealthServicer_to_server(self._health, server)
        names = (SERVICE, health.SERVICE_NAME, reflection.SERVICE_NAME)
        reflection.enable_server_reflection(names, server)

    async def serve(self) -> None:
        """Say that the node serves."""
        for name in ("", SERVICE):
            await self._health.set(name, health_pb2.HealthCheckResponse.SERVING)

    async def leave(self) -> None:
        """Say that it serves no more, to whoever watches."""
        await self._health.enter_graceful_shutdown()
