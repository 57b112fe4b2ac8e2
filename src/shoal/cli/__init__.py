"""The command `shoal`: one verb, one module, imported only when it is called.

Data goes to stdout, everything else to stderr. A command raises a `ShoalError` when
it cannot do its work; `main` turns that into text and an exit code.
"""

import contextlib
import errno
import importlib
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, NoReturn

import click
from click.exceptions import NoArgsIsHelpError

from shoal import __version__
from shoal.cli.exit_codes import ExitCode
from shoal.cli.terminal import echo_lines, safe_lines
from shoal.errors import (
    NotAllowedError,
    NotFoundError,
    ShoalError,
    SpecError,
    UnreachableError,
    UsageError,
)

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

HEAVY = frozenset({"asyncio", "concurrent.futures", "grpc", "multiprocessing"})
"""Modules that start threads or processes, or have something to write at the end."""

COMMANDS: dict[str, str] = {
    "accept": "shoal.cli.accept:accept",
    "audit": "shoal.cli.audit:audit",
    "cancel": "shoal.cli.cancel:cancel",
    "completion": "shoal.cli.completion:completion",
    "doctor": "shoal.cli.doctor:doctor",
    "down": "shoal.cli.down:down",
    "events": "shoal.cli.events:events",
    "explain": "shoal.cli.explain:explain",
    "init": "shoal.cli.init:init",
    "invite": "shoal.cli.invite:invite",
    "join": "shoal.cli.join:join",
    "key": "shoal.cli.key:key",
    "logs": "shoal.cli.logs:logs",
    "monitor": "shoal.cli.monitor.command:monitor",
    "nodes": "shoal.cli.nodes:nodes",
    "ping": "shoal.cli.ping:ping",
    "plan": "shoal.cli.plan:plan",
    "policy": "shoal.cli.policy:policy",
    "ps": "shoal.cli.ps:ps",
    "renew": "shoal.cli.renew:renew",
    "retry": "shoal.cli.retry:retry",
    "pull": "shoal.cli.pull:pull",
    "revoke": "shoal.cli.revoke:revoke",
    "run": "shoal.cli.run:run",
    "schema": "shoal.cli.schema:schema",
    "secret": "shoal.cli.secret:secret",
    "token": "shoal.cli.token:token",
    "server": "shoal.cli.server:server",
    "set": "shoal.cli.set:set_",
    "show": "shoal.cli.show:show",
    "sim": "shoal.cli.sim:sim",
    "submit": "shoal.cli.submit:submit",
    "top": "shoal.cli.monitor.command:monitor",
    "up": "shoal.cli.up:up",
    "wait": "shoal.cli.wait:wait",
    "web": "shoal.cli.web:web",
    "worker": "shoal.cli.worker:worker",
}


HELP = {
    "Jobs": {
        "run": "Submit a job, show its output, exit with its code.",
        "submit": "Submit a job and print its id.",
        "ps": "List jobs.",
        "show": "Show one job and its tasks.",
        "logs": "Print what a job wrote.",
        "wait": "Wait for jobs to end.",
        "pull": "Take what a job has left.",
        "cancel": "Cancel jobs.",
        "retry": "Run a job that has ended once more.",
        "explain": "Say why a job waits, or runs where it runs.",
        "plan": "Say where a job would go, and submit nothing.",
    },
    "Nodes": {
        "up": "Run a node here.",
        "down": "End the node that runs here.",
        "nodes": "List this node and the workers it knows.",
        "ping": "Measure how far away other nodes are.",
        "init": "Make a shoal, with a name.",
        "invite": "Let somebody join the shoal.",
        "join": "Join somebody's shoal.",
        "accept": "Let machines in that are near, and asked.",
        "revoke": "Turn a node out of the shoal.",
        "key": "Lock the root key of a shoal, or open it.",
        "renew": "Sign this node's grant anew, by the root key.",
        "doctor": "Check this machine, and say what to mend.",
        "server": "Run a node that lends nothing: up --no-worker.",
        "worker": "Run a node that works for the scheduler at an address.",
    },
    "Views": {
        "top": "Watch nodes and jobs.",
        "monitor": "The same, by the name of the first scheduler.",
        "web": "Watch nodes and jobs in a browser.",
        "events": "Print what happens, line by line.",
        "audit": "Print who did what here, and from where.",
    },
    "Other": {
        "set": "Say once what would be a flag each time.",
        "secret": "Keep secrets for jobs.",
        "token": "Show or replace the token of this node.",
        "sim": "Simulate a data centre, with the machines of live nodes.",
        "policy": "List the policies that place tasks, and test them.",
        "schema": "Print the JSON Schema of job specs.",
        "completion": "Let the shell complete what you type.",
    },
}


