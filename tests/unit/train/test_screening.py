"""No single worker ruins an average, however it errs."""

import math

import numpy as np
import pytest

from shoal.train.diloco.compression import Array
from shoal.train.diloco.messages import Contribution
from shoal.train.diloco.outer import combine
from shoal.train.diloco.screening import Received, alike, fault_of, screened


def received(norm: float, samples: int = 100, file: str = "") -> Received:
    return Received(Contribution(0, file or f"f{norm}{samples}", samples, 10), norm)


@pytest.mark.parametrize(
    ("samples", "norm", "fault"),
    [
        (100, math.nan, "not finite"),
        (100, math.inf, "not finite"),
        (0, 1.0, "no samples"),
        (100, 1.0, ""),
        (100, 0.0, ""),
    ],
)
def test_what_can_never_count_is_said(samples: int, norm: float, fault: str) -> None:
    found = fault_of(received(norm, samples).contribution, norm)

    assert fault in found
    assert bool(fault) == bool(found)


def test_honest_workers_count_fully() -> None:
    norms = {"a": 1.0, "b": 1.4, "c": 0.7, "d": 2.0}

    found = screened({name: received(norm) for name, norm in norms.items()}, None)

    assert [part.scale for part in found.parts] == [1.0] * 4
    assert [part.samples for part in found.parts] == [100] * 4
    assert found.refused == {}


def test_a_delta_of_ten_times_the_usual_size_is_scaled_down_to_three_times() -> None:
    norms = {"a": 1.0, "b": 1.0, "c": 10.0}

    found = screened({name: received(norm) for name, norm in norms.items()}, None)

    assert found.parts[2].scale == pytest.approx(0.3)


def test_a_delta_of_ten_thousand_times_the_usual_size_is_refused() -> None:
    norms = {"a": 1.0, "b": 1.0, "c": 1e4}

    found = screened({name: received(norm) for name, norm in norms.items()}, None)

    assert [part.worker for part in found.parts] == ["a", "b"]
    assert found.refused == {"c": "its delta is 10000 times as large as usual"}


@pytest.mark.parametrize(("wrong", "counted"), [(1e4, ["a"]), (1e-9, ["a", "b"])])
def test_of_two_workers_the_one_who_errs_is_told_by_the_sync_before(
    wrong: float, counted: list[str]
) -> None:
    found = screened({"a": received(1.0), "b": received(wrong)}, before=1.1)

    assert [part.worker for part in found.parts] == counted
    assert found.parts[0].scale == 1.0


def test_a_single_worker_may_go_faster_from_sync_to_sync() -> None:
    before: float | None = None
    for norm in (0.1, 0.25, 0.7, 2.0, 5.0):
        found = screened({"a": received(norm)}, before)
        assert found.parts[0].scale == 1.0
        before = found.usual

    assert before == 5.0


def test_nobody_owns_the_mean_by_claiming_samples() -> None:
    samples = {"a": 100, "b": 120, "c": 80, "d": 1 << 50}

    found = screened({name: received(1.0, n) for name, n in samples.items()}, None)

    assert [part.samples for part in found.parts] == [100, 120, 80, 400]


def test_equal_files_of_two_workers_are_told() -> None:
    files = {"a": "x@one", "b": "y@two", "c": "x@three"}

    found = alike({name: received(1.0, file=file) for name, file in files.items()})

    assert found == (("a", "c"),)
    assert alike({name: received(0.0, file="x") for name in files}) == ()


def row(*values: float) -> Array:
    return np.array(values, dtype=np.float32)


@pytest.mark.parametrize(
    ("by", "combined"), [("mean", 26.5), ("trimmed", 2.5), ("median", 2.5)]
)
def test_outliers_move_the_mean_and_neither_the_trimmed_mean_nor_the_median(
    by: str, combined: float
) -> None:
    parts = [(row(1), 1), (row(100), 1), (row(2), 1), (row(3), 1)]

    assert combine(parts, by) == row(combined)  # type: ignore[arg-type]


def test_two_are_averaged_by_their_samples_in_any_case() -> None:
    parts = [(row(0), 1), (row(4), 3)]

    assert combine(parts, "median") == combine(parts, "trimmed") == row(3)
