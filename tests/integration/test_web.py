"""The page of a live node: what it tells, as it happens, and what can be done there."""

import http.client
import json
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
from tests.integration.cli_home import CliHome, homes

pytestmark = pytest.mark.integration

PATIENCE_S = 30.0
IDLE_S = 3.0
IDLE_SHARE_MAX = 0.1


@pytest.fixture
def home(tmp_path: Path) -> Iterator[CliHome]:
    with homes(tmp_path) as make:
        home = make("home")
        home.up("--port", "0", "--without", "p2p")
        yield home


class Page:
    """What a browser does with the address that `shoal web` prints."""

    def __init__(self, home: CliHome) -> None:
        told = home.json("web")
        self.address = str(told["address"])
        self.token = str(told["url"]).partition("#token=")[2]

    def ask(
        self, path: str, body: object = None, **headers: str
    ) -> tuple[int, dict[str, Any]]:
        """Get something, or post it if there is a body."""
        with self._asked(path, body, headers) as answer:
            return answer.status, json.loads(answer.read())

    def stream(self, path: str) -> Iterator[tuple[str, Any]]:
        """Return events of a stream."""
        with self._asked(path, None, {}) as answer:
            assert answer.headers["Content-Type"] == "text/event-stream"
            name = ""
            for line in answer:
                key, _, value = line.decode().rstrip("\n").partition(": ")
                if key == "event":
                    name = value
                elif key == "data":
                    yield name, json.loads(value)

    @contextmanager
    def _asked(
        self, path: str, body: object, headers: dict[str, str]
    ) -> Iterator[http.client.HTTPResponse]:
        call = http.client.HTTPConnection(self.address, timeout=PATIENCE_S)
        shown = {"Authorization": f"Bearer {self.token}", **headers}
        if body is None:
            call.request("GET", path, headers=shown)
        else:
            shown.setdefault("Content-Type", "application/json")
            call.request("POST", path, json.dumps(body), shown)
        try:
            yield call.getresponse()
        finally:
            call.close()


SCRIPT = (
    "echo begun; for n in 3 2 1; do "
    """python3 -c "import shoal; shoal.log({'loss': $n.0}, step=4-$n)"; sleep 0.5; """
    "done; sleep 600"
)


def test_a_job_is_submitted_watched_and_cancelled(home: CliHome) -> None:
    page = Page(home)
    spec = json.dumps({"name": "<i>x</i>", "command": ["sh", "-c", SCRIPT]})

    code, reply = page.ask("/api/jobs", {"spec": spec, "job_id": "web1"})
    assert code == 200
    assert reply["job"]["name"] == "<i>x</i>"

    seen: dict[str, list[Any]] = {}
    ended: dict[str, Any] = {}
    for name, document in page.stream("/api/stream?job=web1"):
        seen.setdefault(name, []).append(document)
        if name == "curves" and document["web1.main.0"]["loss"][-1][2] == 1.0:
            _, ended = page.ask("/api/jobs/web1/cancel", {"reason": "seen enough"})
        if name == "job" and document["job"]["state"] == "cancelled":
            break

    states = [document["job"]["state"] for document in seen["job"]]
    points = [point for told in seen["curves"] for point in told["web1.main.0"]["loss"]]
    events = [event["what"] for told in seen["happened"] for event in told]
    assert states[-1] == "cancelled"
    assert "running" in states
    assert [(step, value) for _, step, value in points] == [(1, 3), (2, 2), (3, 1)]
    assert events[:2] == ["submitted", "assigned"]
    written = [each for piece in seen["output"] for each in piece["pieces"]]
    assert "".join(text for _, text in written).startswith("begun\n")
    assert all(abs(at_s - time.time()) < PATIENCE_S for at_s, _ in written)
    assert ended["job"]["reason"] == "seen enough"
    assert home.json("show", "web1")["job"]["state"] == "cancelled"


