"""The only way to the terminal: text from other nodes cannot control it.

Names, reasons and messages come from other nodes, and a terminal obeys escape
sequences: titles, colours, cursor moves, reversed text. Every line that a command
prints goes through this module, which escapes invisible characters. Only this module
and `task_output` write to stdout and stderr.
"""

from __future__ import annotations

from typing import Final

import click

CLEAR_LINE: Final = "\r\x1b[K"


def safe_line(text: str) -> str:
    r"""Return a text on one line with only visible characters.

    White space becomes a space. Control, direction and zero-width characters are
    escaped as in Python, such as `\x1b`.
    """
    if text.isprintable():
        return text
    return "".join(
        letter if letter.isprintable() else _shown(letter) for letter in text
    )


def safe_lines(text: str, indent: str = "") -> str:
    """Make each line of a text safe; indent all but the first."""
    return f"\n{indent}".join(map(safe_line, text.split("\n")))


def echo(line: str = "", *, err: bool = False) -> None:
    """Print one line, made safe."""
    click.echo(safe_line(line), err=err)


def echo_lines(text: str, *, err: bool = False) -> None:
    """Print several lines of our own, or from a user's file."""
    click.echo(safe_lines(text), err=err)


def echo_styled(line: str, *, err: bool = False) -> None:
    """Print a line with our colours; its texts have passed `safe_line`."""
    click.echo(line, err=err)


def clear_line(*, err: bool = False) -> None:
    """Make room for a line where a bar is drawn."""
    click.echo(CLEAR_LINE, nl=False, err=err)


def _shown(letter: str) -> str:
    if letter.isspace():
        return " "
    return letter.encode("unicode_escape", "backslashreplace").decode("ascii")
