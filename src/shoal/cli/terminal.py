"""The one door to the terminal: what others wrote cannot steer it.

Names, reasons and messages come from other nodes, and a terminal obeys what it is sent:
titles, colours, cursor moves, letters that read backwards. So every text of a command
goes out here, one line at a time, with all that is not plainly visible written as an
escape. Only this module and `task_output` write to stdout and stderr.
"""

from __future__ import annotations

import click


def safe_line(text: str) -> str:
    r"""Return a text on one line, in which only letters that can be seen are left.

    White space becomes a space. Controls, marks that turn the direction of a text, and
    letters without a width are written as in Python, such as `\x1b`.
    """
    if text.isprintable():
        return text
    return "".join(
        letter if letter.isprintable() else _shown(letter) for letter in text
    )


def safe_lines(text: str, indent: str = "") -> str:
    """Return a text whose lines stay lines; all but the first are indented."""
    return f"\n{indent}".join(map(safe_line, text.split("\n")))


def echo(line: str = "", *, err: bool = False) -> None:
    """Print one line, whatever is in it."""
    click.echo(safe_line(line), err=err)


def echo_lines(text: str, *, err: bool = False) -> None:
    """Print several lines that are our own, or from a file of the user."""
    click.echo(safe_lines(text), err=err)


def echo_styled(line: str, *, err: bool = False) -> None:
    """Print a line with colours of ours; its texts went through `safe_line` before."""
    click.echo(line, err=err)


def _shown(letter: str) -> str:
    if letter.isspace():
        return " "
    return letter.encode("unicode_escape", "backslashreplace").decode("ascii")
