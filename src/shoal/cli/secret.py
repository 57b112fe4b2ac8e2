"""`shoal secret`: values that jobs see and nobody else does."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

from shoal.api import client as api
from shoal.cli.options import json_option, node_option, quiet_option, suggest, talk
from shoal.cli.printing import echo_json
from shoal.cli.terminal import echo
from shoal.errors import UsageError


@click.group()
def secret() -> None:
    """Keep secrets for jobs: tokens, keys, passwords.

    A job names the secrets that it needs, and its tasks see them as variables. They
    are kept on this node, sealed to its key, and leave it sealed to the key of the
    worker that runs the task. They are never shown again.
    """


@secret.command("set")
@click.argument("name")
@click.option("--from-env", is_flag=True, help="Take the variable of the same name.")
@click.option("--from-file", metavar="FILE", help="Take what is in a file.")
@node_option
@quiet_option
def set_secret(
    name: str, from_env: bool, from_file: str | None, node: str | None, quiet: bool
) -> None:
    """Keep a value under NAME: typed, from standard input, a file or a variable."""
    value = _value(name, from_env=from_env, from_file=from_file)
    with api.connect(node) as client:
        replaced = client.set_secret(name, value)
    talk(f"secret {name} {'replaced' if replaced else 'kept'}", quiet=quiet)
    suggest(f"shoal run --secret {name} -- COMMAND", quiet=quiet)


@secret.command("list")
@node_option
@json_option
def list_secrets(node: str | None, as_json: bool) -> None:
    """Print the names of all secrets."""
    with api.connect(node) as client:
        names = client.secrets()
    if as_json:
        echo_json({"secrets": names})
        return
    for name in names:
        echo(name)
    if not names:
        talk("there are no secrets")
        suggest("shoal secret set NAME")


@secret.command("rm")
@click.argument("name")
@node_option
@quiet_option
def remove_secret(name: str, node: str | None, quiet: bool) -> None:
    """Forget the secret NAME. Tasks that run keep what they have."""
    with api.connect(node) as client:
        client.remove_secret(name)
    talk(f"secret {name} removed", quiet=quiet)


def _value(name: str, *, from_env: bool, from_file: str | None) -> str:
    if from_env and from_file:
        raise UsageError("both --from-env and --from-file", hint="keep one of them")
    if from_env:
        value = os.environ.get(name)
        if value is None:
            raise UsageError(
                f"there is no variable {name} here",
                hint=f"export it first, or type the value: shoal secret set {name}",
            )
        return value
    if from_file:
        try:
            return Path(from_file).read_text(encoding="utf-8").rstrip("\n")
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(
                f"cannot read {from_file}",
                because=getattr(error, "strerror", "") or str(error),
                hint="name a text file that you can read",
            ) from None
    if sys.stdin.isatty():
        typed: str = click.prompt(name, hide_input=True, err=True)
        return typed
    return sys.stdin.read().rstrip("\n")