def test_the_page_tells_what_the_command_line_tells(home: CliHome) -> None:
    job = home.ok("submit", "-q", "--gpus", "8", "--", "true").strip()
    page = Page(home)

    nodes, jobs = page.ask("/api/nodes")[1], page.ask("/api/jobs")[1]
    explained = page.ask(f"/api/jobs/{job}/explain")[1]
    plan = page.ask("/api/plan", {"spec": "command: 'true'"})[1]

    shown = home.json("show", job)
    del shown["version"]
    assert page.ask(f"/api/jobs/{job}")[1] == shown
    assert nodes["nodes"][0]["id"] == home.info["node"]
    assert [each["id"] for each in jobs["jobs"]] == [job]
    assert explained["tasks"][0]["rejected"][0]["reason"] == "has no GPU"
    assert plan["fits_now"]
    assert page.ask("/api/jobs/nope")[0] == 404
    assert page.ask("/api/jobs", {"spec": "nonsense: 1", "job_id": "x"})[0] == 400


def test_only_who_has_the_token_gets_in(home: CliHome) -> None:
    page = Page(home)

    refusals = [
        page.ask("/api/info", Authorization="Bearer wrong")[0],
        page.ask("/api/info", Host="evil.example")[0],
        page.ask("/api/jobs/x/cancel", {}, Origin="http://evil.example")[0],
        page.ask("/api/jobs/x/cancel", {}, **{"Content-Type": "text/plain"})[0],
    ]

    assert refusals == [401, 421, 403, 415]
    assert page.token == (home.path / "api.token").read_text().strip()


def test_two_nodes_have_two_pages_and_the_second_says_so(tmp_path: Path) -> None:
    with homes(tmp_path) as make:
        one, two, off = make("one"), make("two"), make("off")
        said = {
            home: home("up", "--background", "--port", "0").err for home in (one, two)
        }
        off.up("--port", "0", "--no-web")
        pages = {home: Page(home).address for home in (one, two)}
        none = off("web")

    # Others may take port 7420 or free it at any time; two pages never share it.
    assert pages[one] != pages[two]
    for home, address in pages.items():
        assert f"web   http://{address}" in said[home]
        other = "port 7420 is taken, so the page is on the next free one" in said[home]
        assert other == (not address.endswith(":7420"))
    assert none.code == 1
    assert "--no-web" in none.err


def test_mistakes_are_explained(home: CliHome, tmp_path: Path) -> None:
    lost = CliHome(tmp_path / "nobody")("web")
    wrong = CliHome(tmp_path / "other")("up", "--background", "--web", "nowhere")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        where = f"127.0.0.1:{taken.getsockname()[1]}"
        busy = CliHome(tmp_path / "busy")("up", "--background", "--web", where)

    assert lost.code == 105
    assert wrong.code == 2
    assert busy.code == 1
    assert f"cannot listen on {where} for the page" in busy.err
    assert home("web", "nope", "--no-open").code == 102
    assert home.ok("web", "--no-open").startswith("http://127.0.0.1:")


def test_a_browser_is_opened_without_showing_the_token_to_others(
    home: CliHome, tmp_path: Path
) -> None:
    script, told = tmp_path / "browser", tmp_path / "told"
    script.write_text(f'#!/bin/sh\necho "$@" > {told}\n')
    script.chmod(0o755)
    home.env |= {"DISPLAY": ":0", "BROWSER": f"{script} %s"}

    url = home.ok("web").strip()

    page = home.path / "web.html"
    assert told.read_text().strip() == page.as_uri()
    assert url in page.read_text()
    assert page.stat().st_mode & 0o777 == 0o600


def test_a_page_that_nobody_looks_at_costs_nothing(home: CliHome) -> None:
    page = Page(home)
    for _ in page.stream("/api/stream"):
        break  # Somebody looked, and has gone.
    process = psutil.Process(home.info["pid"])

    before, began = sum(process.cpu_times()[:2]), time.monotonic()
    time.sleep(IDLE_S)
    spent_s = sum(process.cpu_times()[:2]) - before

    assert spent_s / (time.monotonic() - began) < IDLE_SHARE_MAX
    assert len(process.net_connections()) < 10
