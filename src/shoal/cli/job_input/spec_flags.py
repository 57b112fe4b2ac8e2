"""A job on the command line: a file, flags, or a command after `--`."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from shoal.cli.job_input.completion_types import NODE
from shoal.cli.job_input.own_files import (
    first_word,
    flags_of_program,
    left_behind,
    program_at,
)
from shoal.cli.options import OptionTable, options_of, talk
from shoal.errors import SpecError, UsageError, did_you_mean

if TYPE_CHECKING:
    from shoal.model.spec.spec import JobSpec

F = TypeVar("F", bound=Callable[..., Any])

COMMAND: Final = "shoal.command"
PROGRAM: Final = "shoal.program"
BINARY_BYTES: Final = 4_096
FILES: Final = frozenset({".py", ".sh", ".yaml", ".yml", ".json"})
FILES_LOOKED_AT_MAX: Final = 1_000

_FLAGS: Final[OptionTable] = (
    (("--name",), {"help": "Name of the job."}),
    (("--recipe",), {"help": "Training program that comes with shoal."}),
    (
        ("-p", "--param", "params"),
        {
            "multiple": True,
            "metavar": "NAME=VALUE",
            "help": "Value for {NAME}, or for the recipe.",
        },
    ),
    (("--gpus", "--gpu", "gpus"), {"help": "GPUs per task: 2, 24GB:2, A100:80GB."}),
    (("--memory",), {"help": "Minimum memory per GPU in MB."}),
    (("--gpu-mem",), {"help": "Minimum memory per GPU: 24GB."}),
    (("--cpu", "--cpus", "cpu"), {"help": "CPUs per task."}),
    (("--ram",), {"help": "Main memory per task: 16GB."}),
    (("--disk",), {"help": "Scratch space per task: 20GB."}),
    (("--nodes",), {"help": "Run as a gang of tasks: 2, or 2..4."}),
    (
        ("--distinct-nodes/--shared-nodes",),
        {"default": None, "help": "Whether each task of a gang has its own node."},
    ),
    (("--array",), {"help": "Run many tasks, numbered by {index}: 100, or 0-99:5."}),
    (("--workdir",), {"help": "Folder to send along with the job."}),
    (("--setup",), {"help": "Command to run on each node first."}),
    (
        ("-e", "--env"),
        {
            "multiple": True,
            "metavar": "NAME=VALUE",
            "help": "Environment variable of the job.",
        },
    ),
    (
        ("--secret", "secrets"),
        {"multiple": True, "help": "Stored secret to pass to the job."},
    ),
    (
        ("--python",),
        {
            "multiple": True,
            "metavar": "WHAT",
            "help": "Python environment: requirements.txt, pyproject.toml, a version "
            "such as 3.12, or a name that workers offer.",
        },
    ),
    (
        ("--package", "packages"),
        {"multiple": True, "help": "Package that the Python environment has."},
    ),
    (
        ("--mount", "mounts"),
        {"multiple": True, "metavar": "NAME", "help": "Folder that workers share."},
    ),
    (
        ("--cache", "--keep-cache", "cache"),
        {
            "multiple": True,
            "metavar": "NAME",
            "help": "Cache that lasts on a worker: huggingface, torch, pip, uv.",
        },
    ),
    (("--image",), {"help": "Container image to run in."}),
    (("--output", "outputs"), {"multiple": True, "help": "Path to keep as an output."}),
    (
        ("--priority",),
        {"type": int, "help": "Priority from -100 to 100; higher runs first."},
    ),
    (
        ("--preempt/--no-preempt",),
        {"default": None, "help": "Whether it may displace jobs of lower priority."},
    ),
    (
        ("--preemptible/--not-preemptible",),
        {"default": None, "help": "Whether jobs of higher priority may displace it."},
    ),
    (("--retries",), {"type": int, "help": "How often to retry a failed task."}),
    (
        ("--retry-on",),
        {
            "multiple": True,
            "metavar": "REASON",
            "help": "Retry only then: an exit code, failed or worker-lost.",
        },
    ),
    (("--time-limit",), {"help": "Time limit per task: 90s, 2h."}),
    (
        ("--schedule",),
        {
            "metavar": "CRON",
            "help": "Run it again and again: '0 3 * * *', or @daily; times are UTC.",
        },
    ),
    (("--grace",), {"help": "Time between SIGTERM and SIGKILL: 10s."}),
    (("--policy",), {"help": "Placement policy; see `shoal policy list`."}),
    (
        ("--label", "labels"),
        {
            "multiple": True,
            "metavar": "NAME=VALUE",
            "help": "Label that a node must have.",
        },
    ),
    (
        ("--on",),
        {
            "multiple": True,
            "metavar": "NODE",
            "type": NODE,
            "help": "Node that may run it, by name; others may not.",
        },
    ),
    (("--max-rtt",), {"help": "Maximum round-trip time to a node: 50ms."}),
    (
        ("--network/--no-network",),
        {"default": None, "help": "Whether it may use the network."},
    ),
    (("--driver",), {"help": "Driver: process or container."}),
    (
        ("--at-most-once/--maybe-twice", "at_most_once"),
        {"default": None, "help": "Never start a task a second time."},
    ),
    (
        ("--speculate/--no-speculate",),
        {"default": None, "help": "Run a copy of a straggler elsewhere."},
    ),
    (
        ("--keepers",),
        {
            "type": click.IntRange(0, 4),
            "metavar": "N",
            "help": "How many other nodes of yours keep the job (0, 2 or 4), and go on "
            "with it if this one is gone.",
        },
    ),
)


class JobCommand(click.Command):
    """A click command that takes a job.

    The words after `--` are its command; those from a Python program on are that
    program's.
    """

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Set the words of a command or a program aside."""
        if "--" in args:
            place = args.index("--")
            ctx.meta[COMMAND] = tuple(args[place + 1 :])
            args = args[:place]
        elif (begin := program_at(args, self.params)) is not None:
            ctx.meta[PROGRAM] = tuple(args[begin:])
            args = args[:begin]
        try:
            return super().parse_args(ctx, [*args])  # It takes words off the list.
        except click.NoSuchOption as error:
            if (typed := _command_in(args, error.option_name, self.params)) is None:
                raise
            raise UsageError(
                f"no such option '{error.option_name}'",
                because=f"'{typed[0]}' is taken for a file that describes a job",
                hint="to run a command, put -- before it: "
                f"shoal {ctx.info_name} -- {shlex.join(typed)}",
            ) from None

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        """Show in the usage line that a command may follow."""
        return [*super().collect_usage_pieces(ctx), "[-- COMMAND...]"]


