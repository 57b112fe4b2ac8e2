"""What `--json` really prints is what docs/reference/json.md says."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from reference.answers import ANSWERS, LINES, breaches
from tests.integration.cli_home import CliHome, homes

from shoal.cli.display.printing import VERSION

pytestmark = pytest.mark.integration


def check(command: str, printed: str) -> None:
    """Compare what was printed with what is documented."""
    lines = printed.splitlines()
    assert len(lines) == 1 or (command in LINES and lines), printed
    for line in lines:
        document = json.loads(line)
        assert document.pop("version") == VERSION
        assert breaches(ANSWERS[command], document) == []


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CliHome]:
    with homes(tmp_path_factory.mktemp("json")) as make:
        home = make("one")
        check("init", home.ok("init", "reef", "--json"))
        check("up", home.ok("up", "--background", "--port", "0", "--json"))
        run = home("run", "--json", "--", "sh", "-c", "echo hello; exit 3")
        assert run.code == 3
        check("run", run.out)
        yield home
        check("down", home.ok("down", "--json"))
        check("down", home.ok("down", "--json"))


@pytest.mark.parametrize(
    ("command", "args", "code"),
    [
        ("submit", ("--", "true"), 0),
        ("submit", ("--offers", "--", "true"), 0),
        ("ps", (), 0),
        ("ps", ("--everywhere",), 0),
        ("show", ("1",), 0),
        ("logs", ("1",), 0),
        ("wait", ("1",), 3),
        ("cancel", ("1",), 0),
        ("retry", ("1",), 0),
        ("explain", ("1",), 0),
        ("plan", ("--gpus", "9", "--", "true"), 104),
        ("nodes", (), 0),
        ("top", ("-1",), 0),
        ("invite", (), 0),
        ("invite", ("--qr",), 0),
        ("events", (), 0),
        ("set", (), 0),
        ("secret list", (), 0),
        ("policy list", (), 0),
        ("policy test", ("simple",), 0),
    ],
)
def test_a_document_has_the_fields_that_are_documented(
    home: CliHome, command: str, args: tuple[str, ...], code: int
) -> None:
    done = home(*command.split(), "--json", *args)

    assert done.code == code, done
    check(command, done.out)


def test_json_is_asked_for_before_any_command(home: CliHome) -> None:
    for command in ("ps", "secret list", "policy list"):
        check(command, home.ok("--json", *command.split()))

    refused = home("--json", "exec", "last", "--", "true")

    assert refused.code == 2
    assert json.loads(refused.err)["error"] == "`shoal exec` has no --json"


def test_what_a_job_left_is_told_as_documented(home: CliHome, tmp_path: Path) -> None:
    script = "mkdir out; echo 1 > out/x"
    words = ("--output", "out/", "--", "sh", "-c", script)
    job = home.ok("submit", "-q", *words).strip()
    home.ok("wait", "-q", job)

    check("pull", home.ok("pull", job, "--json", "--to", str(tmp_path / "to")))


def test_the_doctor_tells_as_documented(home: CliHome) -> None:
    check("doctor", home("doctor", "--json").out)


def test_joining_and_revoking_are_told_as_documented(
    home: CliHome, tmp_path: Path
) -> None:
    invitation = home.json("invite")["invitation"]
    other = CliHome(tmp_path / "other")

    joined = other.ok("join", invitation, "--no-up", "--json")
    revoked = home.ok("revoke", json.loads(joined)["node"], "--json")

    check("join", joined)
    check("revoke", revoked)
