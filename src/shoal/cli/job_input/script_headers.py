"""Scripts with flags in comments: `#SHOAL --gpus 2`, or `#SBATCH` lines.

A script runs with the interpreter of its first line and travels as text, so it need
not exist on the worker. `#SBATCH` options without a meaning here are reported, and
unknown ones are refused: a job that silently gets less than it asked for is worse
than none.
"""

from __future__ import annotations

import re
import shlex
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

from shoal.cli.slurm.options import header_options, read_option
from shoal.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SHELLS: Final = frozenset({"sh", "bash", "dash", "zsh", "ksh"})
INLINE: Final = {"python": "-c", "python3": "-c", "perl": "-e", "ruby": "-e"}
"""The option by which an interpreter takes a program; shells take `-c`."""

LIKE_SLURM: Final = (
    "export SLURM_JOB_ID=$SHOAL_JOB_ID SLURM_ARRAY_TASK_ID={index}"
    " SLURM_PROCID=${RANK:-0} SLURM_NTASKS=${WORLD_SIZE:-1}"
    " SLURM_NNODES=${NUM_NODES:-1} SLURM_SUBMIT_DIR=$SHOAL_WORKDIR;"
    ' srun() { while [ "${1#-}" != "$1" ]; do shift; done; "$@"; };'
)
"""Each task of a gang runs the script itself, so `srun` only runs its arguments.

The first task of an array `1-9` has index 1, as in `{index}`; ranks count from 0.
"""

_NAMED: Final = re.compile(r"\{[A-Za-z_][A-Za-z0-9_.-]*\}")
HEADER: Final = re.compile(rb"^#(SHOAL|SBATCH)\s", re.MULTILINE)


class JobScript(NamedTuple):
    """What a script asks for: command-line flags, and notes for the user."""

    flags: dict[str, Any]
    notes: list[str]


def is_script(text: bytes) -> bool:
    """Whether this is a script rather than a job spec."""
    return text.startswith(b"#!") or HEADER.search(text) is not None


def read_script(
    name: str, data: bytes, parse: Callable[[list[str]], dict[str, Any]]
) -> JobScript:
    """Return what a script asks for; `parse` reads shoal's own flags."""
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise UsageError(
            f"{name} is not a text file",
            because=f"byte {error.start} is not UTF-8",
            hint=f"to run a program, put -- before it: shoal run -- {name}",
        ) from None
    flags: dict[str, Any] = {"name": PurePath(name).stem}
    notes: list[str] = []
    is_slurm = False
    for number, kind, words in lines_of(name, text):
        if kind == "SHOAL":
            flags |= parsed(f"{name}:{number}", words, parse)
        else:
            is_slurm = True
            for option in header_options(f"{name}:{number}", words):
                read_option(option, flags, notes)
    flags["command"] = command_of(name, text, LIKE_SLURM if is_slurm else "")
    return JobScript(flags, notes)


def lines_of(name: str, text: str) -> Iterator[tuple[int, str, list[str]]]:
    """Yield the header lines of a script: number, SHOAL or SBATCH, words."""
    for number, line in enumerate(text.splitlines(), start=1):
        found = re.match(r"#(SHOAL|SBATCH)\s+(.*)", line)
        if found is None:
            continue
        try:
            yield number, found[1], shlex.split(found[2], comments=True)
        except ValueError as error:
            raise UsageError(
                f"{name}:{number}: cannot read '{found[2]}'",
                because=str(error).lower(),
                hint="write the line as on a command line",
            ) from None


def parsed(
    place: str, words: list[str], parse: Callable[[list[str]], dict[str, Any]]
) -> dict[str, Any]:
    """Return the flags of a `#SHOAL` line."""
    try:
        return parse(words)
    except click.ClickException as error:
        raise UsageError(
            f"{place}: {error.format_message()}",
            hint="`shoal submit --help` lists the flags",
        ) from None


def command_of(
    name: str, text: str, prelude: str = "", args: tuple[str, ...] = ()
) -> tuple[str, ...]:
    """Return the command that runs the text of a script.

    The `prelude` is one line of shell, with its braces escaped; it runs before.
    """
    first, _, rest = text.partition("\n")
    if not first.startswith("#!"):
        raise UsageError(
            f"{name} does not say what runs it",
            because="a script begins with a line such as #!/bin/bash",
            hint="add that line, or put the command after --",
        )
    program = shlex.split(first[2:])
    if program and PurePath(program[0]).name == "env":
        program = [word for word in program[1:] if word != "-S"]
    kind = PurePath(program[0]).name if program else ""
    if kind in SHELLS:
        # In the place of the first line, so that lines keep their numbers.
        first = prelude or escaped(first)
        return (*program, "-c", f"{first}\n{escaped(rest)}", name, *map(escaped, args))
    flag = INLINE.get(re.sub(r"[0-9.]+$", "", kind)) or INLINE.get(kind)
    if flag is None:
        known = ", ".join(sorted(SHELLS | INLINE.keys()))
        raise UsageError(
            f"{name} is run by '{kind}', which cannot take a program as text",
            because=f"supported interpreters: {known}",
            hint=f"shoal submit --workdir . -- {first[2:].strip()} {name}",
        )
    inline = (*program, flag, escaped(text), *map(escaped, args))
    if not prelude:
        return inline
    return ("/bin/sh", "-c", f'{prelude} exec "$0" "$@"', *inline)


def escaped(text: str) -> str:
    """Escape the script's braces, or `{name}` would be read as a parameter."""
    return _NAMED.sub(lambda found: f"{{{found[0]}}}", text)