def _command_in(
    args: list[str], option: str, params: list[click.Parameter]
) -> list[str] | None:
    """Return the command that was typed without `--` before it, if an option is its."""
    from shutil import which  # noqa: PLC0415 - Slow to import, and seldom needed.

    begin = first_word(args, params)
    if begin is None or Path(args[begin]).is_file() or not which(args[begin]):
        return None
    typed = args[begin:]
    return typed if any(word.split("=")[0] == option for word in typed) else None


def flags_of_a_job() -> list[click.Option]:
    """Return the options that describe a job."""
    return [click.Option(names, **settings) for names, settings in _FLAGS]


def job_flags(command: F) -> F:
    """Add the flags of a job, without a file; they arrive as `flags`."""
    return options_of(_FLAGS)(command)


def spec_of_flags(given: dict[str, Any]) -> str:
    """Return the job spec of flags that were given, as JSON."""
    import msgspec  # noqa: PLC0415 - Slow to import.

    from shoal.model.spec.submission import spec_from_flags  # noqa: PLC0415

    return json.dumps(msgspec.to_builtins(spec_from_flags(given, None)))


def job_options(command: F) -> F:
    """Add the file and flags of a job; they arrive as `words`, `config`, `flags`."""
    command = job_flags(command)
    command = click.option(
        "--config", metavar="FILE", help="Task file of the original training scheduler."
    )(command)
    return click.argument("words", nargs=-1, metavar="[FILE]")(command)


