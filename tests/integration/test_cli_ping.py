"""`shoal ping`: round trips over the link to another node."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from reference.answers import ANSWERS, breaches
from tests.integration.cli_home import CliHome, homes
from tests.integration.live_shoal import eventually

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[CliHome, CliHome]]:
    with homes(tmp_path_factory.mktemp("ping")) as make:
        one, two = make("one"), make("two")
        one.up("--port", "0", "--no-sandbox")
        invitation = one.json("invite")["invitation"]
        two.ok("join", invitation, "--no-up")
        two.up()
        eventually(lambda: len(one.json("nodes")["nodes"]) == 2)
        yield one, two


def test_a_ping_tells_path_loss_and_round_trips(pair: tuple[CliHome, CliHome]) -> None:
    one, two = pair

    document = one.json("ping", "-c", "3")

    document.pop("version")
    assert breaches(ANSWERS["ping"], document) == []
    [found] = document["nodes"]
    assert found["node"]["petname"] == two.info["petname"]
    assert found["path"] == "direct"
    assert (found["sent"], found["lost"]) == (3, 0)
    assert len(set(found["rtts_s"])) == 3, "each is a round trip of its own"
    assert all(0 < rtt_s < 1 for rtt_s in found["rtts_s"])


def test_a_node_is_named_by_petname_or_the_beginning_of_its_id(
    pair: tuple[CliHome, CliHome],
) -> None:
    one, two = pair
    name, id_ = two.info["petname"], two.info["node"]

    by_name = one("ping", "-c", "1", name, id_[:20])
    itself = one("ping", "-c", "1", one.info["petname"])
    both = one("ping", "12D3")

    assert by_name.code == 0, by_name
    assert by_name.err.count("direct") == 1, "it was named twice, and asked once"
    assert name in by_name.out
    assert "self" in itself.out
    assert both.code == 2
    assert "matches 2 nodes" in both.err


def test_a_node_that_stands_still_is_lost(pair: tuple[CliHome, CliHome]) -> None:
    one, two = pair
    pid = two.info["pid"]
    os.kill(pid, signal.SIGSTOP)
    try:
        done = one("ping", "-c", "2", "--timeout", "300ms", two.info["petname"])
    finally:
        os.kill(pid, signal.SIGCONT)

    assert done.code == 105, done
    assert done.err.count("no answer") == 2
    assert done.out.splitlines()[1].split()[2:4] == ["2", "2"]


def test_a_lone_node_has_nobody_to_ping(tmp_path: Path) -> None:
    with homes(tmp_path) as make:
        lone = make("lone")
        lone.up("--port", "0", "--no-sandbox")

        done = lone("ping")

    assert done.code == 0
    assert "there is no other node" in done.err
