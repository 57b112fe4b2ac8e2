"""Flag over variable over project over user over default."""

import os
from collections.abc import Callable
from pathlib import Path

import click
import pytest

from shoal import cli
from shoal.cli.config.settings import SETTINGS, UserSettings, default_of
from shoal.cli.nodes.server import server
from shoal.cli.nodes.up import up
from shoal.cli.options import node_option
from shoal.errors import UsageError

Write = Callable[[str], None]


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Let nothing be set but by the test."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    for setting in SETTINGS.values():
        monkeypatch.delenv(setting.variable, raising=False)
    return tmp_path


@pytest.fixture
def own(place: Path) -> Write:
    file = place / "config" / "shoal" / "config.toml"
    file.parent.mkdir(parents=True)
    return lambda text: void(file.write_text(text))


@pytest.fixture
def project(place: Path) -> Write:
    return lambda text: void((place / "shoal.toml").write_text(text))


def void(_written: int) -> None:
    """Forget how much was written."""


def node_asked(*args: str) -> str | None:
    """Return the node that a command with `--node` would ask."""
    heard: list[str | None] = []

    @click.command()
    @node_option
    def ask(node: str | None) -> None:
        heard.append(node)

    ask.main(list(args), standalone_mode=False)
    return heard[0]


def shoal(*args: str) -> int | str | None:
    with pytest.raises(SystemExit) as exit_:
        cli.main(args)
    return exit_.value.code


def refused(text: str, project: Write) -> UsageError:
    project(text)
    with pytest.raises(UsageError) as error:
        UserSettings.usual().find("node")
    return error.value


