"""Weights become files and fragments, and come back as they were."""

from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from numpy.typing import NDArray
from safetensors.numpy import load_file, save_file

from shoal.errors import ProtocolError
from shoal.train import tensors
from shoal.train.diloco import compression
from shoal.train.diloco.compression import Array

SHAPES: dict[str, tuple[int, ...]] = {"b.weight": (3, 4), "a.bias": (5,), "c.scale": ()}
BUFFERS: dict[str, tuple[int, ...]] = {"norm.mean": (4,), "a.early": (3,)}


def some(
    seed: int = 0, shapes: dict[str, tuple[int, ...]] = SHAPES
) -> dict[str, Array]:
    rng = np.random.default_rng(seed)
    return {name: rng.normal(size=s).astype(np.float32) for name, s in shapes.items()}


def layout() -> tensors.Layout:
    return tensors.layout_of(some(), some(shapes=BUFFERS), frozen=7)


def flat() -> Array:
    return layout().flat({**some(), **some(shapes=BUFFERS)})


def test_flat_weights_become_the_same_tensors_again() -> None:
    again = layout().named(flat())

    assert list(again) == [*sorted(SHAPES), *sorted(BUFFERS)]
    for name, array in {**some(), **some(shapes=BUFFERS)}.items():
        np.testing.assert_array_equal(again[name], array)


@pytest.mark.parametrize("fragments", [1, 2, 3, 7])
def test_fragments_cover_all_values_once(fragments: int) -> None:
    parts = [layout().fragment(number, fragments) for number in range(fragments)]

    for ranges in ([each.trained for each in parts], [each.buffers for each in parts]):
        lengths = [each.stop - each.start for each in ranges]
        assert max(lengths) - min(lengths) <= 1
    both = [*(each.trained for each in parts), *(each.buffers for each in parts)]
    covered = [n for each in both for n in range(each.start, each.stop)]
    assert covered == list(range(layout().size))


def test_a_large_fragment_is_computed_with_in_chunks() -> None:
    part = tensors.Fragment(slice(10, 2 * tensors.CHUNK + 11), slice(0, 0))

    covered = [(each.start, each.stop) for each in part.chunks]

    assert covered[0] == (10, tensors.CHUNK + 10)
    assert covered[-1] == (2 * tensors.CHUNK + 10, 2 * tensors.CHUNK + 11)


def test_equal_weights_are_equal_files(tmp_path: Path) -> None:
    for name in ("one", "other"):
        tensors.save_weights(tmp_path / name, layout(), flat())
        part, none = tensors.Fragment(slice(0, 3), slice(3, 3)), flat()[:0]
        tensors.save_fragment(tmp_path / f"{name}-part", part, [b"abc"], none, "int8")

    assert (tmp_path / "one").read_bytes() == (tmp_path / "other").read_bytes()
    assert (tmp_path / "one-part").read_bytes() == (
        tmp_path / "other-part"
    ).read_bytes()


def test_a_file_is_what_the_library_writes(tmp_path: Path) -> None:
    halves = np.arange(3, dtype=np.float16)
    few = np.array([1, 2], dtype=np.uint8)
    arrays: dict[str, NDArray[Any]] = {"b": flat(), "a.x": flat()[:1]}
    arrays |= {"few": halves, "bytes": few}
    head = tensors._Head(syncs=3, buffers=("é",))

    tensors._save(tmp_path / "ours", arrays, head)

    about = {tensors.HEAD: msgspec.json.encode(head).decode()}
    save_file(arrays, tmp_path / "theirs", about)
    ours, theirs = (tmp_path / n for n in ("ours", "theirs"))
    assert ours.read_bytes() == theirs.read_bytes()


def test_a_fragment_of_many_chunks_is_read_by_the_library(tmp_path: Path) -> None:
    size = 2 * tensors.CHUNK + 10
    part = tensors.Fragment(slice(5, 5 + size), slice(5 + size, 8 + size))
    values = np.arange(size, dtype=np.float32)
    chunks = (values[each.start - 5 : each.stop - 5].tobytes() for each in part.chunks)

    tensors.save_fragment(tmp_path / "f", part, chunks, flat()[:3], "float32")

    found = load_file(tmp_path / "f")
    assert sorted(found) == ["0", "1", "2", tensors.BUFFERS]
    read = np.concatenate(list(tensors.fragment_chunks(tmp_path / "f", part)))
    np.testing.assert_array_equal(read, values)
    np.testing.assert_array_equal(found[tensors.BUFFERS], flat()[:3])


def test_a_checkpoint_holds_all_that_an_aggregator_knows(tmp_path: Path) -> None:
    trained = flat()[: layout().trained_size]
    state = tensors.State(
        7, 3, layout(), flat(), trained * 2, trained.astype(np.float16)
    )
    inner = tmp_path / "inner"
    inner.write_bytes(b"moments")

    tensors.save_state(tmp_path / "state", state, inner)
    again = tensors.load_state(tmp_path / "state", fragments=1)

    assert tensors.progress_of(tmp_path / "state") == (7, 3)
    assert (again.syncs, again.fragments, again.layout) == (7, 3, layout())
    for field in ("weights", "momentum", "lost"):
        np.testing.assert_array_equal(getattr(again, field), getattr(state, field))
    assert tensors.extract_inner(tmp_path / "state", tmp_path / "again")
    assert (tmp_path / "again").read_bytes() == b"moments"


def test_plain_weights_are_a_run_that_begins(tmp_path: Path) -> None:
    tensors.save_weights(tmp_path / "weights", layout(), flat())

    state = tensors.load_state(tmp_path / "weights", fragments=4)

    assert (state.syncs, state.fragments, state.layout) == (0, 4, layout())
    assert not state.momentum.any()
    assert not tensors.extract_inner(tmp_path / "weights", tmp_path / "none")


def test_weights_of_another_model_are_refused() -> None:
    with pytest.raises(ProtocolError, match="not the weights of this model"):
        layout().flat({"other": np.zeros(3, dtype=np.float32)})


@pytest.mark.parametrize("data", [b"", b"nonsense", b"\xff" * 100])
def test_a_file_that_is_none_of_ours_is_refused(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "file"
    path.write_bytes(data)
    part = tensors.Fragment(slice(0, 4), slice(4, 4))

    for read in (
        tensors.load_weights,
        tensors.progress_of,
        lambda each: tensors.load_state(each, 1),
        lambda each: tensors.fragment_buffers(each, part),
        lambda each: list(tensors.fragment_chunks(each, part)),
    ):
        with pytest.raises(ProtocolError):
            read(path)


def test_a_fragment_of_another_size_is_refused(tmp_path: Path) -> None:
    data = compression.encode(np.ones(10, dtype=np.float32), "float16")
    path = tmp_path / "fragment"
    right = tensors.Fragment(slice(0, 10), slice(10, 12))
    buffers = np.ones(2, dtype=np.float32)
    tensors.save_fragment(path, right, [data], buffers, "float16")

    for part in (
        tensors.Fragment(slice(0, 11), slice(11, 13)),
        tensors.Fragment(slice(0, tensors.CHUNK + 1), slice(0, 2)),
    ):
        with pytest.raises(ProtocolError):
            list(tensors.fragment_chunks(path, part))
    with pytest.raises(ProtocolError):
        tensors.fragment_buffers(path, tensors.Fragment(slice(0, 10), slice(10, 13)))
    [values] = tensors.fragment_chunks(path, right)
    np.testing.assert_array_equal(values, np.ones(10))
    np.testing.assert_array_equal(tensors.fragment_buffers(path, right), np.ones(2))
