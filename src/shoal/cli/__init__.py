"""The `shoal` command: one module per verb, imported only when that verb is used.

Data goes to stdout, everything else to stderr. A command that fails raises a
`ShoalError`; `main` turns it into text and an exit code.
"""

import atexit
import contextlib
import errno
import importlib
import os
import sys
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, NoReturn

import click
from click.exceptions import NoArgsIsHelpError

from shoal import __version__
from shoal.cli.exit_codes import ExitCode
from shoal.cli.terminal import echo_lines, safe_lines
from shoal.errors import (
    MovedError,
    NotAllowedError,
    NotFoundError,
    ShoalError,
    SpecError,
    UnreachableError,
    UsageError,
    did_you_mean,
)

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

ROOMS = {
    "config": "completion policy schema",
    "jobs": "cancel events explain logs metrics plan ps pull retry rm run show "
    "submit usage wait",
    "lab": "sim",
    "members": "accept audit init invite join key leave renew revoke secret token",
    "nodes": "alloc doctor down drain nodes ping server up web worker",
    "tasks": "forward notebook",
}
"""Commands by room; each is a function in the module of its name."""

HOPS_MAX = 2
FOLLOWED = ("cancel", "explain", "logs", "metrics", "pull", "show", "wait")
"""Commands that go to the node that has a job, if the one that was asked keeps it."""

COMMANDS: dict[str, str] = {
    **{
        name: f"shoal.cli.{room}.{name}:{name}"
        for room, names in ROOMS.items()
        for name in names.split()
    },
    **dict.fromkeys(("monitor", "top"), "shoal.cli.monitor.command:monitor"),
    "exec": "shoal.cli.tasks.exec:exec_",
    "set": "shoal.cli.config.set:set_",
    "slurm": "shoal.cli.slurm.command:slurm",
}


HELP = {
    "Jobs": {
        "run": "Submit a job, stream its output, exit with its code.",
        "submit": "Submit a job and print its id.",
        "ps": "List jobs.",
        "show": "Show a job and its tasks.",
        "logs": "Print a job's output.",
        "exec": "Run a command inside a running task.",
        "forward": "Reach TCP ports of a running task.",
        "notebook": "Run JupyterLab in a task, and reach it from here.",
        "metrics": "Print or export what a job reported by shoal.log.",
        "wait": "Wait for jobs to finish.",
        "pull": "Download a job's outputs.",
        "cancel": "Cancel jobs.",
        "retry": "Run a finished job again.",
        "rm": "Remove ended jobs and what they left.",
        "usage": "Show CPU- and GPU-hours by owner.",
        "explain": "Explain why a job waits or runs where it does.",
        "plan": "Show where a job would run, without submitting it.",
    },
    "Nodes": {
        "up": "Start a node on this machine.",
        "down": "Stop the node on this machine.",
        "nodes": "List this node and the workers it knows.",
        "alloc": "Let a cluster lend workers while jobs wait.",
        "drain": "Let a node take no new tasks, or take them again.",
        "ping": "Measure round-trip times to other nodes.",
        "init": "Create a named shoal.",
        "invite": "Create an invitation to join the shoal.",
        "join": "Join a shoal by invitation.",
        "leave": "Leave the shoal for good.",
        "accept": "Approve join requests from the local network.",
        "revoke": "Remove a node from the shoal.",
        "key": "Lock or unlock the shoal's root key.",
        "renew": "Renew this node's grant with the root key.",
        "doctor": "Check this machine and suggest fixes.",
        "server": "Start a scheduler only: up --no-worker.",
        "worker": "Start a worker for the scheduler at an address.",
    },
    "Views": {
        "top": "Watch nodes and jobs.",
        "monitor": "Same as top.",
        "web": "Watch nodes and jobs in a browser.",
        "events": "Print events as they happen.",
        "audit": "Print the audit log: who did what, and from where.",
    },
    "Other": {
        "set": "Set defaults for command-line flags.",
        "secret": "Store secrets for jobs.",
        "token": "Show or replace this node's access token.",
        "sim": "Simulate a data centre with the live scheduler's code.",
        "policy": "List and test placement policies.",
        "slurm": "Run scripts of Slurm, with sbatch, squeue, scancel, sinfo.",
        "schema": "Print the JSON Schema of job specs.",
        "completion": "Print a shell completion script.",
    },
}


ELSEWHERE: dict[str, str] = {
    **dict.fromkeys(("status", "list", "ls", "jobs", "queue", "squeue"), "ps"),
    **dict.fromkeys(("kill", "scancel"), "cancel"),
    **dict.fromkeys(("delete", "remove", "prune"), "rm"),
    **dict.fromkeys(("describe", "inspect"), "show"),
    **dict.fromkeys(("workers", "sinfo"), "nodes"),
    "sbatch": "submit",
    "srun": "run",
    "start": "up",
    "stop": "down",
    "help": "--help",
    "version": "--version",
}
"""Command names of other tools, and the `shoal` command for each."""


