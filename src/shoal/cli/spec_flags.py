"""A job on a command line: a file, flags, or a command after `--`."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from shoal.cli.options import talk
from shoal.errors import SpecError, UsageError

F = TypeVar("F", bound=Callable[..., Any])

COMMAND: Final = "shoal.command"

_FLAGS: Final[tuple[tuple[tuple[str, ...], dict[str, Any]], ...]] = (
    (("--name",), {"help": "What to call the job."}),
    (("--recipe",), {"help": "A training program that comes with shoal."}),
    (
        ("-p", "--param", "params"),
        {"multiple": True, "metavar": "NAME=VALUE", "help": "For {NAME}, or a recipe."},
    ),
    (("--gpus",), {"help": "How many, or which: 2, 24GB:2, A100:80GB."}),
    (("--memory",), {"help": "The MB that each GPU must have, as a bare number."}),
    (("--gpu-mem",), {"help": "What each GPU must have: 24GB."}),
    (("--cpu", "--cpus", "cpu"), {"help": "CPUs of one task."}),
    (("--ram",), {"help": "Main memory of one task: 16GB."}),
    (("--disk",), {"help": "Scratch space of one task: 20GB."}),
    (("--nodes",), {"help": "Run it on several nodes together: 2, or 2..4."}),
    (("--array",), {"help": "Many tasks, told apart by {index}: 100, or 0-99:5."}),
    (("--workdir",), {"help": "The folder that travels with the job."}),
    (("--setup",), {"help": "Runs on each node before the command."}),
    (
        ("-e", "--env"),
        {"multiple": True, "metavar": "NAME=VALUE", "help": "A variable it sees."},
    ),
    (("--secret", "secrets"), {"multiple": True, "help": "A stored secret it sees."}),
    (("--image",), {"help": "The container image to run in."}),
    (("--output", "outputs"), {"multiple": True, "help": "A path that is kept."}),
    (("--priority",), {"type": int, "help": "The higher goes first: -100 to 100."}),
    (
        ("--preempt/--no-preempt",),
        {"default": None, "help": "Whether it may displace a lower priority."},
    ),
    (
        ("--preemptible/--not-preemptible",),
        {"default": None, "help": "Whether a higher priority may displace it."},
    ),
    (("--retries",), {"type": int, "help": "How often a task is tried again."}),
    (("--time-limit",), {"help": "When a task is ended: 90s, 2h."}),
    (("--grace",), {"help": "Between SIGTERM and SIGKILL: 10s."}),
    (("--policy",), {"help": "How nodes are ranked; `shoal policy list`."}),
    (
        ("--label", "labels"),
        {"multiple": True, "metavar": "NAME=VALUE", "help": "One a node must have."},
    ),
    (("--max-rtt",), {"help": "Farthest a node may be: 50ms."}),
    (
        ("--network/--no-network",),
        {"default": None, "help": "Whether it may use the network."},
    ),
    (("--driver",), {"help": "What runs it: process or container."}),
    (
        ("--at-most-once/--maybe-twice", "at_most_once"),
        {"default": None, "help": "Whether it must never run a second time."},
    ),
    (
        ("--speculate/--no-speculate",),
        {"default": None, "help": "Whether a straggler is run elsewhere as well."},
    ),
)


class JobCommand(click.Command):
    """A command that takes a job: what follows `--` is run as it stands."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Put what follows `--` aside."""
        if "--" in args:
            place = args.index("--")
            ctx.meta[COMMAND] = tuple(args[place + 1 :])
            args = args[:place]
        return super().parse_args(ctx, args)

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        """Say that a command may follow."""
        return [*super().collect_usage_pieces(ctx), "[-- COMMAND...]"]


def flags_of_a_job() -> list[click.Option]:
    """Return the flags that describe a job, without a command around them."""
    return [click.Option(names, **settings) for names, settings in _FLAGS]


def job_options(command: F) -> F:
    """Add the file and all flags of a job; they arrive as `file`, `config`, `flags`."""
    for names, settings in reversed(_FLAGS):
        command = click.option(*names, **settings)(command)
    command = click.option(
        "--config", metavar="FILE", help="A task of the first training scheduler."
    )(command)
    return click.argument("words", nargs=-1, metavar="[FILE]")(command)


def spec_of(words: tuple[str, ...], config: str | None, flags: dict[str, Any]) -> str:
    """Return the spec that a command line describes, in JSON."""
    # Slow to import, so not before it is needed.
    import msgspec  # noqa: PLC0415

    from shoal.cli.scripts import is_script, read_script  # noqa: PLC0415
    from shoal.model.submission import load_spec, spec_from_flags  # noqa: PLC0415

    command: tuple[str, ...] | None = click.get_current_context().meta.get(COMMAND)
    file = _file(words, config, command)
    base = None
    given = _given(flags)
    if file is not None:
        text = _read(file, is_config=config is not None)
        if is_script(text):
            script = read_script(file, text, _flags_of)
            for note in script.notes:
                talk(f"note: {note}")
            given = {**script.flags, **given}
        else:
            is_json = file.endswith(".json") or text.lstrip()[:1] == b"{"
            try:
                base = load_spec(text, "json" if is_json or config else "yaml")
            except SpecError as error:
                raise _in_file(file, error) from None
    for name in ("array", "nodes"):
        if str(given.get(name, "")).isdecimal():
            given[name] = int(given[name])  # A number is how many, a text is which.
    if command:
        given["command"] = command
    if base is None and not given:
        raise UsageError(
            "there is nothing to run",
            because="neither a file nor a flag nor a command was given",
            hint="shoal run -- python -c 'print(6 * 7)'",
        )
    spec = base if base is not None and not given else spec_from_flags(given, base)
    return json.dumps(msgspec.to_builtins(spec))


def _in_file(file: str, error: SpecError) -> SpecError:
    """Say in which file a spec is wrong; of several one may not know."""
    name = "what stdin has" if file == "-" else file
    what = error.what.removeprefix("the spec ")
    what = f"{name} {what}" if what != error.what else f"{name}: {what}"
    return SpecError(what, because=error.because, hint=error.hint)


def _given(flags: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in flags.items() if value not in (None, ())}


def _flags_of(words: list[str]) -> dict[str, Any]:
    """Return the flags of a line that stands in a script."""
    options: list[click.Parameter] = [*flags_of_a_job()]
    reader = click.Command("#SHOAL", params=options, add_help_option=False)
    with reader.make_context("#SHOAL", list(words)) as context:
        return _given(context.params)


def _file(
    words: tuple[str, ...], config: str | None, command: tuple[str, ...] | None
) -> str | None:
    if command is not None and not command:
        raise UsageError("no command follows --", hint="shoal run -- python train.py")
    if len(words) > 1:
        typed = " ".join(words)
        raise UsageError(
            f"'{words[1]}' is one word too many",
            because="before -- there is one file at most",
            hint=f"to run a command, put -- before it: shoal run -- {typed}",
        )
    if words and config:
        raise UsageError(
            f"both {words[0]} and --config {config}",
            because="each describes a job",
            hint="keep one of them",
        )
    return config or (words[0] if words else None)


def _read(file: str, *, is_config: bool) -> bytes:
    try:
        if file == "-":
            return sys.stdin.buffer.read()
        return Path(file).read_bytes()
    except OSError as error:
        raise UsageError(
            f"cannot read {file}",
            because=error.strerror or str(error),
            hint="name a file that you can read"
            if is_config
            else f"to run a command, put -- before it: shoal run -- {file}",
        ) from None
