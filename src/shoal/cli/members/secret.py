"""`shoal secret`: store secrets for jobs."""

from __future__ import annotations

import os
import sys

import click

from shoal.api.client import client as api
from shoal.cli.display.printing import echo_json
from shoal.cli.options import (
    json_option,
    node_option,
    quiet_option,
    suggest,
    talk,
    text_in,
)
from shoal.cli.terminal import echo
from shoal.errors import UsageError


@click.group()
def secret() -> None:
    """Store secrets for jobs: tokens, keys, passwords.

    A job names the secrets it needs; its tasks get them as environment variables.
    Secrets are stored on this node, encrypted to its key, and sent encrypted to the
    key of the worker that runs the task. They are never shown again.
    """


@secret.command("set")
@click.argument("name")
@click.option(
    "--from-env", is_flag=True, help="Read it from the variable of the same name."
)
@click.option("--from-file", metavar="FILE", help="Read it from a file.")
@node_option
@quiet_option
def set_secret(
    name: str, from_env: bool, from_file: str | None, node: str | None, quiet: bool
) -> None:
    """Store a secret NAME, from a prompt, standard input, a file or a variable."""
    value = _value(name, from_env=from_env, from_file=from_file)
    with api.connect(node) as client:
        replaced = client.set_secret(name, value)
    talk(f"secret {name} {'replaced' if replaced else 'stored'}", quiet=quiet)
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
    """Delete the secret NAME. Running tasks keep their copy."""
    with api.connect(node) as client:
        client.remove_secret(name)
    talk(f"secret {name} removed", quiet=quiet)


def _value(name: str, *, from_env: bool, from_file: str | None) -> str:
    if from_env and from_file:
        raise UsageError("both --from-env and --from-file", hint="use one of them")
    if from_env:
        value = os.environ.get(name)
        if value is None:
            raise UsageError(
                f"the variable {name} is not set",
                hint=f"export it first, or type the value: shoal secret set {name}",
            )
        return value
    if from_file:
        return text_in(from_file)
    if sys.stdin.isatty():
        typed: str = click.prompt(name, hide_input=True, err=True)
        return typed
    return sys.stdin.read().rstrip("\n")
