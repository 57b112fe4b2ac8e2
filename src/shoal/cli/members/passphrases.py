"""Read the passphrase of a key from a prompt, a file or standard input."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from shoal.errors import UsageError

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
        try:
            return Path(file).read_text(encoding="utf-8").rstrip("\n")
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(
                f"cannot read {file}",
                because=getattr(error, "strerror", "") or str(error),
                hint="choose a text file that you can read",
            ) from None
    typed: str = click.prompt(
        "passphrase of the root key",
        hide_input=True,
        err=True,
        confirmation_prompt=is_new,
    )
    return typed
