"""What anybody can get wrong without a node: one message, and the documented code."""

import socket
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import click
import pytest

from shoal import cli
from shoal.api.client.client import Client
from shoal.cli.config.settings import SETTINGS
from shoal.cli.job_input.selection import one
from shoal.cli.options import ABOUT_JOBS
from shoal.errors import UsageError

NEEDED = {
    "exec": ("a", "ls"),
    "forward": ("a", "80"),
    "cancel": ("x",),
    "rm": ("x",),
    "plan": ("--", "true"),
    "retry": ("x",),
    **{f"alloc {verb}": ("slurm",) for verb in ("add", "dry-run")},
    **{f"alloc {verb}": ("x",) for verb in ("log", "pause", "resume", "remove")},
    "revoke": ("x",),
    "run": ("--", "true"),
    "secret rm": ("X",),
    "secret set": ("X", "--from-file", "/dev/null"),
    "submit": ("--", "true"),
    "wait": ("x",),
}
"""Arguments of commands that do not go without."""


def commands(
    group: click.Group, path: tuple[str, ...] = ()
) -> Iterator[tuple[str, click.Command]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from commands(command, (*path, name))
        else:
            yield " ".join((*path, name)), command


ASKING = sorted(
    name
    for name, command in commands(cli.shoal)
    if any(param.name == "node" for param in command.params)
)


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give each test a home without a node, and no settings."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SHOAL_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    for setting in SETTINGS.values():
        monkeypatch.delenv(setting.variable, raising=False)
    return tmp_path


def answer(
    args: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> tuple[int, str]:
    """Return the exit code and the one message of a command that must fail."""
    with pytest.raises(SystemExit) as exit_:
        cli.main(args)
    captured = capsys.readouterr()
    assert captured.out == ""
    lines = captured.err.splitlines()
    assert lines[0].startswith("error: ")
    assert [line for line in lines if line.startswith("error: ")] == [lines[0]]
    assert all(line.startswith(("why:   ", "next:  ")) for line in lines[1:])
    assert isinstance(exit_.value.code, int)
    return exit_.value.code, captured.err


EVERY = sorted(name for name, _ in commands(cli.shoal))


@pytest.mark.parametrize("command", EVERY)
def test_a_flag_that_there_is_not_is_refused(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = (*command.split(), "--flagg")

    code, err = answer(words, capsys)

    assert code == 2
    assert "--flagg" in err
    assert "--help` lists the options" in err


TEXTS = {
    "broken.yaml": b"command: [true\n",
    "broken.json": b'{"name": ',
    "binary.yaml": b"\xff\xfe\x00",
    "list.json": b"[1, 2]",
    "empty.yaml": b"",
    "typo.sh": b"#!/bin/sh\n#SHOAL --bogus\ntrue\n",
}


@pytest.mark.parametrize("command", ["run", "submit", "plan", "sim"])
@pytest.mark.parametrize("name", TEXTS)
def test_a_file_that_makes_no_sense_is_named(
    command: str, name: str, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if (command, name) == ("sim", "empty.yaml"):
        pytest.skip("a scenario says only what differs")
    (place / name).write_bytes(TEXTS[name])

    code, err = answer((command, name), capsys)

    assert code == 2
    assert name in err


@pytest.mark.parametrize("command", ASKING)
def test_settings_that_make_no_sense_are_named(
    command: str, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (place / "shoal.toml").write_text("node = [\n")

    code, err = answer((*command.split(), *NEEDED.get(command, ())), capsys)

    assert code == 2
    assert "shoal.toml is not TOML" in err


@pytest.mark.parametrize("selector", ["all", "1-3", "1,2"])
def test_what_is_about_one_job_takes_no_several(selector: str) -> None:
    with pytest.raises(UsageError, match="can mean several jobs"):
        one(cast("Client", None), selector)


def test_many_commands_ask_a_node() -> None:
    assert len(ASKING) > 15


@pytest.mark.parametrize("command", [name for name in ASKING if name != "run"])
def test_without_a_node_a_command_says_how_to_start_one(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, err = answer((*command.split(), *NEEDED.get(command, ())), capsys)

    assert code == 105
    assert err.startswith("error: no node is running\nwhy:   ")
    assert "next:  `shoal up` starts one" in err


@pytest.mark.parametrize("command", sorted({*ASKING} - ABOUT_JOBS))
@pytest.mark.parametrize("address", ["nowhere", "nowhere:x"])
def test_an_address_that_is_none_is_not_called(
    command: str, address: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = (*command.split(), "--node", address, *NEEDED.get(command, ()))

    code, err = answer(words, capsys)

    assert code == 2
    assert f"'{address}' is not a host and a port" in err
    assert ("run the command on that node" in err) == (":" not in address)


@pytest.mark.parametrize("command", sorted(ABOUT_JOBS))
def test_commands_about_jobs_take_the_name_of_a_node_and_ask_the_one_here(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = (command, "--node", "nowhere", *NEEDED.get(command, ()))

    code, err = answer(words, capsys)

    assert command in ASKING
    assert code == 105
    assert err.startswith("error: no node is running\nwhy:   ")


def test_a_node_that_does_not_answer_is_named(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with socket.socket() as taken:  # Bound, and nobody listens: so nobody else can.
        taken.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{taken.getsockname()[1]}"

        code, err = answer(("ps", "--node", address), capsys)

    assert code == 105
    assert f"the node {address} does not answer" in err


@pytest.mark.parametrize(
    ("line", "words"),
    [
        # Files that are missing, or are none.
        ("run nowhere.yaml", "cannot read nowhere.yaml"),
        ("submit nowhere", "put -- before it"),
        ("shoal1-SWSHEZZ-LFM3CBT", "shoal join INVITATION"),
        ("submit nowhere.yaml", "check its name"),
        ("plan nowhere.yaml", "No such file"),
        ("submit .", "Is a directory"),
        ("submit --config nowhere.json", "choose a file that you can read"),
        ("secret set X --from-file nowhere", "No such file"),
        ("secret set X --from-file .", "Is a directory"),
        ("sim nowhere.yaml", "No such file"),
        ("sim traces nowhere.csv", "no such file"),
        # Words of the wrong kind.
        ("show --tasks many", "not a valid integer"),
        ("show --tasks 0", "x>=1"),
        ("events -n -5", "x>=0"),
        ("top --refresh 0", "x>=0.1"),
        ("set --unset", "--unset without a name"),
        ("events -n many", "not a valid integer"),
        ("logs --stream third", "'both', 'stdout', 'stderr'"),
        ("wait x --timeout soon", "write it like 90s"),
        ("down --grace soon", "write it like 90s"),
        ("invite --ttl soon", "write it like 90s"),
        ("invite --uses many", "not a valid integer"),
        ("invite --role king", "'worker'"),
        ("top --refresh soon", "not a valid float"),
        ("up --port many", "not a valid integer"),
        ("up --listen nowhere", "is not a host and a port"),
        ("up --api nowhere", "is not a host and a port"),
        ("up --policy balancd", "did you mean 'balanced'?"),
        ("up --order minow", "did you mean 'minnow'?"),
        ("server --policy balancd", "did you mean 'balanced'?"),
        ("sim --policy balancd", "no policy 'balancd'"),
        ("policy test balancd", "did you mean 'balanced'?"),
        ("set policy balancd", "did you mean 'balanced'?"),
        ("up --metrics nowhere", "is not a host and a port"),
        ("up --announce nowhere", "is not a host and a port"),
        ("up --cache lots", "write it like 512MB"),
        ("up --label x", "is not a label"),
        ("up --without legs", "the ways are"),
        ("up --models A100", "without --gpus"),
        ("server --port many", "not a valid integer"),
        ("worker --scheduler nowhere", "is not a host and a port"),
        ("join nonsense", "that is not an invitation"),
        ("completion tcsh", "'bash', 'zsh', 'fish'"),
        ("set port many", "a whole number"),
        ("submit --priority high -- true", "not a valid integer"),
        ("submit --priority 101 -- true", "`--priority`"),
        ("submit --nodes 0 -- true", "`--nodes`"),
        ("submit --ram lots -- true", "`--ram`"),
        ("submit --gpus 2:3 -- true", "`--gpus`"),
        ("submit --memory 16GB -- true", "--gpu-mem 16GB"),
        ("submit --time-limit soon -- true", "`--time-limit`"),
        ("submit --array x -- true", "`--array`"),
        ("submit --max-rtt far -- true", "`--max-rtt`"),
        ("submit --env X -- true", "it has no '='"),
        # Too little, too much, or what there is not.
        ("submit", "there is nothing to run"),
        ("run --", "no command follows --"),
        ("run python x.py", "put -- before it"),
        ("run /bin/true", "to run it: shoal run -- /bin/true"),
        ("submit /bin/true", "to run it: shoal submit -- /bin/true"),
        ("wait", "Missing argument"),
        ("cancel", "Missing argument"),
        ("retry", "Missing argument"),
        ("revoke", "Missing argument"),
        ("join", "there is no invitation"),
        ("init", "Missing argument"),
        ("secret set", "Missing argument"),
        ("policy test", "Missing argument"),
        ("completion", "Missing argument"),
        ("ps --colour", "No such option"),
        ("secret swim", "No such command"),
        ("secret set X --from-env", "the variable X is not set"),
        ("set polcy", "did you mean 'policy'?"),
    ],
)
def test_a_wrong_command_line_is_explained(
    line: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, err = answer(tuple(line.split()), capsys)

    assert code == 2
    assert words in err


@pytest.mark.parametrize("command", ["ps", "up", "run -- true", "init x", "down"])
def test_a_home_that_is_no_folder_is_explained(
    command: str,
    place: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (place / "file").write_text("")
    monkeypatch.setenv("SHOAL_HOME", str(place / "file" / "home"))

    code, err = answer(tuple(command.split()), capsys)

    assert code == 2
    assert "set SHOAL_HOME to a folder" in err


@pytest.mark.parametrize("command", ["up", "run -- true", "init x"])
def test_a_home_that_may_not_be_written_is_explained(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SHOAL_HOME", "/sys/shoal")  # Not even root writes there.

    code, err = answer(tuple(command.split()), capsys)

    assert code == 2
    assert "cannot create /sys/shoal" in err
    assert "set SHOAL_HOME to a folder" in err
