"""Plans, events and figures of a real node."""

import json
import socket
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.integration.cli_home import CliHome, homes

from shoal.api.client.client import Client

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CliHome]:
    with homes(tmp_path_factory.mktemp("looking")) as make:
        home = make("home")
        home.up(
            "--gpus",
            "0",
            "--models",
            "A100",
            "--memories",
            "8192",
        )
        yield home


def test_a_plan_says_where_a_job_would_go_and_submits_nothing(home: CliHome) -> None:
    before = home.json("ps", "--all")["total"]

    fits = json.loads(home.ok("plan", "--gpus", "1", "--json", "--", "true"))
    short = home("plan", "--gpus", "2", "--json", "--", "true")

    [group] = fits["groups"]
    assert fits["fits_now"]
    assert group["prospects"][0]["when"] == "now"
    assert group["prospects"][0]["node"]["petname"] == home.info["petname"]
    assert short.code == 104
    [group] = json.loads(short.out)["groups"]
    assert group["prospects"][0]["when"] == "never"
    assert "--gpus 1" in group["helps"]
    assert home.json("ps", "--all")["total"] == before


def test_events_tell_a_job_from_its_submit_to_its_end(home: CliHome) -> None:
    job = home.ok("submit", "-q", "--", "sh", "-c", "exit 3").strip()
    home("wait", job)

    lines = home.ok("events", "--json").splitlines()
    told = [
        event["what"] for event in map(json.loads, lines) if event.get("job") == job
    ]

    assert told == ["submitted", "assigned", "failed"]


def test_prometheus_finds_the_page(tmp_path: Path) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with homes(tmp_path) as make:
        home = make("home")
        home.up("--metrics", f"127.0.0.1:{port}")
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as page:
            text = page.read().decode()
        wrong = make("other")("up", "--background", "--metrics", "nonsense")

    assert 'shoal_node_info{node="12D3KooW' in text
    assert wrong.code == 2


def test_figures_count_jobs(home: CliHome) -> None:
    home.ok("run", "-q", "--", "true")
    with Client(f"unix:{home.info['socket']}", name="home") as client:
        text = client.metrics()

    assert 'shoal_jobs{state="done"} 1' in text
    assert 'shoal_resource_total{resource="gpu"} 1' in text


def test_a_plan_says_who_knows_how_much_memory_a_job_needs(home: CliHome) -> None:
    program = "import time; held = bytearray(400 << 20); time.sleep(2)"
    words = ("--", "python3", "-c", program)

    first = home.ok("plan", *words)
    home.ok("run", *words)
    second = home.ok("plan", *words)
    declared = home.ok("plan", "--ram", "1GB", *words)
    recipe = home.ok("plan", "--recipe", "ddp", "--nodes", "1", "--gpus", "1")

    assert "earlier run" not in first
    assert "memory 0.4 GiB: seen in an earlier run" in second
    assert "memory 1.0 GiB: declared" in declared
    assert "GiB: estimated from its params" in recipe
    assert "memory of each GPU 0.5 GiB: estimated from its params" in recipe
