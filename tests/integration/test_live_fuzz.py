"""Bytes that are nearly right at every door of a live node, which lives and serves."""

import contextlib
import json
import socket
import ssl
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest
from tests.integration.calling import client, node
from tests.integration.cli_home import CliHome
from tests.property import mutation
from tests.property.fuzz_targets import FIGURES, FINDS, TARGETS, WEB, seeds_of

from shoal.api.call_frames import MESSAGE, packed
from shoal.api.client.client import connect
from shoal.model.ids import OwnerId
from shoal.net.direct.frames import FrameKind, framed
from shoal.net.identity.certificates import contexts
from shoal.net.identity.identity import Identity
from shoal.net.multiaddr import parse
from shoal.protocol.messages import Grant
from shoal.runtime.home import Home
from shoal.runtime.membership import shoal_membership
from shoal.runtime.membership.shoal_membership import issue

pytestmark = pytest.mark.integration

VISITS = 20
SEED = 13
ANSWER_S = 0.003
HTTP2 = (
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0" + b"\0\0\5\1\5\0\0\0\1abcde"
)
TALKER = """
import os, random, socket
draw = random.Random(13)
for _ in range(20):
    line = socket.socket(socket.AF_UNIX)
    line.connect(os.environ["SHOAL_SOCKET"])
    for seed in SEEDS:
        data = bytearray(seed)
        data[draw.randrange(len(data))] = draw.randrange(256)
        try:
            line.sendall(bytes(data) + b"\\n" + draw.randbytes(50))
        except OSError:
            break  # The node has heard enough, and hung up.
    line.close()
print("said")
"""

Dial = Callable[[], socket.socket]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CliHome]:
    with node(tmp_path_factory.mktemp("home"), "--api", "127.0.0.1:0") as made:
        yield made


def visit(dial: Dial, data: bytes) -> None:
    """Say something, and listen for a moment."""
    with contextlib.suppress(OSError), dial() as line:
        line.sendall(data)
        line.settimeout(ANSWER_S)
        line.recv(65_536)


def bombard(dial: Dial, seeds: Sequence[bytes]) -> None:
    draw = Random(SEED)
    visit(dial, seeds[-1])
    for _ in range(VISITS):
        visit(dial, mutation.bytewise(draw, seeds))


def tcp(address: str) -> Dial:
    host, _, port = address.rpartition(":")
    return lambda: socket.create_connection((host, int(port)))


def unix(path: Path) -> Dial:
    def dial() -> socket.socket:
        line = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        line.connect(str(path))
        return line

    return dial


def by_tls(dial: Dial, context: ssl.SSLContext) -> Dial:
    return lambda: context.wrap_socket(dial(), server_hostname="shoal")


def member_of(home: CliHome) -> tuple[Identity, Grant]:
    """Return somebody of another owner whom the shoal has let in."""
    place = Home(home.path)
    belongs = shoal_membership.load(place)
    assert belongs is not None
    own = Identity.generate()
    grant = Grant(
        node=own.node,
        shoal=belongs.shoal,
        roles=("scheduler", "worker"),
        owner=OwnerId("mallory"),
        top_priority=10,
        expires_wall_s=4e9,
    )
    return own, issue(Identity.load(place.root_key), grant)


def doors(home: CliHome) -> Iterator[tuple[Dial, Sequence[bytes]]]:
    """Return every door of a node, with what it expects to hear."""
    info = home.info
    place = parse(info["addresses"][0])
    direct = tcp(f"{place.host}:{place.port}")
    own, grant = member_of(home)
    hello = framed(FrameKind.MESSAGES, b"")
    links = [hello + seed for seed in seeds_of(TARGETS["link"])]
    calls = [packed(MESSAGE, s) for s in seeds_of(TARGETS["calls"])]
    plain = [*seeds_of(TARGETS["plain request"]), FINDS["plain request"]()]
    asked = [packed(MESSAGE, s) for s in plain]
    yield direct, [b"\x16\3\1\0\5\1\0\0\1\3\3", *links[:3]]
    yield by_tls(direct, contexts(own, None).dialling), links
    yield by_tls(direct, contexts(own, grant).dialling), links
    yield tcp(info["api"]), [HTTP2]
    yield by_tls(tcp(info["api"]), contexts(own, grant).dialling), [HTTP2]
    yield unix(home.path / "node.sock"), [HTTP2]
    yield unix(home.path / "node.calls"), calls
    yield unix(home.path / "node.plain"), asked
    yield tcp(web_of()), WEB


def web_of() -> str:
    with connect() as found:
        return str(found.info().web_address)


def test_a_node_lives_through_nonsense_at_every_door(home: CliHome) -> None:
    before = home.info["pid"]

    for dial, seeds in doors(home):
        bombard(dial, seeds)

    assert home.info["pid"] == before
    with client() as caller:
        talker = TALKER.replace("SEEDS", repr(FIGURES))
        spec: dict[str, Any] = {"command": ["python3", "-c", talker]}
        job = caller.submit(json.loads(json.dumps(spec)))
        job.wait()
        assert job.state == "done", job.reason
        assert b"".join(job.logs()) == b"said\n"
    assert "Traceback" not in (home.path / "node.log").read_text()
