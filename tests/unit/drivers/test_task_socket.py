"""Whatever a task says, an honest node can send on what it makes of it."""

import json
import math

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.drivers.task_socket import LINE_BYTES_MAX, TaskFigures, _Connection, parse
from shoal.model.ids import Attempt, NodeId
from shoal.protocol.codec import decode, encode
from shoal.protocol.messages import Progress

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**400), 10**400)
    | st.floats()
    | st.text(max_size=300),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(max_size=200), inner, max_size=4)
    ),
    max_leaves=10,
)
NUMBERS = st.integers(-(10**400), 10**400) | st.floats() | st.booleans()
REPORTS = st.fixed_dictionaries(
    {},
    optional={
        "metrics": st.dictionaries(st.text(max_size=300), NUMBERS, max_size=300),
        "step": NUMBERS | JSON,
        "progress": NUMBERS | JSON,
    },
)


def progress(figures: TaskFigures) -> Progress:
    attempt = Attempt(NodeId("otter"), 1, 1)
    return Progress(
        attempt=attempt, seq=1, fraction=figures.fraction, metrics=figures.metrics
    )


@given(REPORTS | JSON)
def test_what_is_understood_always_fits_a_message(report: object) -> None:
    figures = parse(json.dumps(report).encode())

    if isinstance(figures, TaskFigures):
        [frame] = encode([progress(figures)])
        assert len(decode(frame)) == 1
    else:
        msgspec.msgpack.encode(figures)


@given(st.binary(max_size=300))
def test_no_bytes_raise(line: bytes) -> None:
    parse(line)


@pytest.mark.parametrize(
    ("line", "fraction", "metrics"),
    [
        (b'{"metrics": {"a": 1}, "step": 2}', None, {"a": 1.0, "step": 2.0}),
        (b'{"progress": 0.5}', 0.5, {}),
        (b'{"progress": 7}', 1.0, {}),
        (b'{"progress": -Infinity}', 0.0, {}),
        (b'{"metrics": {"a": Infinity, "b": true}}', None, {"a": math.inf, "b": 1.0}),
        (b'{"metrics": {"a": %d}}' % -(10**400), None, {"a": -math.inf}),
        (b'{"metrics": {"\\ud800": 1}}', None, {"?": 1.0}),
        (b'{"metrics": {"%s": 1}}' % (b"x" * 200), None, {"x" * 128: 1.0}),
        (b'{"other": 1}', None, {}),
    ],
)
def test_figures_are_cut_and_clamped(
    line: bytes, fraction: float | None, metrics: dict[str, float]
) -> None:
    assert parse(line) == TaskFigures(fraction, metrics)


def test_a_loss_that_is_no_number_is_news() -> None:
    figures = parse(b'{"metrics": {"loss": NaN}}')

    assert isinstance(figures, TaskFigures)
    assert math.isnan(figures.metrics["loss"])


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"", "not a line of JSON"),
        (b"[" * 20_000, "not a line of JSON"),
        (b"9" * 5_000, "not a line of JSON"),
        (b"3", "not a JSON object"),
        (b'{"metrics": []}', "metrics is not an object"),
        (b'{"metrics": {"a": "1"}}', "metric 'a' is not a number"),
        (b'{"step": "two"}', "metric 'step' is not a number"),
        (b'{"progress": NaN}', "progress is not a number between 0 and 1"),
    ],
)
def test_nonsense_has_a_reason(line: bytes, reason: str) -> None:
    assert parse(line) == reason


@given(st.lists(st.binary(max_size=40), max_size=8), st.integers(1, 9))
def test_lines_are_the_same_however_they_arrive(parts: list[bytes], size: int) -> None:
    wanted = [part.replace(b"\n", b"") for part in parts]
    stream = b"".join(part + b"\n" for part in wanted)
    connection = _Connection.__new__(_Connection)
    connection.unparsed, connection.skipping = b"", False

    got: list[bytes] = []
    for start in range(0, len(stream), size):
        got += connection.lines(stream[start : start + size])[0]

    assert got == wanted


def test_a_long_line_is_counted_once_and_costs_no_memory() -> None:
    connection = _Connection.__new__(_Connection)
    connection.unparsed, connection.skipping = b"", False

    counts = [connection.lines(b"x" * LINE_BYTES_MAX)[1] for _ in range(20)]

    assert sum(counts) == 1
    assert len(connection.unparsed) <= LINE_BYTES_MAX
    assert connection.lines(b"rest\nnext\n") == ([b"next"], 0)
