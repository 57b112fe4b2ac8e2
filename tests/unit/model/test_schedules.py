"""When a schedule runs, in words of cron and in the time of a place."""

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.errors import SpecError
from shoal.model.job import Schedule
from shoal.model.spec.canonical import spec_of
from shoal.model.spec.schedules import latest_by, next_after
from shoal.model.spec.spec import ScheduleSpec

BERLIN = ZoneInfo("Europe/Berlin")


def _schedule(said: object) -> ScheduleSpec:
    found = spec_of({"command": "true", "schedule": said}).schedule  # type: ignore[dict-item]
    assert isinstance(found, ScheduleSpec)
    return found


def test_a_text_is_a_schedule_in_utc_and_has_the_names_that_cron_knows() -> None:
    assert _schedule(" 0  3 * * * ") == ScheduleSpec(cron="0 3 * * *")
    assert _schedule("@Daily") == ScheduleSpec(cron="0 0 * * *")
    assert _schedule({"cron": "0 3 * * MON-FRI", "timezone": "Europe/Berlin"}) == (
        ScheduleSpec(cron="0 3 * * MON-FRI", timezone="Europe/Berlin")
    )


@pytest.mark.parametrize(
    ("said", "because"),
    [
        ("0 3 * *", "a schedule has 5 fields, and this has 4"),
        ("0 0 3 * * *", "a schedule has 5 fields, and this has 6"),
        ("", "a schedule has 5 fields, and this has 0"),
        ("@often", "it is none of @hourly"),
        ("61 3 * * *", "'61' is no minute"),
        ("0 3 * * NEVER", "'NEVER' is no day of week"),
        ("0 0 31 2 *", "'31' is no day of month"),
    ],
)
def test_what_is_no_schedule_is_refused_with_the_field_that_is_wrong(
    said: str, because: str
) -> None:
    with pytest.raises(SpecError) as caught:
        _schedule(said)

    assert caught.value.path == "$.schedule"
    assert caught.value.because.startswith(because)
    assert "`0 3 * * *`" in caught.value.hint


@given(st.text("0123456789*/,-#LW@ MONJA", max_size=20))
def test_any_text_is_a_schedule_or_refused_in_words(said: str) -> None:
    try:
        found = _schedule(said)
    except SpecError:
        return
    assert next_after(Schedule(found.cron), 1.8e9, UTC) is not None


def _at(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def test_a_night_in_which_the_clocks_change_has_one_run() -> None:
    nightly = Schedule("30 2 * * *", "Europe/Berlin")
    spring, autumn = _at("2026-03-28T12:00+01:00"), _at("2026-10-24T12:00+02:00")

    first = next_after(nightly, spring, BERLIN)
    assert first is not None
    assert first == _at("2026-03-29T03:00+02:00")  # There is no 02:30 that night.
    assert next_after(nightly, first, BERLIN) == _at("2026-03-30T02:30+02:00")
    first = next_after(nightly, autumn, BERLIN)
    assert first is not None
    assert first in (_at("2026-10-25T02:30+02:00"), _at("2026-10-25T02:30+01:00"))
    assert next_after(nightly, first, BERLIN) == _at("2026-10-26T02:30+01:00")


def test_the_latest_run_is_the_last_one_up_to_a_time() -> None:
    nightly = Schedule("0 3 * * *")
    three = _at("2026-11-18T03:00+00:00")

    assert latest_by(nightly, three, UTC) == three
    assert latest_by(nightly, three - 1, UTC) == three - 86_400
    assert latest_by(nightly, three + 9_999, UTC) == three
    assert next_after(nightly, three, UTC) == three + 86_400
