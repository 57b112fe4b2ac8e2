"""The page and the figures of a node for other machines: by TLS, and for the token.

0.0.0.0 is no loopback, whoever connects.
"""

import http.client
import json
import socket
import ssl
from collections.abc import Iterator
from hashlib import sha256

import pytest
from tests.integration.cli_home import CliHome, homes

pytestmark = pytest.mark.integration


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        port: int = found.getsockname()[1]
        return port


class Node:
    """A node with both pages open to other machines."""

    def __init__(self, home: CliHome) -> None:
        self.home = home
        self.web, self.metrics = free_port(), free_port()
        where = ("--web", f"0.0.0.0:{self.web}", "--metrics", f"0.0.0.0:{self.metrics}")
        args = ("--background", "--no-sandbox", "--port", "0", *where)
        self.said = home("up", *args).err

    @property
    def token(self) -> str:
        return self.home.ok("token", "show").strip()

    def ask(
        self, port: int, path: str, token: str = "", **headers: str
    ) -> tuple[int, bytes]:
        """Ask as a program that has a copy of the certificate."""
        tls = ssl.create_default_context(cafile=self.home.path / "web.crt")
        tls.check_hostname = False  # Of the name `shoal`, which nobody resolves.
        line = http.client.HTTPSConnection("127.0.0.1", port, context=tls, timeout=5)
        if token:
            headers["Authorization"] = f"Bearer {token}"
        line.request("GET", path, headers=headers)
        answer = line.getresponse()
        found = answer.status, answer.read()
        line.close()
        return found


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    with homes(tmp_path_factory.mktemp("pages")) as make:
        yield Node(make("home"))


@pytest.mark.parametrize("place", ["web", "metrics"])
def test_nothing_is_said_in_plain_text_off_loopback(node: Node, place: str) -> None:
    port = getattr(node, place)
    with socket.create_connection(("127.0.0.1", port), timeout=5) as line:
        line.sendall(b"GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        answer = line.recv(1 << 16)

    assert answer.startswith(b"HTTP/1.1 400"), answer
    assert b"TLS" in answer


def test_the_page_asks_for_the_token_and_knows_its_own_origin(node: Node) -> None:
    token, own = node.token, f"127.0.0.1:{node.web}"

    assert node.ask(node.web, "/")[0] == 200
    assert node.ask(node.web, "/api/info")[0] == 401
    assert node.ask(node.web, "/api/info", token)[0] == 200
    assert node.ask(node.web, "/api/info", token, Origin=f"https://{own}")[0] == 200
    assert node.ask(node.web, "/api/info", token, Origin=f"http://{own}")[0] == 403
    assert node.ask(node.web, "/api/info", token, Host="evil.example")[0] == 421


def test_figures_are_for_the_token(node: Node) -> None:
    assert node.ask(node.metrics, "/metrics")[0] == 401
    assert node.ask(node.metrics, "/metrics", "guessed")[0] == 401
    status, text = node.ask(node.metrics, "/metrics", node.token)
    assert status == 200
    assert b"shoal_jobs" in text or b"shoal_node_info" in text


def test_a_person_can_compare_the_certificate(node: Node) -> None:
    pem = ssl.get_server_certificate(("127.0.0.1", node.web))
    found = sha256(ssl.PEM_cert_to_DER_cert(pem)).digest().hex(":").upper()

    assert found in node.said
    assert f"https://0.0.0.0:{node.web}" in node.said
    url = json.loads(node.home.ok("web", "--json"))["url"]
    assert url.startswith(f"https://127.0.0.1:{node.web}/")


def test_a_new_token_closes_the_page_to_the_old_one(node: Node) -> None:
    old = node.token
    node.home.ok("token", "rotate")

    assert node.ask(node.web, "/api/info", old)[0] == 401
    assert node.ask(node.metrics, "/metrics", old)[0] == 401
    assert node.ask(node.web, "/api/info", node.token)[0] == 200
