"""The `schedule` of a spec: when a job runs again and again, in the words of cron.

Five fields: minute, hour, day of the month, month, day of the week. Cron expressions
are read and walked by cronsim, which follows Debian's cron where clocks are changed: a
run at 02:30 in the night that has no such time comes at 03:00, and in the night that
has it twice it runs once. Zones are looked up by whoever calls, since their rules are
files.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, tzinfo
from typing import Final

from shoal.errors import SpecError
from shoal.model.job import DEFAULT_ZONE, Schedule
from shoal.model.spec.spec import ScheduleSpec

ZoneLookup = Callable[[str], tzinfo | None]
"""Returns the rules of a time zone by its name; None if there is no such zone."""

FIELDS: Final = ("minute", "hour", "day-of-month", "month", "day-of-week")
ALIASES: Final = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
_LIKE: Final = (
    "write it like `0 3 * * *`: minute 0 of hour 3, on any day of the month, in any "
    "month, on any day of the week"
)
_SOME_DAY: Final = datetime(2024, 1, 1, tzinfo=UTC)


def utc_only(name: str) -> tzinfo | None:
    """Return UTC by its name: the one zone that needs no files."""
    return UTC if name == DEFAULT_ZONE else None


def canonical_schedule(schedule: str | ScheduleSpec, path: str) -> ScheduleSpec:
    """Return a schedule with its cron expression checked."""
    said = ScheduleSpec(cron=schedule) if isinstance(schedule, str) else schedule
    where = path if isinstance(schedule, str) else f"{path}.cron"
    cron = " ".join(said.cron.split())
    cron = ALIASES.get(cron.lower(), cron)
    fields = len(cron.split())
    if cron.startswith("@") or fields != len(FIELDS):
        raise SpecError(
            f"'{said.cron}' is not a schedule",
            path=where,
            because=f"it is none of {', '.join(ALIASES)}"
            if cron.startswith("@")
            else f"a schedule has {len(FIELDS)} fields, and this has {fields}",
            hint=_LIKE,
        )
    from cronsim import CronSim, CronSimError  # noqa: PLC0415 - Few jobs need it.

    try:
        is_never = next(CronSim(cron, _SOME_DAY), None) is None
    except CronSimError as error:
        raise SpecError(
            f"'{said.cron}' is not a schedule",
            path=where,
            because=_misread(cron, str(error)),
            hint=_LIKE,
        ) from None
    if is_never:
        raise SpecError(
            f"'{said.cron}' never comes",
            path=where,
            because="no day of the next 50 years is like that",
            hint=_LIKE,
        )
    return ScheduleSpec(
        cron=cron, timezone=said.timezone, overlap=said.overlap, missed=said.missed
    )


def schedule_of(spec: str | ScheduleSpec | None) -> Schedule | None:
    """Return when a canonical spec is to run, if not once and now."""
    if spec is None:
        return None
    assert not isinstance(spec, str)
    return Schedule(spec.cron, spec.timezone, spec.overlap, spec.missed)


def next_after(schedule: Schedule, wall_s: float, zone: tzinfo) -> float | None:
    """Return when the first run after a time is due; None: never again."""
    return _first(schedule, _moment(wall_s, zone))


def latest_by(schedule: Schedule, wall_s: float, zone: tzinfo) -> float | None:
    """Return when the last run up to a time was due; None: none ever was."""
    return _first(schedule, _moment(wall_s + 1, zone), reverse=True)


def _first(
    schedule: Schedule, since: datetime, *, reverse: bool = False
) -> float | None:
    from cronsim import CronSim  # noqa: PLC0415 - Few jobs need it.

    found = next(CronSim(schedule.cron, since, reverse=reverse), None)
    return None if found is None else found.timestamp()


def _misread(cron: str, complaint: str) -> str:
    """Say which field of a cron expression is wrong, and what stands there."""
    for field, text in zip(FIELDS, cron.split(), strict=True):
        if complaint == f"Bad {field}":
            return f"'{text}' is no {field.replace('-', ' ')}"
    return complaint.lower()


def _moment(wall_s: float, zone: tzinfo) -> datetime:
    return datetime.fromtimestamp(int(wall_s), zone)
