"""Options of `sbatch`, from `#SBATCH` lines and command lines, as flags of a job.

An option without a meaning here is told of, and an unknown one is refused: a job that
silently gets less than it asked for is worse than none.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from shoal.errors import UsageError, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_GPUS: Final = re.compile(r"gpu(?::([A-Za-z][\w.-]*))?(?::(\d+))?")
_SIZE: Final = re.compile(r"\d+([KMGTkmgt][Bb]?)?")
_CLOCK: Final = re.compile(r"(?:(\d+)-)?(\d+)(?::(\d+))?(?::(\d+))?")


class Option(NamedTuple):
    """One option of Slurm, and where it was written."""

    place: str
    name: str
    value: str


def options_in(place: str, words: list[str]) -> Iterator[Option]:
    """Yield the options among words that are nothing else; consume `words`.

    Ends at the first word that is no option, which stays with those after it.
    """
    while words and words[0].startswith("-") and words[0] not in ("-", "--"):
        word = words.pop(0)
        if word.startswith("--"):
            option, is_set, value = word[2:].partition("=")
        elif word[1] in SHORT:
            option, is_set, value = SHORT[word[1]], word[2:], word[2:].lstrip("=")
        else:
            raise unknown(place, word)
        if option not in KNOWN:
            raise unknown(place, f"--{option}")
        if not is_set and option not in WITHOUT_VALUE:
            if not words:
                raise UsageError(f"{place}: --{option} needs a value")
            value = words.pop(0)
        elif is_set and word[1] != "-" and option in WITHOUT_VALUE:
            words.insert(0, f"-{is_set}")  # As in `-HW`.
            value = ""
        yield Option(place, option, value)


def header_options(place: str, words: list[str]) -> list[Option]:
    """Return the options of a `#SBATCH` line, which holds nothing else."""
    rest = list(words)
    found = list(options_in(place, rest))
    if rest:
        raise UsageError(
            f"{place}: '{rest[0]}' is not an option of sbatch",
            because="such a line has only options, such as --gpus=2",
            hint="quote values that contain spaces",
        )
    return found


def unknown(place: str, option: str) -> UsageError:
    """Return the error for an option that nobody here reads."""
    name = option.lstrip("-").partition("=")[0]
    why = WITHOUT_EQUAL.get(name)
    near = did_you_mean(name, KNOWN, before="--")
    return UsageError(
        f"{place}: {option} of #SBATCH is not supported",
        because=why or f"supported: {', '.join(sorted(KNOWN))}",
        hint=near
        or "leave it out, or say it to shoal by a line such as `#SHOAL --on NODE`; "
        "`shoal submit --help` lists the options",
    )


def read_option(given: Option, flags: dict[str, Any], notes: list[str]) -> None:
    """Note what an option asks for as flags of `shoal submit`."""
    place, option, value = given
    if option in _IGNORED:
        notes.append(f"{place}: --{option} has no meaning here and is ignored")
    elif option == "requeue":
        pass  # Tasks that lost their worker or were preempted run again anyway.
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
    elif option in OF_SBATCH:
        raise UsageError(
            f"{place}: --{option} of #SBATCH is not supported by `shoal submit`",
            because="it takes what Slurm keeps beside its jobs",
            hint="`shoal slurm sbatch` understands it",
        )
    else:
        raise unknown(place, f"--{option}")


def _as_it_is(_place: str, value: str) -> str:
    return value


def _nodes(place: str, value: str) -> str:
    least, dash, most = value.partition("-")
    if not least.isdecimal() or (dash and not most.isdecimal()):
        raise UsageError(
            f"{place}: '{value}' is not a number of nodes", hint="2, or 2-4"
        )
    return f"{least}..{most}" if dash else least


def gres(place: str, value: str) -> str:
    """Parse generic resources: GPUs."""
    found = _GPUS.fullmatch(value)
    if found is None:
        raise UsageError(
            f"{place}: '{value}' cannot be requested",
            because="the only generic resource is gpu",
            hint="gpu:2, or gpu:a100:2",
        )
    return ":".join(part for part in (found[1], found[2] or "1") if part)


def memory(place: str, value: str) -> str:
    """Parse an amount of memory; a bare number is in MB."""
    if not _SIZE.fullmatch(value) or not value.strip("0KMGTBkmgtb"):
        raise UsageError(
            f"{place}: '{value}' is no amount of memory",
            because="all the memory of a node (0) cannot be asked for here"
            if value.startswith("0")
            else "it is a number and K, M, G or T",
            hint="16G",
        )
    return value.upper() if value[-1].isalpha() else f"{value}M"


def seconds(place: str, value: str) -> str:
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
    "mem": ("ram", memory),
    "tmp": ("disk", memory),
    "gpus": ("gpus", _as_it_is),
    "gpus-per-node": ("gpus", _as_it_is),
    "gpus-per-task": ("gpus", _as_it_is),
    "gres": ("gpus", gres),
    "time": ("time_limit", seconds),
    "chdir": ("workdir", _as_it_is),
}
WITHOUT_MEANING: Final = frozenset(
    {
        *("account", "acctg-freq", "comment", "constraint", "cpu-bind", "cpu-freq"),
        *("distribution", "exclusive", "get-user-env", "hint", "kill-on-bad-exit"),
        *("mail-type", "mail-user", "mem-bind", "nice", "no-requeue", "oversubscribe"),
        *("partition", "profile", "propagate", "qos", "reservation", "signal"),
        *("threads-per-core", "verbose", "wckey"),
    }
)
"""What may be said, and is told to be ignored."""

OF_SBATCH: Final = frozenset(
    {
        *("cpus-per-gpu", "dependency", "error", "export", "kill-on-invalid-dep"),
        *("mem-per-cpu", "mem-per-gpu", "nodelist", "ntasks-per-node", "open-mode"),
        *("output", "parsable", "quiet", "test-only", "wait", "wrap"),
    }
)
"""What `shoal slurm sbatch` does, and `shoal submit` cannot."""

_IGNORED: Final = WITHOUT_MEANING | {
    *("error", "export", "ntasks-per-node", "open-mode", "output")
}
KNOWN: Final = frozenset({*_MEANING, *WITHOUT_MEANING, *OF_SBATCH, "array", "requeue"})
WITHOUT_VALUE: Final = frozenset(
    {
        *("exclusive", "get-user-env", "kill-on-bad-exit", "no-requeue"),
        *("oversubscribe", "parsable", "quiet", "requeue", "test-only", "verbose"),
        *("wait",),
    }
)
WITHOUT_EQUAL: Final = {
    "begin": "jobs start as soon as there is room",
    "deadline": "jobs have no deadline here; --time limits how long they run",
    "exclude": "nodes are chosen by name: --nodelist",
    "hold": "jobs cannot be held",
    "licenses": "there are no licences to count here",
    "switches": "a gang is placed by its links anyway",
}
"""Options that change what a job means, and that have no equal here."""

SHORT: Final = {
    "A": "account",
    "C": "constraint",
    "D": "chdir",
    "G": "gpus",
    "H": "hold",
    "J": "job-name",
    "L": "licenses",
    "N": "nodes",
    "Q": "quiet",
    "W": "wait",
    "a": "array",
    "b": "begin",
    "c": "cpus-per-task",
    "d": "dependency",
    "e": "error",
    "m": "distribution",
    "n": "ntasks",
    "o": "output",
    "p": "partition",
    "q": "qos",
    "s": "oversubscribe",
    "t": "time",
    "v": "verbose",
    "w": "nodelist",
    "x": "exclude",
}
