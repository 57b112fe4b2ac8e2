"""Read the Standard Workload Format: a heading, then 18 numbers a line."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Final, final

from shoal.errors import TraceError
from shoal.lab.traces.trace_files import numbered_lines
from shoal.lab.traces.values import TraceJob

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

FIELDS: Final = 18
UNKNOWN: Final = -1
HEADING: Final = re.compile(r";\s*([A-Za-z]\w*)\s*:\s*(.*)")
WHOLE: Final = re.compile(r"\d+")


@final
class SwfFile:
    """An SWF file. Jobs come in file order, including jobs that never ran."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.heading: dict[str, str] = {}  # complete once the first job was read

    def jobs(self) -> Iterator[TraceJob]:
        """Read the jobs one by one; what is unknown of the run time stays -1.

        A job had as many processors as it asked for or got, whichever is more.
        """
        for number, line in numbered_lines(self.path):
            if line.startswith(";"):
                if found := HEADING.match(line):
                    self.heading.setdefault(found[1].lower(), found[2].strip())
                continue
            fields = self._numbers(line, number)
            run_s, requested_s = fields[3], fields[8]
            yield TraceJob(
                id=f"{fields[0]:.0f}",
                submitted_s=fields[1],
                run_s=run_s,
                requested_s=run_s if requested_s == UNKNOWN else requested_s,
                slots=int(max(fields[4], fields[7])),
                owner="" if fields[11] == UNKNOWN else f"{fields[11]:.0f}",
            )

    def slots(self) -> int:
        """Return how many processors the heading tells of; 0 if it does not."""
        return self._told("maxprocs") or self.nodes()

    def nodes(self) -> int:
        """Return how many nodes the processors are on; 0 if the heading is silent."""
        return self._told("maxnodes")

    def _told(self, name: str) -> int:
        found = WHOLE.match(self.heading.get(name, ""))
        return int(found[0]) if found else 0

    def _numbers(self, line: str, number: int) -> list[float]:
        words = line.split()
        if len(words) < FIELDS:
            raise TraceError(
                f"{len(words)} fields, not {FIELDS}", file=str(self.path), line=number
            )
        numbers: list[float] = []
        for place, word in enumerate(words[:FIELDS], 1):
            try:
                value = float(word)
            except ValueError:
                value = math.nan
            if not math.isfinite(value):
                raise TraceError(
                    f"field {place} is '{word}', not a number",
                    file=str(self.path),
                    line=number,
                )
            numbers.append(value)
        return numbers
