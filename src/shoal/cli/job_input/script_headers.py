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
_GPUS: Final = re.compile(r"gpu(?::([A-Za-z][\w.-]*))?(?::(\d+))?")
_CLOCK: Final = re.compile(r"(?:(\d+)-)?(\d+)(?::(\d+))?(?::(\d+))?")


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
    for number, kind, words in _lines(name, text):
        if kind == "SHOAL":
            flags |= _parsed(f"{name}:{number}", words, parse)
        else:
            is_slurm = True
            _read_slurm(f"{name}:{number}", words, flags, notes)
    flags["command"] = _command(name, text, like_slurm=is_slurm)
    return JobScript(flags, notes)


def _lines(name: str, text: str) -> Iterator[tuple[int, str, list[str]]]:
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


def _parsed(
    place: str, words: list[str], parse: Callable[[list[str]], dict[str, Any]]
) -> dict[str, Any]:
    try:
        return parse(words)
    except click.ClickException as error:
        raise UsageError(
            f"{place}: {error.format_message()}",
            hint="`shoal submit --help` lists the flags",
        ) from None


def _command(name: str, text: str, *, like_slurm: bool) -> tuple[str, ...]:
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
        first = LIKE_SLURM if like_slurm else _escaped(first)
        return (*program, "-c", f"{first}\n{_escaped(rest)}", name)
    flag = INLINE.get(re.sub(r"[0-9.]+$", "", kind)) or INLINE.get(kind)
    if flag is None:
        known = ", ".join(sorted(SHELLS | INLINE.keys()))
        raise UsageError(
            f"{name} is run by '{kind}', which cannot take a program as text",
            because=f"supported interpreters: {known}",
            hint=f"shoal submit --workdir . -- {first[2:].strip()} {name}",
        )
    return (*program, flag, _escaped(text))


def _escaped(text: str) -> str:
    """Escape the script's braces, or `{name}` would be read as a parameter."""
    return _NAMED.sub(lambda found: f"{{{found[0]}}}", text)


# What Slurm's users write.


def _read_slurm(
    place: str, words: list[str], flags: dict[str, Any], notes: list[str]
) -> None:
    for option, value in _slurm_options(place, words):
        if option in _IGNORED:
            notes.append(f"{place}: --{option} has no meaning here and is ignored")
        elif option == "requeue":
            continue  # Tasks that lost their worker or were preempted run again anyway.
        elif option == "array":
            flags["array"], _, most = value.partition("%")
            if most:
                notes.append(f"{place}: as many array tasks run at once as fit")
        elif option in _MEANING:
            field, read = _MEANING[option]
            flags[field] = read(place, value)
            # Nodes of Slurm are machines; its tasks share them.
            if option == "ntasks":
                flags["distinct_nodes"] = False
            elif option == "nodes":
                flags.setdefault("distinct_nodes", True)
        else:
            raise UsageError(
                f"{place}: --{option} of #SBATCH is not supported",
                because=f"supported: {', '.join(sorted({*_MEANING, 'array'}))}",
                hint="use a #SHOAL line instead; `shoal submit --help` lists the flags",
            )


def _slurm_options(place: str, words: list[str]) -> Iterator[tuple[str, str]]:
    rest = list(words)
    while rest:
        word = rest.pop(0)
        if word.startswith("--"):
            option, is_set, value = word[2:].partition("=")
        elif word.startswith("-") and word[1:2] in _SHORT:
            option, is_set, value = _SHORT[word[1]], word[2:], word[2:].lstrip("=")
        else:
            raise UsageError(
                f"{place}: '{word}' is not an option of sbatch",
                because="such a line has only options, such as --gpus=2",
                hint="quote values that contain spaces",
            )
        if not is_set and option not in _WITHOUT_VALUE:
            if not rest:
                raise UsageError(f"{place}: --{option} needs a value")
            value = rest.pop(0)
        yield option, value


def _as_it_is(_place: str, value: str) -> str:
    return value


def _nodes(place: str, value: str) -> str:
    least, dash, most = value.partition("-")
    if not least.isdecimal() or (dash and not most.isdecimal()):
        raise UsageError(
            f"{place}: '{value}' is not a number of nodes", hint="2, or 2-4"
        )
    return f"{least}..{most}" if dash else least


def _gres(place: str, value: str) -> str:
    found = _GPUS.fullmatch(value)
    if found is None:
        raise UsageError(
            f"{place}: '{value}' cannot be requested",
            because="the only generic resource is gpu",
            hint="gpu:2, or gpu:a100:2",
        )
    return ":".join(part for part in (found[1], found[2] or "1") if part)


def _memory(_place: str, value: str) -> str:
    return value if value[-1:].isalpha() else f"{value}M"


def _seconds(place: str, value: str) -> str:
    """Parse minutes, minutes:seconds, h:m:s, or days-hours[:m[:s]]."""
    found = _CLOCK.fullmatch(value)
    if found is None:
        raise UsageError(f"{place}: '{value}' is not a time", hint="90, 1:30:00, 2-12")
    days, *parts = (int(part) if part else None for part in found.groups())
    given = [part for part in parts if part is not None]
    if days is not None or len(given) == len(parts):
        units = (3_600, 60, 1)
    else:
        units = (60, 1, 0)
    total = sum(part * unit for part, unit in zip(given, units, strict=False))
    return f"{total + 86_400 * (days or 0)}s"


_MEANING: Final[dict[str, tuple[str, Callable[[str, str], object]]]] = {
    "job-name": ("name", _as_it_is),
    "nodes": ("nodes", _nodes),
    "ntasks": ("nodes", _nodes),
    "cpus-per-task": ("cpu", _as_it_is),
    "mem": ("ram", _memory),
    "gpus": ("gpus", _as_it_is),
    "gpus-per-node": ("gpus", _as_it_is),
    "gpus-per-task": ("gpus", _as_it_is),
    "gres": ("gpus", _gres),
    "time": ("time_limit", _seconds),
    "chdir": ("workdir", _as_it_is),
}
_WITHOUT_VALUE: Final = frozenset({"requeue", "exclusive", "no-requeue"})
_IGNORED: Final = frozenset(
    {
        "account",
        "constraint",
        "error",
        "exclusive",
        "export",
        "mail-type",
        "mail-user",
        "no-requeue",
        "ntasks-per-node",
        "open-mode",
        "output",
        "partition",
        "qos",
        "signal",
    }
)
_SHORT: Final = {
    "A": "account",
    "C": "constraint",
    "D": "chdir",
    "G": "gpus",
    "J": "job-name",
    "N": "nodes",
    "a": "array",
    "c": "cpus-per-task",
    "e": "error",
    "n": "ntasks",
    "o": "output",
    "p": "partition",
    "q": "qos",
    "t": "time",
}
