import math

from hypothesis import given
from hypothesis import strategies as st

from shoal.model.metric_lines import decode, encode, packed
from shoal.protocol.limits import METRICS_MAX, OUTPUT_BYTES_MAX

NAMES = st.text(st.characters(exclude_categories=("C", "Z")), min_size=1, max_size=128)
METRICS = st.dictionaries(NAMES, st.floats(allow_nan=False), max_size=METRICS_MAX)


@given(st.lists(METRICS, max_size=5))
def test_what_is_written_is_read_again_and_fits_into_messages(
    reports: list[dict[str, float]],
) -> None:
    lines = [line for each in reports for line in encode(1.5, each)]
    pieces = list(packed(lines, OUTPUT_BYTES_MAX))

    assert all(len(piece) <= OUTPUT_BYTES_MAX for piece in pieces)
    found = [report for piece in pieces for report in decode(piece)]
    merged = [name for report in found for name in report.metrics.items()]
    assert merged == [
        item for each in reports for item in each.items() if item[0] != "step"
    ]


def test_steps_and_values_that_are_no_numbers_are_kept() -> None:
    [line] = encode(2.0, {"step": 7.0, "a": math.nan, "b": math.inf})
    [report] = decode(line)

    assert (report.at_s, report.step, report.metrics["b"]) == (2.0, 7.0, math.inf)
    assert math.isnan(report.metrics["a"])


@given(st.binary(max_size=400))
def test_nothing_that_a_worker_sends_is_an_error(data: bytes) -> None:
    for report in decode(data):
        assert all(isinstance(value, float) for value in report.metrics.values())


def test_odd_lines_are_passed_over_and_names_are_cleaned() -> None:
    odd = b'[1,null,{"a":true,"b":"x","c\\u0000d":3}]\n{}\n[1e999,2,{}]\n[]\n' + (
        b"[" * 100_000
    )

    found = list(decode(odd))

    assert sorted(found[0].metrics) == ["c?d"]
    assert len(found) == 2
