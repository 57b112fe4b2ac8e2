"""Files of the user that a command line names: programs to run, or left behind."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from collections.abc import Sequence


def program_at(args: Sequence[str], params: Sequence[click.Parameter]) -> int | None:
    """Return the place of a Python program in arguments, if its words begin there.

    All that follows is for the program, as with `python train.py --lr 0.1`. A file with
    `#SHOAL` lines describes a job by itself.
    """
    place = first_word(args, params)
    return place if place is not None and is_program(args[place]) else None


def first_word(args: Sequence[str], params: Sequence[click.Parameter]) -> int | None:
    """Return the place of the first word that is no option, and no value of one."""
    with_value = {
        name
        for each in params
        if isinstance(each, click.Option) and not each.is_flag
        for name in each.opts
    }
    is_value = False
    for place, word in enumerate(args):
        if is_value:
            is_value = False
        elif word.startswith("-") and word != "-":
            is_value = word in with_value
        else:
            return place
    return None


def is_program(name: str) -> bool:
    """Whether a word names a Python program that is here."""
    path = Path(name)
    if path.suffix != ".py":
        return False
    from shoal.cli.job_input.script_headers import HEADER  # noqa: PLC0415 - Slow to import.

    try:
        return not HEADER.search(path.read_bytes())
    except OSError:
        return False


def flags_of_program(words: Sequence[str]) -> dict[str, Any]:
    """Return the flags of a job that runs a Python program with its folder."""
    path = Path(words[0])
    folder = Path() if _is_below(path) else path.parent
    inside = path.relative_to(folder)
    return {
        "name": path.stem,
        "workdir": str(folder),
        "command": ("python", str(inside), *words[1:]),
    }


def left_behind(command: Sequence[str]) -> str | None:
    """Return what a command names of this directory: a file, or a Python module."""
    if (file := next(filter(_is_here, command), None)) is not None:
        return file
    words = iter(command)
    if not next(words, "").startswith("python") or "-m" not in words:
        return None
    top = next(words, "").partition(".")[0]
    places = (f"{top}.py", f"{top}/") if top else ()
    return next(filter(_is_here_at_all, places), None)


def _is_here(word: str) -> bool:
    path = Path(word)
    try:
        return _is_below(path) and path.is_file()
    except OSError:  # such as a program that is too long for a name
        return False


def _is_here_at_all(name: str) -> bool:
    path = Path(name)
    return path.is_dir() if name.endswith("/") else path.is_file()


def _is_below(path: Path) -> bool:
    """Whether a path leads into the current directory."""
    return not path.is_absolute() and ".." not in path.parts
