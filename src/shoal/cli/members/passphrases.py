"""Read the passphrase of a key from a prompt, a file or standard input."""

from __future__ import annotations

import sys

import click

from shoal.cli.options import text_in

passphrase_option = click.option(
    "--passphrase-file",
    default="",
    metavar="FILE",
    help="Read the passphrase from a file; - is standard input.",
)


def passphrase(file: str, *, is_new: bool = False) -> str:
    """Return the passphrase; a new one is typed twice. It is never an argument."""
    if file == "-" or (not file and not sys.stdin.isatty()):
        return sys.stdin.readline().rstrip("\n")
    if file:
        return text_in(file)
    typed: str = click.prompt(
        "passphrase of the root key",
        hide_input=True,
        err=True,
        confirmation_prompt=is_new,
    )
    return typed
