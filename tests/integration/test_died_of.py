"""No spec and no file name ends a node; a job that does so twice is set aside."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.integration.cli_home import CliHome
from tests.integration.live_shoal import LiveNode

pytestmark = pytest.mark.integration

FLAGS = ("--no-sandbox", "--no-web", "--without", "p2p", "-q")


def test_a_job_that_kills_the_node_twice_is_set_aside_and_the_node_lives(
    fresh: Callable[[str], CliHome],
) -> None:
    home = fresh("one")
    home.up("--no-worker", *FLAGS)
    job = home.ok("submit", "-q", "--", "sleep", "300").strip()
    home.kill()
    deadly = LiveNode(home.path, ("--no-web", "--without", "p2p"), ())

    try:
        for _ in range(2):
            deadly.start("task.start:kill")
            assert deadly.died_by_failpoint(30.0)
        deadly.start("task.start:kill")
        deadly.ready()

        shown = home.json("show", job)["job"]
        told = home.ok("events", "--json")
    finally:
        deadly.kill()

    assert shown["state"] == "cancelled"
    assert "died 2 times in a row" in json.dumps(shown)
    assert "set-aside" in told


def test_no_pattern_of_outputs_and_no_file_of_a_workdir_ends_a_node(
    fresh: Callable[[str], CliHome], tmp_path: Path
) -> None:
    home = fresh("one")
    home.up(*FLAGS)
    pid = home.info["pid"]
    folder = tmp_path / "code"
    folder.mkdir()
    (folder / ".shoal").write_text("a file of the user")

    refused = home("run", "--output", "x\\", "--", "true")
    ran = home("run", "--workdir", str(folder), "--", "cat", ".shoal")

    assert refused.code == 2
    assert "ends in '\\'" in refused.err
    assert ran.out == "a file of the user"
    assert home.info["pid"] == pid


def test_a_node_whose_journal_is_gone_refuses_to_forget_its_jobs(
    fresh: Callable[[str], CliHome],
) -> None:
    home = fresh("one")
    home.up(*FLAGS)
    job = home.ok("submit", "-q", "--", "true").strip()
    home.kill()
    for file in home.path.glob("journal.db*"):
        file.unlink()

    refused = home("up", "--background", *FLAGS)
    anew = home("up", "--background", "--journal", "new", *FLAGS)

    assert refused.code not in (0, 2)
    assert "journal.db is missing" in refused.err
    assert "--journal new" in refused.err
    assert anew.code == 0
    assert home("show", job).code != 0
    assert home.ok("run", "-q", "--", "echo", "hello") == "hello\n"