INVITATION: Final = "shoal1-"
"""How invitations begin: `net.joining.invitations` is too slow to load for this."""


class LazyGroup(click.Group):
    """A group that imports a command's module only when the command is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all commands, sorted."""
        return sorted(COMMANDS)

    def format_commands(
        self, ctx: click.Context, formatter: click.HelpFormatter
    ) -> None:
        """List the commands by topic, without importing them."""
        for title, commands in HELP.items():
            with formatter.section(title):
                formatter.write_dl(list(commands.items()))

    def shell_complete(
        self, ctx: click.Context, incomplete: str
    ) -> "list[CompletionItem]":
        """Complete command names without importing their modules."""
        from click.shell_completion import CompletionItem  # noqa: PLC0415 - Rare.

        return [
            CompletionItem(name, help=text)
            for commands in HELP.values()
            for name, text in commands.items()
            if name.startswith(incomplete)
        ]

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command, or suggest the nearest one."""
        if args[0] in COMMANDS or args[0].startswith("-"):
            name, command, rest = super().resolve_command(ctx, args)
            if ctx.params.get("as_json") and command is not None:
                rest = _with_json(ctx, f"shoal {name}", command, rest)
            return name, command, rest
        if args[0].lower().startswith(INVITATION):
            what = "an invitation is no command by itself"
            raise UsageError(what, hint="shoal join INVITATION")
        meant = ELSEWHERE.get(args[0])
        hint = did_you_mean(args[0], COMMANDS, before="shoal ")
        raise UsageError(
            f"there is no command '{args[0]}'",
            hint=(f"did you mean 'shoal {meant}'?" if meant else hint)
            or "`shoal --help` lists all commands",
        )

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return the command of this name, if it exists."""
        return imported(COMMANDS[cmd_name]) if cmd_name in COMMANDS else None


def _with_json(
    ctx: click.Context, name: str, command: click.Command, args: list[str]
) -> list[str]:
    """Return the words for a command with `--json` where that command takes it."""
    if isinstance(command, click.Group):
        inner = command.get_command(ctx, args[0]) if args else None
        if inner is not None:
            return [args[0], *_with_json(ctx, f"{name} {args[0]}", inner, args[1:])]
        if type(command) is click.Group:
            return args  # Whatever is wrong with them is told.
    takes = isinstance(command, click.Group) or any(
        "--json" in option.opts for option in command.params
    )
    if takes or {"-h", "--help"} & {*args}:
        return ["--json", *args] if takes else args
    raise UsageError(
        f"`{name}` has no --json",
        because="it prints no document",
        hint="leave --json out, or put it after the command that is to print JSON",
    )


def imported(place: str) -> click.Command:
    """Import and return the command at `module:name`."""
    module, _, name = place.partition(":")
    command = getattr(importlib.import_module(module), name)
    assert isinstance(command, click.Command), place
    return command


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="shoal")
@click.option("--color/--no-color", default=None, help="Turn colours on or off.")
@click.option(
    "--net", metavar="NAME", help="Use the home with this name, if you have several."
)
@click.option("--json", "as_json", is_flag=True, help="As --json of the command.")
def shoal(
    color: bool | None,
    net: str | None,
    as_json: bool,  # noqa: ARG001 - `LazyGroup` hands it on.
) -> None:
    """Pool your machines and run jobs on them, without a central server."""
    _choose_net(net)
    if color is not None:  # The commands look there; they are imported later.
        os.environ["SHOAL_COLOR"] = "true" if color else "false"


def _choose_net(net: str | None) -> None:
    """Choose the home: the flag wins over `SHOAL_HOME`, which wins over files."""
    if net:
        os.environ.pop("SHOAL_HOME", None)
        os.environ["SHOAL_NET"] = net
    elif "SHOAL_HOME" not in os.environ and "SHOAL_NET" not in os.environ:
        from shoal.cli.config.settings import current  # noqa: PLC0415 - Commands import it.

        with contextlib.suppress(
            ShoalError
        ):  # The command that needs the settings reports it.
            if found := current().find("net").value:
                os.environ["SHOAL_NET"] = str(found)


def explained(error: ShoalError) -> str:
    """Format an error as three lines: what failed, why, and what to do next."""
    parts = {"error: ": error.what, "why:   ": error.because, "next:  ": error.hint}
    return "\n".join(
        head + safe_lines(text, " " * len(head)) for head, text in parts.items() if text
    )


def explained_as_json(error: ShoalError) -> str:
    """Format an error as one line of JSON, with the same parts."""
    import json  # noqa: PLC0415 - Only after a mistake.

    parts = {"error": error.what, "why": error.because, "next": error.hint}
    found = {key: text for key, text in parts.items() if text}
    return json.dumps({**found, "exit_code": int(exit_code_of(error))})


