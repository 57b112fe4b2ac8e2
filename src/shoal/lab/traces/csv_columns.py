"""Read any CSV file, by a map of its columns and their units."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, TypeAlias, cast

import msgspec

from shoal.errors import UsageError
from shoal.lab.traces.philly import seconds_of
from shoal.lab.traces.trace_files import TraceFields, rows
from shoal.lab.traces.values import TraceJob

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

Unit: TypeAlias = Literal["ns", "us", "ms", "s", "min", "h", "d", "iso"]

SECONDS: Final[dict[str, float]] = {
    "ns": 1e-9,
    "us": 1e-6,
    "ms": 1e-3,
    "s": 1.0,
    "min": 60.0,
    "h": 3_600.0,
    "d": 86_400.0,
}
NAMES: Final = ("submitted", "run", "requested", "slots", "id", "owner")
TIMES: Final = ("submitted", "run", "requested")


class ColumnMap(msgspec.Struct, frozen=True):
    """Which column is what, and in which unit; an empty name means there is none."""

    submitted: str
    run: str
    slots: str = ""
    requested: str = ""
    id: str = ""
    owner: str = ""
    units: dict[str, Unit] = {}

    def unit(self, name: str) -> Unit:
        """Return the unit of a time."""
        return self.units.get(name, "s")


def parse_map(text: str) -> ColumnMap:
    """Read a map such as `submitted=arrival:ms,run=length:ms,slots=gpus`."""
    found: dict[str, str] = {}
    units: dict[str, Unit] = {}
    for part in text.split(","):
        name, equals, column = (piece.strip() for piece in part.partition("="))
        column, colon, unit = column.partition(":")
        if not equals or name not in NAMES or not column:
            raise UsageError(
                f"'{part}' is no part of a column map",
                because=f"a part is NAME=COLUMN, and names are {', '.join(NAMES)}",
                hint="for example submitted=arrival:ms,run=length:ms,slots=gpus",
            )
        if colon and (name not in TIMES or unit not in (*SECONDS, "iso")):
            raise UsageError(
                f"'{unit}' is no unit for {name}",
                because=f"units are {', '.join(SECONDS)} and iso, of times only",
            )
        found[name] = column
        if colon:
            units[name] = cast("Unit", unit)
    if missing := [name for name in ("submitted", "run") if name not in found]:
        raise UsageError(f"the column map says nothing of {' and '.join(missing)}")
    return msgspec.convert({**found, "units": units}, ColumnMap)


def mapped_jobs(path: Path, columns: ColumnMap) -> Iterator[TraceJob]:
    """Read the jobs, by this map."""
    wanted = [column for name in NAMES if (column := getattr(columns, name))]
    for number, row in enumerate(rows(path, wanted)):
        run_s = _seconds(row, columns.run, columns.unit("run"))
        requested_s = run_s
        if columns.requested and row.text(columns.requested):
            requested_s = _seconds(row, columns.requested, columns.unit("requested"))
        yield TraceJob(
            id=row.text(columns.id) if columns.id else str(number),
            submitted_s=_seconds(row, columns.submitted, columns.unit("submitted")),
            run_s=run_s,
            requested_s=requested_s,
            slots=row.whole(columns.slots, least=0) if columns.slots else 1,
            owner=row.text(columns.owner) if columns.owner else "",
        )


def _seconds(row: TraceFields, column: str, unit: Unit) -> float:
    if unit != "iso":
        return row.number(column) * SECONDS[unit]
    try:
        return seconds_of(row.text(column))
    except ValueError as error:
        raise row.wrong(column, "a time such as 2017-10-09 07:01:55") from error
