"""Weights become files and fragments, and come back as they were."""

import numpy as np
import pytest

from shoal.errors import ProtocolError
from shoal.train import tensors
from shoal.train.diloco import compression
from shoal.train.diloco.compression import Array

SHAPES = {"b.weight": (3, 4), "a.bias": (5,), "c.scale": ()}


def some(seed: int = 0) -> dict[str, Array]:
    rng = np.random.default_rng(seed)
    return {name: rng.normal(size=s).astype(np.float32) for name, s in SHAPES.items()}


def test_flat_weights_become_the_same_tensors_again() -> None:
    weights = some()
    layout = tensors.layout_of(weights)

    again = layout.named(layout.flat(weights))

    assert list(again) == sorted(SHAPES)
    for name, array in weights.items():
        np.testing.assert_array_equal(again[name], array)


@pytest.mark.parametrize("fragments", [1, 2, 3, 7])
def test_fragments_cover_all_values_once(fragments: int) -> None:
    layout = tensors.layout_of(some())

    ranges = [layout.fragment(number, fragments) for number in range(fragments)]

    covered = [n for each in ranges for n in range(each.start, each.stop)]
    assert covered == list(range(layout.size))
    lengths = [each.stop - each.start for each in ranges]
    assert max(lengths) - min(lengths) <= 1


def test_equal_weights_are_equal_files() -> None:
    layout = tensors.layout_of(some())
    one = tensors.pack_weights(layout, layout.flat(some()))
    other = tensors.pack_weights(layout, layout.flat(dict(reversed(some().items()))))

    assert one == other
    assert len({tensors.pack_fragment(b"abc", "int8") for _ in range(9)}) == 1


def test_a_checkpoint_holds_all_that_an_aggregator_knows() -> None:
    layout = tensors.layout_of(some())
    flat = layout.flat(some())
    state = tensors.State(7, layout, flat, flat * 2, flat * 3)

    again = tensors.unpack_state(tensors.pack_state(state))

    assert (again.syncs, again.layout) == (7, layout)
    for field in ("weights", "momentum", "lost"):
        np.testing.assert_array_equal(getattr(again, field), getattr(state, field))


def test_weights_of_another_model_are_refused() -> None:
    layout = tensors.layout_of(some())

    with pytest.raises(ProtocolError, match="not the weights of this model"):
        layout.flat({"other": np.zeros(3, dtype=np.float32)})


@pytest.mark.parametrize("data", [b"", b"nonsense", b"\xff" * 100])
def test_a_file_that_is_none_of_ours_is_refused(data: bytes) -> None:
    for read in (
        tensors.unpack_weights,
        tensors.unpack_state,
        lambda each: tensors.unpack_fragment(each, 4),
    ):
        with pytest.raises(ProtocolError):
            read(data)


def test_a_fragment_of_another_size_is_refused() -> None:
    data = compression.encode(np.ones(10, dtype=np.float32), "float16")
    file = tensors.pack_fragment(data, "float16")

    with pytest.raises(ProtocolError):
        tensors.unpack_fragment(file, 11)
    np.testing.assert_array_equal(tensors.unpack_fragment(file, 10), np.ones(10))