ELSEWHERE: dict[str, str] = {
    **dict.fromkeys(("status", "list", "ls", "jobs", "queue", "squeue"), "ps"),
    **dict.fromkeys(("kill", "delete", "rm", "scancel"), "cancel"),
    **dict.fromkeys(("describe", "inspect"), "show"),
    **dict.fromkeys(("workers", "sinfo"), "nodes"),
    "sbatch": "submit",
    "srun": "run",
    "start": "up",
    "stop": "down",
    "help": "--help",
    "version": "--version",
}
"""What other tools call things, and what `shoal` calls them."""


class LazyGroup(click.Group):
    """A group that imports the module of a command when the command is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all commands, in the order of the alphabet."""
        return sorted(COMMANDS)

    def format_commands(
        self, ctx: click.Context, formatter: click.HelpFormatter
    ) -> None:
        """List the commands by what they are for, without importing them."""
        for title, commands in HELP.items():
            with formatter.section(title):
                formatter.write_dl(list(commands.items()))

    def shell_complete(
        self, ctx: click.Context, incomplete: str
    ) -> "list[CompletionItem]":
        """Offer commands without importing them."""
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
        """Find the command that is meant, or say which one is nearest."""
        if args[0] in COMMANDS or args[0].startswith("-"):
            return super().resolve_command(ctx, args)
        from difflib import get_close_matches  # noqa: PLC0415 - Only after a mistake.

        meant = ELSEWHERE.get(args[0])
        near = [meant] if meant else get_close_matches(args[0], COMMANDS, n=1)
        raise UsageError(
            f"there is no command '{args[0]}'",
            hint=f"did you mean 'shoal {near[0]}'?"
            if near
            else "`shoal --help` lists all commands",
        )

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return the command of this name, if there is one."""
        if cmd_name not in COMMANDS:
            return None
        module, _, attribute = COMMANDS[cmd_name].partition(":")
        command = getattr(importlib.import_module(module), attribute)
        assert isinstance(command, click.Command), COMMANDS[cmd_name]
        return command


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="shoal")
@click.option("--color/--no-color", default=None, help="Whether to use colours.")
@click.option("--net", metavar="NAME", help="Use the home of this name, of several.")
def shoal(color: bool | None, net: str | None) -> None:
    """Pool the machines you have and run jobs on them, without a server."""
    _choose_net(net)
    if color is not None:  # The commands look there; they are imported later.
        os.environ["SHOAL_COLOR"] = "true" if color else "false"


def _choose_net(net: str | None) -> None:
    """Let a flag win over `SHOAL_HOME`, and that over what is set in files."""
    if net:
        os.environ.pop("SHOAL_HOME", None)
        os.environ["SHOAL_NET"] = net
    elif "SHOAL_HOME" not in os.environ and "SHOAL_NET" not in os.environ:
        from shoal.cli.settings import current  # noqa: PLC0415 - Commands import it.

        with contextlib.suppress(ShoalError):  # Who needs the settings will tell.
            if found := current().find("net").value:
                os.environ["SHOAL_NET"] = str(found)


def explained(error: ShoalError) -> str:
    """Lay out what failed, why, and what to do next, one line each."""
    parts = {"error: ": error.what, "why:   ": error.because, "next:  ": error.hint}
    return "\n".join(
        head + safe_lines(text, " " * len(head)) for head, text in parts.items() if text
    )


def exit_code_of(error: ShoalError) -> ExitCode:
    """Return what a script learns of an error."""
    match error:
        case UsageError():
            return ExitCode.USAGE
        case NotFoundError():
            return ExitCode.NOT_FOUND
        case NotAllowedError():
            return ExitCode.NOT_ALLOWED
        case UnreachableError():
            return ExitCode.UNREACHABLE
        case _:
            return ExitCode.ERROR


def main(args: Sequence[str] | None = None) -> None:
    """Run one command line, by default that of this process, and exit."""
    try:
        code = shoal.main(args=args, prog_name="shoal", standalone_mode=False)
    except NoArgsIsHelpError as error:
        echo_lines(error.format_message(), err=True)
        sys.exit(ExitCode.USAGE)
    except click.UsageError as error:
        _fail(_retold(error))
    except ShoalError as error:
        _fail(_with_hint(error, args if args is not None else sys.argv[1:]))
    except click.ClickException as error:
        _fail(ShoalError(error.format_message()))
    except click.Abort:
        sys.exit(ExitCode.INTERRUPTED)
    except BrokenPipeError:
        write_nowhere()  # Who reads has enough, as in `shoal ps | head`.
        sys.exit(ExitCode.ERROR)
    except OSError as error:
        write_nowhere()
        _fail(_of_the_machine(error))
    except Exception as error:
        if os.environ.get("SHOAL_DEBUG"):
            raise
        _fail(_bug(error))
    code = code if isinstance(code, int) else ExitCode.OK
    if args is None:
        _leave_at_once(code)
    sys.exit(code)


def _leave_at_once(code: int) -> None:
    """End without taking Python apart, which takes a sixth of what `shoal ps` does.

    Only where nothing was loaded that may have something to bring to an end.
    """
    if HEAVY.isdisjoint(sys.modules):
        with contextlib.suppress(OSError):  # Whoever read has gone.
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)


def _fail(error: ShoalError) -> NoReturn:
    echo_lines(explained(error), err=True)
    sys.exit(exit_code_of(error))


def _with_hint(error: ShoalError, args: Sequence[str]) -> ShoalError:
    """Say at least where to read on, if whoever raised it knows no better."""
    if not error.hint and isinstance(error, SpecError) and "`$" in error.what:
        error.hint = "`shoal schema` says what each field of a spec may be"
    elif not error.hint:
        command = f" {args[0]}" if args and args[0] in COMMANDS else ""
        error.hint = f"`shoal{command} --help` says what can be said"
    return error


def write_nowhere(*, err: bool = False) -> None:
    """Drop what could not be written: Python would complain again when it ends."""
    stream = sys.stderr if err else sys.stdout
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _of_the_machine(error: OSError) -> ShoalError:
    """Say what no command foresaw: a full disk, a file that is in the way."""
    return ShoalError(
        f"cannot use {error.filename or 'the output'}",
        because=error.strerror or str(error),
        hint="free some space, or take another disk"
        if error.errno in (errno.ENOSPC, errno.EDQUOT)
        else "name a place where you may read and write",
    )


def _bug(error: Exception) -> ShoalError:
    return ShoalError(
        "shoal failed, and that is a bug of shoal",
        because=f"{type(error).__name__}: {error}",
        hint="the same command with SHOAL_DEBUG=1 before it shows where",
    )


def _retold(error: click.UsageError) -> UsageError:
    """Say in our form what click found wrong with a command line."""
    path = error.ctx.command_path if error.ctx is not None else "shoal"
    what = " ".join(error.format_message().split()).rstrip(".")
    return UsageError(what, hint=f"`{path} --help` lists what can be said")
