"""A token is shown to nobody but the node that it is for: anybody may have its port."""

import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from shoal.api import node_file
from shoal.api.client import client as api
from shoal.api.sockets import check_peer
from shoal.errors import NotAllowedError, ShoalError, UsageError
from shoal.runtime.home import Home

SECRET = "s3cret"
TOKEN = f"{SECRET}.cHJpbnQ"
SETTINGS = b"\0\0\0\x04\0\0\0\0\0"
"""With which HTTP/2 begins: a client of gRPC goes on then."""


class Squatter:
    """Another program that has the port of a node, and keeps what it is told."""

    def __init__(self) -> None:
        self.heard = bytearray()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"localhost:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        while True:
            try:
                line, _ = self._listener.accept()
            except OSError:
                return
            with line:
                line.settimeout(0.2)
                line.sendall(SETTINGS)
                with suppress(OSError):
                    while data := line.recv(1 << 16):
                        self.heard += data

    def close(self) -> None:
        self._listener.close()


@pytest.fixture
def squatter() -> Iterator[Squatter]:
    found = Squatter()
    yield found
    found.close()


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    monkeypatch.delenv("SHOAL_TOKEN", raising=False)
    monkeypatch.delenv("SHOAL_TOKEN_FILE", raising=False)
    home = Home(tmp_path / "home")
    home.path.mkdir()
    node_file.token_file(home).write_text(f"{TOKEN}\n")
    return home


@pytest.mark.parametrize("token", [None, TOKEN, SECRET])
def test_whoever_has_the_port_of_a_node_does_not_get_its_token(
    squatter: Squatter, home: Home, token: str | None
) -> None:
    with (
        pytest.raises(ShoalError),
        api.connect(squatter.address, home, token) as client,
    ):
        client.info()

    assert SECRET.encode() not in squatter.heard


def test_a_token_comes_from_a_file_too(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "token").write_text(f"{TOKEN}\n")
    monkeypatch.setenv("SHOAL_TOKEN_FILE", str(tmp_path / "token"))
    assert api.token_given() == TOKEN

    monkeypatch.setenv("SHOAL_TOKEN_FILE", str(tmp_path / "none"))
    with pytest.raises(UsageError, match="cannot read"):
        api.token_given()


def test_a_socket_of_another_user_is_not_talked_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "node.plain"
    with socket.socket(socket.AF_UNIX) as listener, socket.socket(socket.AF_UNIX) as us:
        listener.bind(str(path))
        listener.listen()
        us.connect(str(path))
        check_peer(us, path)

        told = us.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
        other = told[:4] + (4711).to_bytes(4, "little") + told[8:]
        monkeypatch.setattr(socket.socket, "getsockopt", lambda *_: other)
        with pytest.raises(NotAllowedError, match="4711"):
            check_peer(us, path)
