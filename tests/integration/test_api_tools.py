"""What tools of gRPC, which know nothing of shoal, find out about a node."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2 as asked
from grpc_reflection.v1alpha.reflection_pb2_grpc import ServerReflectionStub
from tests.integration.cli_home import CliHome, homes

pytestmark = pytest.mark.integration


@pytest.fixture
def home(tmp_path: Path) -> Iterator[CliHome]:
    with homes(tmp_path) as make:
        home = make("home")
        home.up("--no-sandbox", "--port", "0")
        yield home


def serialized(message: Any) -> bytes:  # noqa: ANN401 - Of a class made at run time.
    data: bytes = message.SerializeToString()
    return data


def test_a_client_that_has_no_proto_describes_and_calls_the_service(
    home: CliHome,
) -> None:
    with grpc.insecure_channel(home.info["api"]) as channel:
        tool: Any = ServerReflectionStub(channel)
        symbol = "shoal.v1.Shoal"
        request = asked.ServerReflectionRequest(file_containing_symbol=symbol)
        [reply] = tool.ServerReflectionInfo(iter([request]))
        pool: Any = DescriptorPool()
        for data in reply.file_descriptor_response.file_descriptor_proto:
            pool.Add(FileDescriptorProto.FromString(data))
        method = pool.FindServiceByName(symbol).methods_by_name["Info"]
        answer = GetMessageClass(method.output_type)
        token = (home.path / "api.token").read_text().strip()

        call: Any = channel.unary_unary(
            f"/{symbol}/Info",
            request_serializer=serialized,
            response_deserializer=answer.FromString,
        )
        shown = (("authorization", f"Bearer {token}"),)
        info = call(GetMessageClass(method.input_type)(), metadata=shown)

    assert info.pid == home.info["pid"]


def test_health_says_that_a_node_serves(home: CliHome) -> None:
    with grpc.insecure_channel(home.info["api"]) as channel:
        tool: Any = health_pb2_grpc.HealthStub(channel)
        found = tool.Check(health_pb2.HealthCheckRequest(service="shoal.v1.Shoal"))

    assert found.status == health_pb2.HealthCheckResponse.SERVING
