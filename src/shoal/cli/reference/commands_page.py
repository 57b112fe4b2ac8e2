"""The page about commands, from what click knows of them."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Final

import click

from shoal.cli import HELP, shoal
from shoal.cli.exit_codes import ExitCode
from shoal.cli.reference.tables import page, table
from shoal.cli.settings import KINDS, SETTINGS, FromSettings
from shoal.cli.spec_flags import JobCommand, flags_of_a_job

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

INTRODUCTION: Final = """\
# Reference: commands

Written by `make docs` from the commands themselves; [cli.md](../cli.md) shows how they
are used, and [json.md](json.md) what `--json` prints. All take `-h` and `--help`.
"""

CODES: Final = {
    ExitCode.OK: "all is well",
    ExitCode.ERROR: "something failed; stderr says what, why and what next",
    ExitCode.USAGE: "the command line, a file or a setting is wrong",
    ExitCode.JOB_FAILED: "the job failed without a code of its own",
    ExitCode.NOT_FINISHED: "the time to wait ran out; the job goes on",
    ExitCode.NOT_FOUND: "there is no such job, task, node or secret",
    ExitCode.CANCELLED: "the job was cancelled",
    ExitCode.NOT_PLACEABLE: "no node could run the job now",
    ExitCode.UNREACHABLE: "no node is running, or it does not answer",
    ExitCode.NOT_ALLOWED: "that is not allowed",
    ExitCode.INTERRUPTED: "Ctrl-C ended the command; what `run` cancels is 103",
}


def commands_page() -> str:
    """Return the page."""
    return page(_lines())


def _lines() -> Iterator[str]:
    yield from INTRODUCTION.splitlines()
    root = click.Context(shoal, info_name="shoal")
    for title, commands in HELP.items():
        yield from ("", f"## {title}", "")
        for name in commands:
            command = shoal.get_command(root, name)
            assert command is not None, name
            context = click.Context(command, info_name=name, parent=root)
            yield from _about(command, context, depth=3)
    yield from ("", "## Flags of a job", "")
    yield "What `run`, `submit` and `plan` take, and lines of scripts that begin with"
    yield "`#SHOAL`. They win over the same field of a file."
    yield from _options(flags_of_a_job(), root)
    yield from ("", "## Settings", "")
    yield "What `shoal set` sets. A flag wins over the variable, that over `shoal.toml`"
    yield "of the folder, that over your own file. Some can only be your own."
    rows = [
        (
            f"`{each.name}`",
            f"`{each.variable}`",
            KINDS[each.kind] + (", only your own" if each.personal else ""),
            each.about,
        )
        for each in SETTINGS.values()
    ]
    yield from table(("setting", "variable", "is", "means"), rows)
    yield from ("", "## Exit codes", "")
    yield "`shoal run` and `shoal wait` exit with the job's own code; a signal is 128"
    yield "and its number."
    yield from table(
        ("code", "means"), [(str(int(c)), CODES[c]) for c in sorted(ExitCode)]
    )


def _about(command: click.Command, context: click.Context, depth: int) -> Iterator[str]:
    usage = " ".join(command.collect_usage_pieces(context))
    yield from ("", f"{'#' * depth} {context.command_path}", "")
    yield from ("```text", f"{context.command_path} {usage}", "```", "")
    yield from _paragraphs(command.help or "")
    params = command.params
    if isinstance(command, JobCommand):
        told = {param.name for param in flags_of_a_job()}
        params = [param for param in params if param.name not in told]
        yield from ("", "And all [flags of a job](#flags-of-a-job).")
    yield from _options(params, context)
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            child = command.get_command(context, name)
            assert child is not None, name
            below = click.Context(child, info_name=name, parent=context)
            yield from _about(child, below, depth + 1)


def _paragraphs(text: str) -> Iterator[str]:
    """Return the lines of a help text; what click would not wrap stays as it is."""
    for number, paragraph in enumerate(inspect.cleandoc(text).split("\n\n")):
        if number:
            yield ""
        first, *lines = paragraph.splitlines()
        if first == "\b":
            yield from ("```text", *lines, "```")
        else:
            yield from (first, *lines)


def _options(params: Sequence[click.Parameter], context: click.Context) -> list[str]:
    rows = [
        (_names(record[0]), _meaning(param, record[1]))
        for param in params
        if isinstance(param, click.Option)
        and (record := param.get_help_record(context)) is not None
    ]
    return table(("option", "means"), rows)


def _names(text: str) -> str:
    return ", ".join(f"`{part}`" for part in text.replace(" / ", ", ").split(", "))


def _meaning(param: click.Option, text: str) -> str:
    if isinstance(param.default, FromSettings):
        return f"{text} Setting: `{param.default.name}`."
    return text
