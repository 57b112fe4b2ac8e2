"""Notebooks in tasks: a small program in Jupyter's place, and in the soak Jupyter."""

import base64
import json
import os
import re
import signal
import socket
import struct
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.integration.cli_home import CliHome
from tests.integration.test_interactive import UP, Terminal
from tests.integration.wheels import index_of, make_wheel

FAKE = """
import http.server, pathlib, sys, threading

TOKEN = "cafe" * 8


class Jupyter(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.answer(b"a notebook")

    def do_POST(self):
        mine = self.headers["Authorization"] == f"token {TOKEN}"
        if mine and self.path == "/api/shutdown":
            pathlib.Path("seen.ipynb").write_text("{}")
            self.answer(b"{}")
            threading.Thread(target=server.shutdown).start()

    def answer(self, body):
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


server = http.server.ThreadingHTTPServer(("127.0.0.1", 8888), Jupyter)
print(f"    http://127.0.0.1:8888/lab?token={TOKEN}", file=sys.stderr, flush=True)
server.serve_forever()
"""
"""Listens, says where, and ends as JupyterLab does; `python -m jupyterlab` runs it."""


@pytest.fixture
def home(tmp_path: Path) -> Iterator[CliHome]:
    made = CliHome(tmp_path / "home")
    try:
        yield made
    finally:
        made.close()


@pytest.mark.integration
def test_ctrl_c_stops_a_notebook_and_brings_what_was_saved(
    home: CliHome,
    tmp_path_factory: pytest.TempPathFactory,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    index = tmp_path_factory.mktemp("index")
    index.chmod(0o755)
    index.parent.chmod(0o755)
    make_wheel(index, "jupyterlab", "4.0", FAKE)
    home.env.update(index_of(index))
    home.up(*UP)
    monkeypatch.chdir(tmp_path)

    screen = Terminal(home, "notebook", "--port", "8994")
    screen.expect("http://127.0.0.1:8994/lab?token=" + "cafe" * 8)
    with urllib.request.urlopen("http://127.0.0.1:8994/lab", timeout=20) as page:
        seen = page.read()
    os.kill(screen.pid, signal.SIGINT)
    screen.expect("was stopped")
    screen.expect("outputs  ")

    assert screen.end() == 0
    assert seen == b"a notebook"
    assert [each.name for each in tmp_path.glob("out/*/*")] == ["seen.ipynb"]

    waits = Terminal(home, "notebook", "--cpus", "999")
    waits.expect("submitted")
    os.kill(waits.pid, signal.SIGINT)
    waits.expect("was cancelled before the notebook was up")
    assert waits.end() == 103
    assert home.json("show", "last")["job"]["reason"] == "Ctrl-C in shoal notebook"
    assert home("notebook", "last", "--gpus", "1").code == 2
    assert home("notebook", "--stop").code == 2


# With Jupyter itself.


class Socket:
    """A WebSocket, as a browser has it."""

    def __init__(self, port: int, path: str) -> None:
        self._line = socket.create_connection(("127.0.0.1", port), 30.0)
        key = base64.b64encode(os.urandom(16)).decode()
        self._line.sendall(
            f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nUpgrade: websocket\r\n"
            f"Origin: http://127.0.0.1:{port}\r\nConnection: Upgrade\r\n"
            f"Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n\r\n".encode()
        )
        self._file = self._line.makefile("rb")
        assert b"101" in self._file.readline()
        while self._file.readline().strip():
            pass

    def say(self, document: dict[str, Any]) -> None:
        body = json.dumps(document).encode()
        head = struct.pack("!BBH", 0x81, 0x80 | 126, len(body))
        self._line.sendall(head + b"\0" * 4 + body)

    def hear(self) -> dict[str, Any]:
        _, size = struct.unpack("!BB", self._file.read(2))
        if size == 126:
            [size] = struct.unpack("!H", self._file.read(2))
        elif size == 127:
            [size] = struct.unpack("!Q", self._file.read(8))
        found: dict[str, Any] = json.loads(self._file.read(size))
        return found

    def close(self) -> None:
        self._file.close()
        self._line.close()


def _ask(url: str, method: str, document: dict[str, Any]) -> dict[str, Any]:
    request = urllib.request.Request(
        url, method=method, data=json.dumps(document).encode()
    )
    with urllib.request.urlopen(request, timeout=30.0) as answer:
        found: dict[str, Any] = json.load(answer)
    return found


@pytest.mark.soak
def test_a_cell_runs_in_jupyterlab_and_its_notebook_comes_back(
    home: CliHome, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    try:
        socket.create_connection(("pypi.org", 443), 5.0).close()
    except OSError as error:
        pytest.skip(f"JupyterLab comes from PyPI, which is out of reach: {error}")
    ours = ("UV_", "SSL_CERT_")  # How this machine reaches PyPI.
    home.env.update({k: v for k, v in os.environ.items() if k.startswith(ours)})
    home.up(*UP)
    monkeypatch.chdir(tmp_path)
    job = home.ok("notebook", "--detach").strip()
    screen = Terminal(home, "notebook", job, "--port", "8995")
    screen.expect("open this")
    logs = home("logs", job)
    found = re.search(r"token=(\w+)", logs.out + logs.err)
    assert found is not None
    query, at = f"?token={found[1]}", "http://127.0.0.1:8995/api"
    empty = {"cells": [], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}

    book = {"type": "notebook", "content": empty}
    _ask(f"{at}/contents/mine.ipynb{query}", "PUT", book)
    kernel = _ask(f"{at}/kernels{query}", "POST", {"name": "python3"})["id"]
    line = Socket(8995, f"/api/kernels/{kernel}/channels{query}")
    header = {"msg_id": "1", "session": "s", "username": "", "version": "5.3"}
    line.say(
        {
            "header": {**header, "msg_type": "execute_request"},
            "parent_header": {},
            "metadata": {},
            "content": {"code": "print(6 * 7)", "silent": False},
            "channel": "shell",
        }
    )
    texts: list[str] = []
    until = time.monotonic() + 60.0
    while "42\n" not in texts:
        assert time.monotonic() < until
        texts.append(line.hear()["content"].get("text", ""))
    line.close()
    os.kill(screen.pid, signal.SIGINT)
    screen.expect("goes on in job")
    home.ok("notebook", job, "--stop")

    assert [each.name for each in tmp_path.glob("out/*/*.ipynb")] == ["mine.ipynb"]
