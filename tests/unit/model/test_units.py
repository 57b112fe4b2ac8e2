import pytest

from shoal.errors import UsageError
from shoal.model.resources import GIB
from shoal.model.units import (
    format_cpu,
    format_duration,
    format_size,
    parse_cpu,
    parse_duration,
    parse_least,
    parse_range,
    parse_size,
    parse_whole,
)


@pytest.mark.parametrize(
    ("text", "size_bytes"),
    [
        ("16GB", 16 * GIB),
        ("24 GiB", 24 * GIB),
        ("24g", 24 * GIB),
        ("24576MB", 24 * GIB),
        ("8192", 8 * GIB),
        (8192, 8 * GIB),
        ("1.5TB", 1536 * GIB),
        ("512B", 512),
        (" 2kb ", 2048),
        ("0", 0),
    ],
)
def test_a_size_is_a_number_and_a_binary_unit_or_in_mb(
    text: str | int, size_bytes: int
) -> None:
    assert parse_size(text) == size_bytes


@pytest.mark.parametrize(
    "text", ["", "GB", "16 XB", "-1GB", "1,5GB", "16GBB", "1e3", "٣GB", "9" * 70, "8PB"]
)
def test_what_is_not_a_size_is_refused_with_a_hint(text: str) -> None:
    with pytest.raises(UsageError) as error:
        parse_size(text)

    assert error.value.because
    assert error.value.hint


@pytest.mark.parametrize(
    ("size_bytes", "text"),
    [(0, "0"), (24 * GIB, "24GB"), (1536 << 20, "1536MB"), (1025, "1025B")],
)
def test_a_size_is_written_in_the_largest_unit_that_divides_it(
    size_bytes: int, text: str
) -> None:
    assert format_size(size_bytes) == text


@pytest.mark.parametrize(
    ("text", "milli"),
    [("4", 4000), (4, 4000), ("0.5", 500), (0.25, 250), ("1.125", 1125)],
)
def test_cpus_are_counted_in_thousandths(text: str | float, milli: int) -> None:
    assert parse_cpu(text) == milli
    assert parse_cpu(format_cpu(milli)) == milli


@pytest.mark.parametrize("text", ["", "four", "-1", "0.0001", "1e3", "65537", "4.."])
def test_what_is_not_a_number_of_cpus_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        parse_cpu(text)


@pytest.mark.parametrize(
    ("text", "duration_s"),
    [
        ("2h", 7200.0),
        ("90s", 90.0),
        ("1h30m", 5400.0),
        ("1h 30m", 5400.0),
        ("50ms", 0.05),
        ("1.5h", 5400.0),
        ("250us", 0.00025),
        ("1d", 86400.0),
        ("1m1ms", 60.001),
    ],
)
def test_a_duration_is_numbers_with_units(text: str, duration_s: float) -> None:
    assert parse_duration(text) == duration_s


@pytest.mark.parametrize("text", ["", "90", "2:00:00", "30m1h", "1h1h", "h", "99999d"])
def test_a_duration_without_units_or_out_of_order_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        parse_duration(text)


@pytest.mark.parametrize(
    ("duration_s", "text"),
    [(0.0, "0s"), (5400.0, "1h30m"), (0.05, "50ms"), (90061.0, "1d1h1m1s")],
)
def test_a_duration_is_written_with_the_largest_unit_first(
    duration_s: float, text: str
) -> None:
    assert format_duration(duration_s) == text


@pytest.mark.parametrize(
    ("text", "bounds"),
    [("2..4", (2, 4)), ("2..", (2, None)), ("..4", (None, 4)), ("4", (4, 4))],
)
def test_a_range_has_a_least_and_a_most(
    text: str, bounds: tuple[int | None, int | None]
) -> None:
    assert parse_range(text, parse_whole) == bounds


@pytest.mark.parametrize("text", ["..", "4..2", "2...4", "1..2..3", "a..b", "2-4"])
def test_an_empty_or_broken_range_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        parse_range(text, parse_whole)


def test_a_reversed_range_is_refused_with_the_right_order() -> None:
    with pytest.raises(UsageError) as error:
        parse_range("48GB..24GB", parse_size)

    assert error.value.hint == "write 24GB..48GB"


def test_a_least_may_be_an_open_range_but_has_no_most() -> None:
    assert parse_least("4..", parse_cpu) == 4000
    assert parse_least("4", parse_cpu) == 4000
    with pytest.raises(UsageError, match="has a most"):
        parse_least("4..8", parse_cpu)
    with pytest.raises(UsageError, match="has a most"):
        parse_least("..8", parse_cpu)
