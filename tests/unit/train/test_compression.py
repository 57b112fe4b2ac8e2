"""What is sent is small, what is lost is sent later, and nonsense is refused."""

from pathlib import Path

import numpy as np
import pytest

from shoal.errors import ProtocolError
from shoal.train import tensors
from shoal.train.diloco import compression
from shoal.train.diloco.compression import ENCODINGS, Encoding


def gradient(size: int, seed: int = 0) -> compression.Array:
    rng = np.random.default_rng(seed)
    return (rng.standard_t(4, size=size) * 1e-3).astype(np.float32)


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("size", [0, 1, 65_536, 70_001])
def test_what_was_encoded_is_decoded(encoding: Encoding, size: int) -> None:
    values = gradient(size)

    data = compression.encode(values, encoding)
    read = compression.decode(data, encoding, size)

    coarse = {"float32": 0.0, "float16": 1e-5, "int8": 0.005}[encoding]
    largest = float(np.abs(values).max(initial=0.0))
    assert read.dtype == np.float32
    np.testing.assert_allclose(read, values, rtol=1e-3, atol=coarse * largest + 1e-7)


def test_int8_takes_less_than_a_quarter_of_float32() -> None:
    values = gradient(1 << 18)

    sizes = {each: len(compression.encode(values, each)) for each in ENCODINGS}

    assert sizes["float16"] == sizes["float32"] // 2
    assert sizes["int8"] < 0.8 * sizes["float32"] / 4


@pytest.mark.parametrize("shape", ["normal", "laplace", "uniform", "standard_t"])
def test_a_small_fragment_takes_a_sixth_whatever_its_values_look_like(
    shape: str, tmp_path: Path
) -> None:
    rng = np.random.default_rng(1)
    drawn = rng.standard_t(3, 7_512) if shape == "standard_t" else None
    values = getattr(rng, shape)(size=7_512) if drawn is None else drawn

    data = compression.encode(values.astype(np.float32), "int8")
    none = np.zeros(0, dtype=np.float32)
    part = tensors.Fragment(slice(0, 7_512), slice(7_512, 7_512))
    tensors.save_fragment(tmp_path / "fragment", part, [data], none, "int8")

    assert (tmp_path / "fragment").stat().st_size < 4 * values.size / 6


@pytest.mark.parametrize("encoding", ["float16", "int8"])
def test_nothing_is_lost_over_time_with_feedback(encoding: Encoding) -> None:
    lost = np.zeros(5_000, dtype=np.float16)
    wanted = np.zeros(5_000)
    told = np.zeros(5_000)
    blind = np.zeros(5_000)
    for round_ in range(50):
        values = gradient(5_000, seed=round_) + np.float32(1e-5)
        data, read, lost = compression.with_feedback(values, lost, encoding)
        np.testing.assert_array_equal(
            compression.decode(data, encoding, values.size), read
        )
        wanted += values
        told += read
        once = compression.encode(values, encoding)
        blind += compression.decode(once, encoding, values.size)

    error = np.abs(told - wanted).mean()
    assert error < 0.5 * np.abs(blind - wanted).mean()


def test_float16_clips_what_it_cannot_hold() -> None:
    values = np.array([1e9, -1e9, 1.0], dtype=np.float32)

    read = compression.decode(compression.encode(values, "float16"), "float16", 3)

    np.testing.assert_array_equal(read, [65_504, -65_504, 1])


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("data", [b"", b"\0", b"x" * 50, b"\xff" * 4_096])
def test_nonsense_is_refused(encoding: Encoding, data: bytes) -> None:
    with pytest.raises(ProtocolError):
        compression.decode(data, encoding, 1_000)


def test_a_bomb_takes_no_more_memory_than_what_was_asked_for() -> None:
    bomb = compression.encode(np.zeros(10_000_000, dtype=np.float32), "int8")

    with pytest.raises(ProtocolError):
        compression.decode(bomb, "int8", 1_000)


def test_halves_are_those_of_numpy_to_the_bit() -> None:
    every = np.arange(0, 1 << 32, 10_007, dtype=np.uint64).astype(np.uint32)
    halves = compression.HALVES[np.isfinite(compression.HALVES)]
    between = (halves[:-1] + halves[1:]) / 2  # Where it matters which one is even.
    below = np.nextafter(between, np.float32(0))
    parts = every.view(np.float32), halves, between, below
    values = np.concatenate(parts, dtype=np.float32)
    finite = values[np.isfinite(values)]

    with np.errstate(over="ignore", invalid="ignore"):
        for each in (values, finite):
            expected = each.astype(np.float16).view(np.uint16)
            found = compression.halved(each).view(np.uint16)
            np.testing.assert_array_equal(found, expected)


def test_widened_halves_are_those_of_numpy() -> None:
    halves = np.arange(1 << 16, dtype=np.uint16).view(np.float16)

    np.testing.assert_array_equal(
        compression.widened(halves), halves.astype(np.float32)
    )
