import errno
import json
import os
import sys
from collections.abc import Callable
from types import ModuleType

import click
import pytest

from shoal import __version__, cli, entry
from shoal.cli.exit_codes import ExitCode
from shoal.errors import (
    NotFoundError,
    PolicyError,
    ShoalError,
    SpecError,
    UnknownPolicyError,
    UsageError,
)

Raising = Callable[[Exception], None]


@pytest.fixture
def raising(monkeypatch: pytest.MonkeyPatch) -> Raising:
    """Make `shoal fail` the only command, and let it raise the given error."""

    def install(error: Exception) -> None:
        def fail(**_: object) -> None:
            raise error

        module = ModuleType("failing")
        params = [
            click.Option(["--json"], is_flag=True),
            click.Argument(["rest"], nargs=-1),
        ]
        vars(module)["fail"] = click.Command("fail", callback=fail, params=params)
        monkeypatch.setitem(sys.modules, "failing", module)
        monkeypatch.setattr(cli, "COMMANDS", {"fail": "failing:fail"})

    return install


def exit_code_of(*args: str) -> int | str | None:
    with pytest.raises(SystemExit) as exit_:
        cli.main(args)
    return exit_.value.code


def test_an_error_is_told_as_what_and_why_and_what_next(
    raising: Raising, capsys: pytest.CaptureFixture[str]
) -> None:
    raising(
        ShoalError(
            "no node 'heron' in net 'home'",
            because="it left 3 h ago",
            hint="`shoal nodes --all` lists those that left",
        )
    )

    code = exit_code_of("fail")

    captured = capsys.readouterr()
    assert code == 1
    assert captured.out == ""
    assert captured.err == (
        "error: no node 'heron' in net 'home'\n"
        "why:   it left 3 h ago\n"
        "next:  `shoal nodes --all` lists those that left\n"
    )


def test_an_error_is_json_if_json_was_asked_for(
    raising: Raising, capsys: pytest.CaptureFixture[str]
) -> None:
    raising(NotFoundError("no node 'heron'", because="it left", hint="look again"))
    told = {
        "error": "no node 'heron'",
        "why": "it left",
        "next": "look again",
        "exit_code": int(ExitCode.NOT_FOUND),
    }

    for args in (("fail", "--json"), ("--json", "fail")):
        assert exit_code_of(*args) == ExitCode.NOT_FOUND
        assert json.loads(capsys.readouterr().err) == told
    exit_code_of("fail", "--", "--json")
    assert capsys.readouterr().err.startswith("error: ")


def test_an_error_without_a_hint_says_at_least_where_to_read_on(
    raising: Raising, capsys: pytest.CaptureFixture[str]
) -> None:
    raising(SpecError("expected a number, got 'two'", path="--nodes"))

    exit_code_of("fail")

    captured = capsys.readouterr()
    assert captured.err == (
        "error: expected a number, got 'two' - at `--nodes`\n"
        "next:  `shoal fail --help` lists the options\n"
    )


def test_an_error_in_a_file_says_where_its_fields_are_told_of(
    raising: Raising, capsys: pytest.CaptureFixture[str]
) -> None:
    raising(SpecError("expected a number, got 'two'", path="$.nodes"))

    exit_code_of("fail")

    assert "next:  `shoal schema` lists the fields" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("number", "next_"),
    [(errno.ENOSPC, "free some space"), (errno.EACCES, "choose a path that you can")],
)
def test_what_to_do_about_the_machine_depends_on_what_it_says(
    raising: Raising, capfd: pytest.CaptureFixture[str], number: int, next_: str
) -> None:
    raising(OSError(number, os.strerror(number), "/a/file"))

    exit_code_of("fail")

    assert f"next:  {next_}" in capfd.readouterr().err


def test_a_bug_is_told_without_a_stack_unless_one_asks(
    raising: Raising,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    raising(ZeroDivisionError("division by zero"))

    code = exit_code_of("fail")

    told = capsys.readouterr().err
    assert code == 1
    assert "why:   ZeroDivisionError: division by zero\n" in told
    assert "Traceback" not in told
    monkeypatch.setenv("SHOAL_DEBUG", "1")
    with pytest.raises(ZeroDivisionError):
        cli.main(["fail"])


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (UsageError("wrong"), 2),
        (SpecError("wrong", path="$.name"), 2),
        (PolicyError("wrong"), 1),
        (UnknownPolicyError("wrong"), 2),
        (ShoalError("wrong"), 1),
    ],
)
def test_wrong_use_exits_with_2_and_any_other_error_with_1(
    raising: Raising, error: ShoalError, code: int
) -> None:
    raising(error)

    assert exit_code_of("fail") == code


def test_a_command_alone_that_needs_another_word_prints_its_help(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert exit_code_of("secret") == 2
    assert capsys.readouterr().err.startswith("Usage: shoal secret ")


def test_a_misspelt_command_gets_the_nearest(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert exit_code_of("polcy") == 2
    assert "next:  did you mean 'shoal policy'?" in capsys.readouterr().err


def test_an_unknown_command_is_wrong_use(capsys: pytest.CaptureFixture[str]) -> None:
    code = exit_code_of("swim")

    assert code == 2
    assert capsys.readouterr().err.startswith("error: there is no command 'swim'")


def test_the_version_goes_to_stdout(capsys: pytest.CaptureFixture[str]) -> None:
    code = exit_code_of("--version")

    captured = capsys.readouterr()
    assert code == 0
    assert captured.out == f"shoal, version {__version__}\n"
    assert captured.err == ""


@pytest.mark.parametrize(
    ("typed", "meant"),
    [("stop", "down"), ("squeue", "ps"), ("kill", "cancel"), ("rnu", "run")],
)
def test_a_word_of_another_tool_leads_to_ours(
    typed: str, meant: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_code_of(typed) == 2

    assert f"did you mean 'shoal {meant}'?" in capsys.readouterr().err


def test_words_of_other_tools_lead_to_commands_that_there_are() -> None:
    meant = {word for word in cli.ELSEWHERE.values() if not word.startswith("--")}

    assert meant <= cli.COMMANDS.keys()
    assert not cli.ELSEWHERE.keys() & cli.COMMANDS.keys()


def test_ctrl_c_has_the_same_code_wherever_it_comes() -> None:
    assert entry.INTERRUPTED == ExitCode.INTERRUPTED
