"""Whoever has no right to call costs a node little, and keeps nobody else out."""

import contextlib
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from threading import Thread
from typing import Any

import grpc
import pytest
from tests.integration.cli_home import CliHome, homes
from tests.integration.live_shoal import promised

from shoal.api import shoal_pb2 as pb
from shoal.api.server.tls_door import REFUSALS_MAX
from shoal.net.direct.connection_limits import WAITING_PER_ADDRESS_MAX

pytestmark = pytest.mark.integration

MIB = 1 << 20
LARGE = 24 * MIB
IDLE = 300
ANSWERED_S = 1.0


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CliHome]:
    with homes(tmp_path_factory.mktemp("strangers")) as make:
        home = make("home")
        home.up("--no-sandbox", "--port", "0")
        yield home


def place(home: CliHome) -> tuple[str, int]:
    host, _, port = home.info["api"].rpartition(":")
    return host, int(port)


def memory_bytes(home: CliHome) -> int:
    status = Path(f"/proc/{home.info['pid']}/status").read_text()
    [line] = [each for each in status.splitlines() if each.startswith("VmRSS")]
    return int(line.split()[1]) << 10


def call(home: CliHome, method: str, data: bytes, token: str = "") -> Any:  # noqa: ANN401
    """Call on a connection of its own; return the code, or the answer."""
    options = [
        ("grpc.max_send_message_length", -1),
        ("grpc.use_local_subchannel_pool", 1),
    ]
    with grpc.insecure_channel(home.info["api"], options) as channel:
        metadata = (("authorization", f"Bearer {token}"),) if token else ()
        try:
            asked: Any = channel.unary_unary(method)
            return asked(data, metadata=metadata, timeout=60)
        except grpc.RpcError as error:
            return error.code()


@pytest.mark.parametrize(
    "method", ["/shoal.v1.Shoal/Submit", "/grpc.health.v1.Health/Check"]
)
def test_what_strangers_send_is_not_read(home: CliHome, method: str) -> None:
    before = most = memory_bytes(home)
    data = b"\0" * LARGE
    strangers = [Thread(target=call, args=(home, method, data)) for _ in range(12)]
    for each in strangers:
        each.start()
    for each in strangers:
        while each.is_alive():
            each.join(0.05)
            most = max(most, memory_bytes(home))

    assert most - before < 64 * MIB, f"{(most - before) // MIB} MiB"


@contextlib.contextmanager
def idle(
    home: CliHome, count: int, first: bytes = b""
) -> Iterator[list[socket.socket]]:
    with contextlib.ExitStack() as stack:
        opened: list[socket.socket] = []
        for _ in range(count):
            one = stack.enter_context(socket.create_connection(place(home)))
            with contextlib.suppress(OSError):
                one.sendall(first)
            opened.append(one)
        yield opened


@pytest.mark.parametrize(
    "first", [b"", b"P", b"\x16\x03", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"]
)
def test_idle_connections_keep_nobody_out(home: CliHome, first: bytes) -> None:
    token = (home.path / "api.token").read_text().strip()

    def answered() -> float:
        began = time.monotonic()
        answer = call(home, "/shoal.v1.Shoal/Info", b"", token)
        took_s = time.monotonic() - began
        assert pb.NodeInfo.FromString(answer).pid == home.info["pid"]
        return took_s

    with idle(home, IDLE, first):
        promised(answered, ANSWERED_S)
        fds = len(list(Path(f"/proc/{home.info['pid']}/fd").iterdir()))
        assert fds < 4 * WAITING_PER_ADDRESS_MAX


def test_a_stranger_that_goes_on_asking_is_sent_away(home: CliHome) -> None:
    with grpc.insecure_channel(home.info["api"]) as channel:
        info: Any = channel.unary_unary("/shoal.v1.Shoal/Info")
        codes = set[grpc.StatusCode]()
        for _ in range(2 * REFUSALS_MAX):
            with pytest.raises(grpc.RpcError) as caught:
                info(b"", timeout=60)
            codes.add(caught.value.code())

    assert codes == {grpc.StatusCode.PERMISSION_DENIED, grpc.StatusCode.UNAVAILABLE}


def test_the_socket_behind_the_door_is_for_the_node_only(home: CliHome) -> None:
    inner = home.path / "node.door"
    assert inner.stat().st_mode & 0o777 == 0o600

    with grpc.insecure_channel(f"unix:{inner}") as channel:
        info: Any = channel.unary_unary("/shoal.v1.Shoal/Info")
        with pytest.raises(grpc.RpcError, match="does not know this client"):
            info(b"", timeout=60)