def spec_of(words: tuple[str, ...], config: str | None, flags: dict[str, Any]) -> str:
    """Return the job spec of a command line, as JSON."""
    # Slow to import, so not before it is needed.
    import msgspec  # noqa: PLC0415

    from shoal.cli.job_input.script_headers import is_script, read_script  # noqa: PLC0415
    from shoal.model.spec.submission import load_spec, spec_from_flags  # noqa: PLC0415

    meta = click.get_current_context().meta
    command: tuple[str, ...] | None = meta.get(COMMAND)
    file = _file(words, config, command)
    base = None
    given = _given(flags)
    if PROGRAM in meta:
        given = {**flags_of_program(meta[PROGRAM]), **given}
    if file is not None:
        text = _read(file, is_config=config is not None)
        _refuse_binary(file, text)
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
        _tell_of_files(command, given, base)
    if base is None and not given:
        raise UsageError(
            "there is nothing to run",
            because="no file, flag or command was given",
            hint="shoal run -- python -c 'print(6 * 7)'",
        )
    spec = base if base is not None and not given else spec_from_flags(given, base)
    if spec.on_end is not None and spec.on_end.command:
        typed = shlex.join(map(str, spec.on_end.command))
        talk(f"note: at its end the job runs this as you, unconfined: {typed}")
    return json.dumps(msgspec.to_builtins(spec))


def _refuse_binary(file: str, text: bytes) -> None:
    """Raise if a file is a program: what describes a job has no zero bytes."""
    if b"\0" not in text[:BINARY_BYTES]:
        return
    verb = click.get_current_context().info_name
    raise UsageError(
        f"{file} does not describe a job",
        because="it is not text, but looks like a program",
        hint=f"to run it: shoal {verb} -- {shlex.quote(file)}",
    )


def _tell_of_files(
    command: tuple[str, ...], given: dict[str, Any], base: JobSpec | None
) -> None:
    """Tell the user of a file that the command names, and that stays here."""
    travels = given.get("workdir") or (base is not None and base.workdir)
    if not travels and (name := left_behind(command)) is not None:
        talk(f"note: {name} is here, and the job runs elsewhere: add --workdir .")


def _in_file(file: str, error: SpecError) -> SpecError:
    """Name the file in which a spec is wrong."""
    name = "stdin" if file == "-" else file
    what = error.what.removeprefix("the spec ")
    what = f"{name} {what}" if what != error.what else f"{name}: {what}"
    return SpecError(what, because=error.because, hint=error.hint)


def _given(flags: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in flags.items() if value not in (None, ())}


def _flags_of(words: list[str]) -> dict[str, Any]:
    """Parse the flags on one line of a script."""
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
            f"unexpected argument '{words[1]}'",
            because="at most one file may come before --",
            hint=f"to run a command, put -- before it: shoal run -- {typed}",
        )
    if words and config:
        raise UsageError(
            f"{words[0]} and --config {config} contradict each other",
            because="both describe a job",
            hint="use one of them",
        )
    return config or (words[0] if words else None)


def _instead_of(file: str) -> str:
    """Return what may have been meant by a name that is no file here."""
    path = Path(file)
    if path.suffix in FILES:  # A mistyped name, or another folder.
        found = sorted(path.parent.glob(f"*{path.suffix}"))[:FILES_LOOKED_AT_MAX]
        near = did_you_mean(path.name, [each.name for each in found])
        return near or f"check its name; you are in {Path.cwd()}"
    return f"to run a command, put -- before it: shoal run -- {shlex.quote(file)}"


def _read(file: str, *, is_config: bool) -> bytes:
    try:
        if file == "-":
            return sys.stdin.buffer.read()
        return Path(file).read_bytes()
    except OSError as error:
        is_missing = isinstance(error, FileNotFoundError) and not is_config
        raise UsageError(
            f"cannot read {file}",
            because=error.strerror or str(error),
            hint=_instead_of(file) if is_missing else "choose a file that you can read",
        ) from None
