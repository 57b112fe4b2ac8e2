"""Tokens and invitations stay out of arguments; a token that leaked is replaced."""

import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.integration.cli_home import CliHome, homes

pytestmark = pytest.mark.integration

FOLLOW = """
    import sys, time
    from shoal.api import shoal_pb2 as pb
    from shoal.api.client.client import connect
    from shoal.errors import ShoalError
    client = connect(sys.argv[1])
    print(client.info().pid, flush=True)
    try:
        list(client.events(pb.EventsRequest(follow=True)))
    except ShoalError:
        print(time.monotonic())
"""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CliHome]:
    with homes(tmp_path_factory.mktemp("tokens")) as make:
        home = make("home")
        home.up("--no-sandbox", "--port", "0")
        yield home


def test_a_new_token_voids_the_old_one_and_what_it_opened(home: CliHome) -> None:
    file = Path(home.ok("token", "show", "--path").strip())
    old = home.ok("token", "show").strip()
    env = {**home.env, "SHOAL_HOME": str(home.path / "none"), "SHOAL_TOKEN": old}
    command = [sys.executable, "-c", textwrap.dedent(FOLLOW), home.info["api"]]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, env=env, stdout=pipe, text=True) as follows:
        assert follows.stdout is not None
        assert int(follows.stdout.readline()) == home.info["pid"]

        done = home("token", "rotate")
        rotated_s = time.monotonic()
        ended_s = float(follows.stdout.readline())

    assert "shoal token show" in done.err
    assert ended_s - rotated_s < 1.0
    new = file.read_text().strip()
    assert new != old
    assert new.partition(".")[2] == old.partition(".")[2]
    assert file.stat().st_mode & 0o777 == 0o600
    other = CliHome(home.path / "other")
    other.env["SHOAL_TOKEN"] = old
    assert "that is not its token" in other("ps", "--node", home.info["api"]).err
    del other.env["SHOAL_TOKEN"]
    other.env["SHOAL_TOKEN_FILE"] = str(file)
    other.ok("ps", "--node", home.info["api"])


def test_a_worker_takes_its_token_from_a_file_or_standard_input(home: CliHome) -> None:
    wrong = f"wrong.{home.ok('token', 'show').strip().partition('.')[2]}"
    lone = CliHome(home.path / "lone")
    (home.path / "wrong").write_text(wrong)
    scheduler = f"--scheduler={home.info['api']}"

    by_file = lone("worker", scheduler, "--token-file", str(home.path / "wrong"))
    by_stdin = lone("worker", scheduler, "--token", "-", typed=wrong)
    by_word = lone("worker", scheduler, "--token", wrong)

    for done in (by_file, by_stdin, by_word):
        assert "that is not its token" in done.err, done
    assert "can see a token" not in by_file.err + by_stdin.err
    assert "can see a token" in by_word.err


def test_an_invitation_comes_from_standard_input(home: CliHome) -> None:
    text = home.ok("invite", "-q").strip()
    guest = CliHome(home.path / "guest")

    done = guest("join", "-", "--no-up", typed=text)

    assert done.code == 0, done
    assert "joined" in done.err