def test_each_place_wins_over_the_next(
    own: Write, project: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard = [node_asked()]
    own('node = "own:1"')
    heard.append(node_asked())
    project('node = "project:1"')
    heard.append(node_asked())
    monkeypatch.setenv("SHOAL_NODE", "variable:1")
    heard.append(node_asked())
    heard.append(node_asked("--node", "flag:1"))

    assert heard == [None, "own:1", "project:1", "variable:1", "flag:1"]


def test_a_variable_that_is_empty_sets_nothing(
    own: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    own('node = "own:1"')
    monkeypatch.setenv("SHOAL_NODE", "")

    assert node_asked() == "own:1"


def given(command: click.Command, *args: str) -> dict[str, object]:
    with command.make_context(command.name, list(args)) as context:
        return context.params


def test_a_node_takes_what_is_set_and_flags_win(own: Write) -> None:
    own('sandbox = false\nlabels = ["leaf=a"]\nport = 7\npolicy = "simple"\n')

    silent = given(up)
    loud = given(up, "--sandbox", "--label", "leaf=b", "--port", "8")

    assert (silent["sandbox"], silent["labels"], silent["port"]) == (
        False,
        ("leaf=a",),
        7,
    )
    assert (loud["sandbox"], loud["labels"], loud["port"]) == (True, ("leaf=b",), 8)
    assert silent["policy"] == given(server)["policy"] == "simple"


def test_nothing_set_leaves_every_option_as_it_is() -> None:
    plain = given(up)

    assert plain["sandbox"] is True
    assert plain["functions"] is True
    assert plain["labels"] == ()
    assert plain["port"] is None
    assert (plain["policy"], plain["listen"], plain["cache"]) == ("", "", "")
    assert given(server)["port"] == 50_051


def test_a_node_that_leaves_the_folder_takes_its_settings_along(
    project: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    project('policy = "simple"\nlabels = ["a=1", "b=2"]\ncolor = false\nport = 9\n')
    monkeypatch.setenv("SHOAL_PORT", "8")

    assert UserSettings.usual().environment() == {
        "SHOAL_POLICY": "simple",
        "SHOAL_LABELS": "a=1,b=2",
        "SHOAL_COLOR": "false",
    }


def test_a_broken_file_is_named_with_its_line(project: Write) -> None:
    error = refused('node = "a:1"\npolicy = \n', project)

    assert error.what.startswith("shoal.toml is not TOML: ")
    assert "line 2" in error.what


def test_an_unknown_name_gets_the_nearest(project: Write) -> None:
    error = refused('node = "a:1"\n\npolcy = "simple"\n', project)

    assert error.what == "there is no setting 'polcy' (shoal.toml, line 3)"
    assert error.hint == "did you mean 'policy'?"


@pytest.mark.parametrize(
    ("line", "because"),
    [
        ("port = true", "it must be a whole number"),
        ('sandbox = "no"', "it must be true or false"),
        ("policy = 3", "it must be a quoted string"),
        ("labels = [1]", "it must be a list of strings"),
    ],
)
def test_a_value_of_the_wrong_kind_is_refused(
    line: str, because: str, own: Write
) -> None:
    own(line)

    with pytest.raises(UsageError) as error:
        UserSettings.usual().find("node")

    assert error.value.because == because
    assert "line 1" in error.value.what


@pytest.mark.parametrize("name", ["sandbox", "listen", "metrics", "functions"])
def test_a_project_does_not_open_this_machine(name: str, project: Write) -> None:
    value = "false" if SETTINGS[name].kind == "flag" else '"0.0.0.0:1"'

    error = refused(f"{name} = {value}\n", project)

    assert "cannot be set for a project" in error.what


def test_a_wrong_variable_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOAL_PORT", "many")

    with pytest.raises(UsageError, match="SHOAL_PORT is 'many'"):
        given(up)


def test_completion_does_not_complain_of_a_broken_file(project: Write) -> None:
    project("=")

    context = click.Context(up, resilient_parsing=True)
    with context:
        assert default_of("policy", "x")() == "x"


# The command.


def test_what_is_set_counts_until_it_is_taken_out(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = place / "config" / "shoal" / "config.toml"

    assert shoal("set", "policy", "simple") == 0
    assert shoal("set", "labels", "leaf=a,zone=ü") == 0
    assert shoal("set", "policy", "balanced") == 0
    capsys.readouterr()
    shoal("set", "policy", "--show-origin")

    assert capsys.readouterr().out == f"balanced  ({file})\n"
    assert UserSettings.usual().find("labels").value == ("leaf=a", "zone=ü")
    assert shoal("set", "policy", "--unset") == 0
    assert UserSettings.usual().find("policy") == (None, "default")


def test_comments_of_a_file_stay(project: Write, place: Path) -> None:
    project('# ours\nnode = "a:1"  # the big one\n# end\n')

    shoal("set", "--here", "policy", "simple")

    text = (place / "shoal.toml").read_text()
    assert text == '# ours\nnode = "a:1"  # the big one\n# end\npolicy = "simple"\n'


def test_a_value_over_several_lines_is_left_to_its_author(
    project: Write, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    project('labels = [\n "a=1",\n]\n')

    assert shoal("set", "--here", "labels", "a=2") == 2
    assert (place / "shoal.toml").read_text() == 'labels = [\n "a=1",\n]\n'
    assert capsys.readouterr().err.startswith("error: ")


def test_a_setting_may_be_spelt_like_its_flag(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert shoal("set", "--here", "task-network", "internet") == 2  # One's own, never.
    assert "task_network cannot be set for a project" in capsys.readouterr().err
    assert shoal("set", "task-network", "internet") == 0
    assert shoal("set", "task_network") == 0
    assert capsys.readouterr().out.split()[-1] == "internet"


def test_what_wins_over_a_new_value_is_told(
    project: Write, capsys: pytest.CaptureFixture[str]
) -> None:
    project('policy = "simple"\n')

    shoal("set", "policy", "balanced")

    err = capsys.readouterr().err
    assert "note: shoal.toml sets it to simple, which wins here" in err


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("polcy", "x"), "did you mean 'policy'?"),
        (("sandbox", "maybe"), "sandbox is true or false"),
        (("port", "many"), "port is a whole number"),
        (("port", "70000"), "the highest port is 65535"),
        (("cache", "lots"), "is not a size"),
        (("listen", "nowhere"), "is not a host and a port"),
        (("labels", "leaf"), "is not a label"),
        (("policy", "simple", "--unset"), "use one of them"),
        (("sandbox", "false", "--here"), "cannot be set for a project"),
    ],
)
def test_what_makes_no_sense_is_not_written(
    args: tuple[str, ...], words: str, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert shoal("set", *args) == 2

    assert words in capsys.readouterr().err
    assert os.listdir(place) == []  # noqa: PTH208 - Only the names count.


def test_a_file_that_cannot_be_written_is_explained(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (place / "config").write_text("")

    assert shoal("set", "policy", "simple") == 2
    assert "SHOAL_POLICY in the environment" in capsys.readouterr().err