CODES: dict[type[ShoalError], ExitCode] = {
    UsageError: ExitCode.USAGE,
    NotFoundError: ExitCode.NOT_FOUND,
    NotAllowedError: ExitCode.NOT_ALLOWED,
    UnreachableError: ExitCode.UNREACHABLE,
}


def exit_code_of(error: ShoalError) -> ExitCode:
    """Return the exit code for an error."""
    found = (code for type_, code in CODES.items() if isinstance(error, type_))
    return next(found, ExitCode.ERROR)


def main(args: Sequence[str] | None = None) -> None:
    """Run a command line, by default this process's own, and exit."""
    if args is not None:
        _run(args)
    codes: list[int] = []
    # Called last, since registered first: modules that are loaded later finish before.
    atexit.register(_leave_at_once, codes)
    try:
        _run(sys.argv[1:])
    except SystemExit as end:
        codes.append(int(end.code or 0))
        raise


def _run(args: Sequence[str]) -> NoReturn:
    fail = partial(_fail, wants_json=_wants_json(args))
    try:
        code = _followed(args)
    except NoArgsIsHelpError as error:
        echo_lines(error.format_message(), err=True)
        sys.exit(ExitCode.USAGE)
    except click.UsageError as error:
        fail(_retold(error))
    except ShoalError as error:
        fail(_with_hint(error, args))
    except click.ClickException as error:
        fail(ShoalError(error.format_message()))
    except click.Abort:
        sys.exit(ExitCode.INTERRUPTED)
    except BrokenPipeError:
        write_nowhere()  # The reader has gone, as in `shoal ps | head`.
        sys.exit(ExitCode.ERROR)
    except OSError as error:
        write_nowhere()
        fail(_of_the_machine(error))
    except Exception as error:
        if os.environ.get("SHOAL_DEBUG"):
            raise
        fail(_bug(error))
    sys.exit(code if isinstance(code, int) else ExitCode.OK)


def _followed(args: Sequence[str]) -> object:
    """Run a command; if its job is on another node of the owner, run it there."""
    for _ in range(HOPS_MAX):
        try:
            return shoal.main(args=args, prog_name="shoal", standalone_mode=False)
        except MovedError as error:
            words = [word for word in args if not word.startswith("-")]
            is_given = any(word.partition("=")[0] == "--node" for word in args)
            if is_given or not words or words[0] not in FOLLOWED:
                raise
            place = args.index(words[0]) + 1
            args = (*args[:place], "--node", error.node, *args[place:])
    return shoal.main(args=args, prog_name="shoal", standalone_mode=False)


def _leave_at_once(codes: list[int]) -> None:
    """Exit without tearing Python down: a third of a second of a node's CPU time.

    There is no code yet if the command ended by an error that is not ours.
    """
    with contextlib.suppress(OSError):  # The reader has gone.
        sys.stdout.flush()
        sys.stderr.flush()
        if codes:
            os._exit(codes[0])


def _wants_json(args: Sequence[str]) -> bool:
    """Whether JSON was asked for; what follows `--` is for another program."""
    own = args[: args.index("--")] if "--" in args else args
    return "--json" in own


def _fail(error: ShoalError, *, wants_json: bool) -> NoReturn:
    text = explained_as_json(error) if wants_json else explained(error)
    echo_lines(text, err=True)
    sys.exit(exit_code_of(error))


def _with_hint(error: ShoalError, args: Sequence[str]) -> ShoalError:
    """Add a pointer to the documentation to an error that has no hint."""
    if not error.hint and isinstance(error, SpecError) and "`$" in error.what:
        error.hint = "`shoal schema` lists the fields of a spec and their values"
    elif not error.hint:
        command = f" {args[0]}" if args and args[0] in COMMANDS else ""
        error.hint = f"`shoal{command} --help` lists the options"
    return error


def write_nowhere(*, err: bool = False) -> None:
    """Discard unwritten output, or Python would complain again at exit."""
    stream = sys.stderr if err else sys.stdout
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _of_the_machine(error: OSError) -> ShoalError:
    """Report an error that no command foresaw, such as a full disk."""
    return ShoalError(
        f"cannot use {error.filename or 'the output'}",
        because=error.strerror or str(error),
        hint="free some space, or use another disk"
        if error.errno in (errno.ENOSPC, errno.EDQUOT)
        else "choose a path that you can read and write",
    )


def _bug(error: Exception) -> ShoalError:
    return ShoalError(
        "shoal crashed; this is a bug in shoal",
        because=f"{type(error).__name__}: {error}",
        hint="run the command again with SHOAL_DEBUG=1 to see where",
    )


def _retold(error: click.UsageError) -> UsageError:
    """Turn click's complaint about a command line into our form."""
    path = error.ctx.command_path if error.ctx is not None else "shoal"
    what = " ".join(error.format_message().split()).rstrip(".")
    return UsageError(what, hint=f"`{path} --help` lists the options")
