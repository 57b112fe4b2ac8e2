"""Batch jobs that wait for others: `--dependency=afterok:12,afterany:13_4`.

A job that waits is in the ledger alone. The node runs `shoal slurm ended` at the end of
each batch job (`on_end`, which is called at least once, also after a restart), and that
hands in what has nothing left to wait for. Whoever asks may try: a job has its id from
the beginning, so the node takes it once.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from shoal.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

Kind = Literal["afterok", "afterany", "afternotok"]
Outlook = Literal["open", "met", "never"]
KINDS: Final[tuple[Kind, ...]] = ("afterok", "afterany", "afternotok")
_JOB: Final = re.compile(r"(\d{1,10})(?:_(\d{1,10}))?(?:\+\d+)?")
_WITHOUT_EQUAL: Final = {
    "after": "the start of a job starts nothing else here: afterany waits for its end",
    "aftercorr": "tasks of arrays do not wait for each other: afterok waits for all",
    "afterburstbuffer": "there are no burst buffers here",
    "expand": "a job cannot grow",
    "singleton": "jobs go by numbers here, and not by names",
}


class Dependency(NamedTuple):
    """One job, or one task of an array, whose end is waited for."""

    kind: Kind
    number: int
    task: int | None  # its index


def parse(text: str) -> list[Dependency]:
    """Return what a job waits for; raise if any of it would not be heeded."""
    if "?" in text:
        raise UsageError(
            f"--dependency={text}: '?' is not supported",
            because="a job waits for all that it names, not for one of it",
            hint="write commas",
        )
    found: list[Dependency] = []
    for part in filter(None, text.split(",")):
        word, _, jobs = part.partition(":")
        kind: Kind | None = next((kind for kind in KINDS if kind == word), None)
        if kind is None or not jobs:
            raise UsageError(
                f"--dependency={text}: '{part}' is not supported",
                because=_WITHOUT_EQUAL.get(word, f"known: {', '.join(KINDS)}"),
                hint="--dependency=afterok:12:13,afterany:14_3",
            )
        for job in jobs.split(":"):
            read = _JOB.fullmatch(job)
            if read is None:
                raise UsageError(
                    f"--dependency={text}: '{job}' is no number of a job",
                    hint="`sbatch --parsable` prints nothing but the number",
                )
            index = None if read[2] is None else int(read[2])
            found.append(Dependency(kind, int(read[1]), index))
    return found


def outlook(
    dependencies: list[Dependency], state_of: Callable[[Dependency], str]
) -> Outlook:
    """Say whether all of them are met; `state_of` is empty for what has not ended."""
    outlooks = [_outlook_of(each.kind, state_of(each)) for each in dependencies]
    if "never" in outlooks:
        return "never"
    return "open" if "open" in outlooks else "met"


def _outlook_of(kind: Kind, state: str) -> Outlook:
    if not state:
        return "open"
    if kind == "afterany":
        return "met"
    return "met" if (state == "done") == (kind == "afterok") else "never"
