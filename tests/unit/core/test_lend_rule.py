"""When a machine is lent, in words."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.core.lending.lend_rule import LendRule, LendWindow, parse_lend
from shoal.errors import UsageError

NOON, LATE, EARLY = 12 * 60, 23 * 60, 6 * 60
SATURDAY = 5 * 1_440


def test_words_say_when_a_machine_is_lent() -> None:
    assert parse_lend("always").is_always
    assert parse_lend(" Nights, idle ") == LendRule(
        (LendWindow(22 * 60, 7 * 60),), 20.0, calm=True
    )
    assert parse_lend("away:10m,plugged-in") == LendRule(idle_s=600.0, plugged_in=True)
    assert str(parse_lend("22:00-07:00,12:30-13:00")) == "nights,12:30-13:00"


def test_a_night_goes_past_midnight_and_a_weekend_is_two_days() -> None:
    [night] = parse_lend("nights").windows
    assert [night.holds(at) for at in (NOON, LATE, EARLY)] == [False, True, True]
    [days] = parse_lend("weekends").windows
    assert [days.holds(at) for at in (NOON, SATURDAY, SATURDAY - 1)] == [
        False,
        True,
        False,
    ]
    assert not days.holds(7 * 1_440)  # Monday, and not the last minute of Sunday.
    [lunch] = parse_lend("12:00-13:00").windows
    assert [lunch.holds(at) for at in (719, 720, 779, 780)] == [
        False,
        True,
        True,
        False,
    ]


@given(
    st.builds(
        LendRule,
        st.lists(
            st.builds(LendWindow, st.integers(0, 1_439), st.integers(0, 1_439)).filter(
                lambda window: window.begin != window.end
            ),
            max_size=3,
            unique=True,
        ).map(tuple),
        st.none() | st.sampled_from((10.0, 20.0, 90.0, 86_400.0)),
        st.just(False),
        st.booleans(),
    )
)
def test_what_is_written_is_read_again(rule: LendRule) -> None:
    assert parse_lend(str(rule)) == rule


@pytest.mark.parametrize(
    ("text", "because"),
    [
        ("", "it is empty"),
        ("sometimes", "'sometimes' is not a time or a condition"),
        ("always,idle", "`always` has no conditions beside it"),
        ("idle,away", "only one of `idle` and `away` can be there"),
        ("25:00-26:00", "'25:00-26:00' is not a time of the day"),
        ("10:75-11:00", "'10:75-11:00' is not a time of the day"),
        ("08:00-08:00", "'08:00-08:00' begins when it ends"),
        ("idle:1s", "the time without input is between 10s and 1d"),
        ("nights,,idle", "'' is not a time or a condition"),
    ],
)
def test_a_rule_that_is_wrong_says_why_and_what_can_be_written(
    text: str, because: str
) -> None:
    with pytest.raises(UsageError) as caught:
        parse_lend(text)

    assert caught.value.because == because
    assert "nights" in caught.value.hint
