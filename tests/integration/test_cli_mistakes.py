"""Whatever goes wrong is told as what, why and what next, with the right code."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.integration.cli_home import CliHome, homes

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CliHome]:
    with homes(tmp_path_factory.mktemp("mistakes")) as make:
        home = make("one")
        home.ok("up", "--background")
        yield home


@pytest.mark.parametrize(
    ("args", "code", "words"),
    [
        (("show", "nope"), 102, "no job 'nope'"),
        (("logs", "nope"), 102, "no job 'nope'"),
        (("wait", "nope"), 102, "no job 'nope'"),
        (("cancel", "nope"), 102, "no job 'nope'"),
        (("explain", "nope"), 102, "no job 'nope'"),
        (("submit",), 2, "there is nothing to run"),
        (("run", "--"), 2, "no command follows --"),
        (("run", "python", "x.py"), 2, "put -- before it"),
        (("run", "no-such-file.yaml"), 2, "cannot read no-such-file.yaml"),
        (("submit", "--memory", "16GB", "--", "true"), 2, "--gpu-mem 16GB"),
        (("submit", "--gpus", "2:3", "--", "true"), 2, "--gpus"),
        (("submit", "--env", "X", "--", "true"), 2, "it has no '='"),
        (("submit", "--policy", "nope", "--", "true"), 1, "nope"),
        (("up", "--listen", "nowhere"), 1, "is running already"),
    ],
)
def test_a_mistake_is_explained(
    home: CliHome, args: tuple[str, ...], code: int, words: str
) -> None:
    done = home(*args)

    assert done.code == code, done
    assert done.out == ""
    assert done.err.startswith("error: ")
    assert "next:  " in done.err
    assert words in done.err
    assert "Traceback" not in done.err


def test_a_spec_with_a_typo_names_the_place(home: CliHome, tmp_path: Path) -> None:
    spec = tmp_path / "bad.yaml"
    spec.write_text("command: true\nnodez: 2\n")

    done = home("submit", str(spec))

    assert done.code == 2
    assert "nodez" in done.err


@pytest.mark.parametrize("command", ["ps", "nodes", "show", "logs", "explain"])
def test_without_a_node_commands_say_how_to_start_one(
    command: str, tmp_path: Path
) -> None:
    done = CliHome(tmp_path / "none")(command)

    assert done.code == 105
    assert done.err.startswith("error: no node is running\nwhy:   ")
    assert "next:  `shoal up` starts one" in done.err


def test_down_without_a_node_is_no_error(tmp_path: Path) -> None:
    done = CliHome(tmp_path / "none")("down")

    assert done == (0, "", "no node is running\n")


@pytest.mark.parametrize("command", [("ps",), ("up",), ("run", "--", "true")])
def test_a_home_that_is_no_folder_is_explained(
    command: tuple[str, ...], tmp_path: Path
) -> None:
    file = tmp_path / "file"
    file.write_text("")

    done = CliHome(file / "home")(*command)

    assert done.code == 2
    assert "Traceback" not in done.err
    assert "SHOAL_HOME" in done.err


def test_doctor_says_what_is_wrong_with_a_home(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")

    done = CliHome(file / "home")("doctor")

    assert done.code == 1
    assert "bad   home" in done.out
    assert "fix: set SHOAL_HOME" in done.out


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("--policy", "nope"), "nope"),
        (("--gpus", "0,1", "--models", "A"), "--models has 1 entries"),
        (("--models", "A"), "without --gpus"),
        (("--listen", "nowhere"), "is not a host and a port"),
    ],
)
def test_a_node_in_the_background_tells_why_it_did_not_start(
    flags: tuple[str, ...], words: str, tmp_path: Path
) -> None:
    done = CliHome(tmp_path / "one")("up", "--background", *flags)

    assert done.code in (1, 2)
    assert words in done.err
    assert "Traceback" not in done.err
