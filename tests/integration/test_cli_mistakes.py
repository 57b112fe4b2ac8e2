"""Whatever goes wrong with a node is told as what, why and what next, with a code.

What goes wrong without one is in tests/unit/cli/test_mistakes.py.
"""

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.integration.cli_home import CliHome, Done, homes

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CliHome]:
    with homes(tmp_path_factory.mktemp("mistakes")) as make:
        home = make("one")
        home.ok("up", "--background", "--port", "0")
        yield home


def check(done: Done, code: int, words: str) -> None:
    assert done.code == code, done
    assert done.out == ""
    assert done.err.startswith("error: "), done
    assert "next:  " in done.err
    assert words in done.err
    assert "Traceback" not in done.err


@pytest.mark.parametrize(
    ("line", "code", "words"),
    [
        # What there is not.
        ("show nope", 102, "no job 'nope'"),
        ("logs nope", 102, "no job 'nope'"),
        ("wait nope", 102, "no job 'nope'"),
        ("cancel nope", 102, "no job 'nope'"),
        ("explain nope", 102, "no job 'nope'"),
        ("retry nope", 102, "no job 'nope'"),
        ("pull nope", 102, "no job 'nope'"),
        ("show 77", 102, "there is no job 77"),
        ("cancel 7-9", 102, "there are no jobs 7 to 9"),
        ("revoke nope", 2, "'nope' is no node id"),
        ("secret rm NOPE", 102, "NOPE"),
        ("top -1 --worker nope", 102, "nope"),
        ("run --secret NOPE -- true", 2, "no secret 'NOPE'"),
        # What the node does not understand, or cannot do.
        ("submit --policy nope -- true", 2, "nope"),
        ("submit --workdir nowhere -- true", 2, "nowhere"),
        ("invite --uses 0", 2, "range"),
        ("up --listen nowhere", 1, "is running already"),
        ("join shoal1-AAAAAAA", 1, "is running"),
        ("init other", 1, "belongs to the shoal"),
    ],
)
def test_a_mistake_is_explained(
    home: CliHome, line: str, code: int, words: str
) -> None:
    check(home(*line.split()), code, words)


def test_a_spec_with_a_typo_names_the_place(home: CliHome, tmp_path: Path) -> None:
    spec = tmp_path / "bad.yaml"
    spec.write_text("command: true\nnodez: 2\n")

    check(home("submit", str(spec)), 2, "nodez")


def test_outputs_that_cannot_be_written_are_explained(home: CliHome) -> None:
    words = ("--output", "out/", "--", "sh", "-c", "mkdir out; echo 1 > out/x")
    job = home.ok("submit", "-q", *words).strip()
    home.ok("wait", "-q", job)

    check(home("pull", job, "--to", "/dev/null/x"), 2, "/dev/null/x")


def test_who_shows_no_token_or_a_wrong_one_is_told(
    home: CliHome, tmp_path: Path
) -> None:
    stranger = CliHome(tmp_path / "stranger")
    address = home.info["api"]

    without = stranger("ps", "--node", address)
    stranger.env["SHOAL_TOKEN"] = "wrong"
    wrong = stranger("ps", "--node", address)

    check(without, 106, "SHOAL_TOKEN")
    check(wrong, 106, "SHOAL_TOKEN")


def test_down_without_a_node_is_no_error(tmp_path: Path) -> None:
    done = CliHome(tmp_path / "none")("down")

    assert done == (0, "", "no node is running\n")


def test_doctor_says_what_is_wrong_with_a_home(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")

    done = CliHome(file / "home")("doctor")

    assert done.code == 1
    assert "bad   home" in done.out
    assert "fix: set SHOAL_HOME" in done.out


@pytest.mark.parametrize(
    ("flags", "code", "words"),
    [
        ("--policy nope", 2, "nope"),
        ("--gpus 0,1 --models A", 2, "--models has 1 entries"),
        ("--listen nowhere", 2, "is not a host and a port"),
        ("--port TAKEN", 1, "TAKEN"),
        ("--listen 127.0.0.1:TAKEN", 1, "TAKEN"),
        ("--metrics 127.0.0.1:TAKEN", 1, "TAKEN"),
    ],
)
def test_a_node_in_the_background_tells_why_it_did_not_start(
    flags: str, code: int, words: str, tmp_path: Path
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        args = flags.replace("TAKEN", port).split()

        done = CliHome(tmp_path / "one")("up", "--background", *args)

    check(done, code, words.replace("TAKEN", port))
