"""Names of output files, and tables in the words of Slurm: `%j`, `%.8u`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from shoal.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from shoal.cli.slurm.ledger import BatchJob

_IN_NAME: Final = re.compile(r"%(%|(\d*)([A-Za-z]))")
_FIELD: Final = re.compile(r"%(\.?)(\d*)([A-Za-z])")


def file_name(pattern: str, batch: BatchJob, index: str, node: str) -> str:
    """Return the name of an output file of a job, or of one task of an array."""
    values = {
        "A": str(batch.number),
        "J": str(batch.number),
        "N": node,
        "a": index or "4294967294",  # What Slurm writes for a job that is no array.
        "b": index or "0",
        "j": str(batch.number),
        "n": "0",
        "s": "batch",
        "t": "0",
        "u": batch.user,
        "x": batch.name,
    }

    def filled(found: re.Match[str]) -> str:
        if found[1] == "%":
            return "%"
        value = values.get(found[3])
        if value is None:
            raise UsageError(
                f"'{found[0]}' in {pattern} stands for nothing",
                because=f"known: {', '.join('%' + letter for letter in values)}",
                hint="write %% for a percent sign",
            )
        return value.rjust(int(found[2]), "0") if found[2] else value

    return _IN_NAME.sub(filled, pattern)


def table(
    format_: str,
    known: Mapping[str, tuple[str, Callable[..., str]]],
    rows: Iterable[object],
    command: str,
    *,
    with_head: bool,
) -> list[str]:
    """Return lines of a table; `known` has a heading and a value for each letter."""
    for found in _FIELD.finditer(format_):
        if found[3] not in known:
            raise UsageError(
                f"{command}: %{found[3]} is not known",
                because=f"known: {', '.join('%' + letter for letter in sorted(known))}",
                hint=f"leave it out, or see `{command} --help`",
            )

    lines = [_filled(format_, lambda letter: known[letter][0])] if with_head else []
    lines += [_filled(format_, _cells(known, row)) for row in rows]
    return lines


def _cells(
    known: Mapping[str, tuple[str, Callable[..., str]]], row: object
) -> Callable[[str], str]:
    return lambda letter: known[letter][1](row)


def _filled(format_: str, value_of: Callable[[str], str]) -> str:
    def cell(found: re.Match[str]) -> str:
        value = value_of(found[3])
        if not found[2]:
            return value
        width = int(found[2])
        value = value[:width]
        return value.rjust(width) if found[1] else value.ljust(width)

    return _FIELD.sub(cell, format_).rstrip()
