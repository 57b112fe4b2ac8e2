"""Weights as flat arrays: in fragments, and as files.

The weights of a model are joined into one flat array, in the order of their names. A
fragment is a range of it, so fragments are of equal size for any layers.
Files are safetensors: weights by name, or the bytes of one compressed fragment.
"""

from __future__ import annotations

import json
import zlib
from typing import TYPE_CHECKING, final

import msgspec
import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load, save

from shoal.errors import ProtocolError
from shoal.train.diloco import compression
from shoal.train.diloco.compression import Array

if TYPE_CHECKING:
    from collections.abc import Mapping

    from shoal.train.diloco.compression import Encoding


@final
class Layout(msgspec.Struct, frozen=True):
    """Where each tensor is in the flat array."""

    shapes: dict[str, tuple[int, ...]]

    @property
    def size(self) -> int:
        """How many values there are."""
        return sum(_size(shape) for shape in self.shapes.values())

    def fragment(self, number: int, fragments: int) -> slice:
        """Return the range of a fragment."""
        assert 0 <= number < fragments
        return slice(
            self.size * number // fragments, self.size * (number + 1) // fragments
        )

    def flat(self, tensors: Mapping[str, Array]) -> Array:
        """Join tensors; raise `ProtocolError` if they do not match the layout."""
        if {name: array.shape for name, array in tensors.items()} != self.shapes:
            raise ProtocolError(
                "these are not the weights of this model",
                because="names or shapes of the tensors differ",
                hint="run the same program with the same settings on all workers",
            )
        parts = [np.ravel(tensors[name]) for name in self.shapes]
        joined = np.concatenate(parts) if parts else np.zeros(0)
        return joined.astype(np.float32)

    def named(self, flat: Array) -> dict[str, Array]:
        """Split a flat array into tensors, as views."""
        assert flat.shape == (self.size,)
        tensors: dict[str, Array] = {}
        start = 0
        for name, shape in self.shapes.items():
            tensors[name] = flat[start : start + _size(shape)].reshape(shape)
            start += _size(shape)
        return tensors


def layout_of(tensors: Mapping[str, Array]) -> Layout:
    """Return the layout of tensors, sorted by name."""
    return Layout({name: tensors[name].shape for name in sorted(tensors)})


def _size(shape: tuple[int, ...]) -> int:
    return int(np.prod(shape, dtype=np.int64)) if shape else 1


def check(values: Array) -> int:
    """Return the CRC-32 of values, to compare the weights of two workers."""
    return zlib.crc32(np.ascontiguousarray(values).astype("<f4").tobytes())


# Files.


class State(msgspec.Struct):
    """An aggregator's checkpoint: everything it needs to resume.

    `lost` is what compression took away from the updates so far.
    """

    syncs: int
    layout: Layout
    weights: Array
    momentum: Array
    lost: Array


def pack_weights(layout: Layout, flat: Array) -> bytes:
    """Return weights as a file."""
    return save({name: array.copy() for name, array in layout.named(flat).items()})


def unpack_weights(data: bytes) -> tuple[Layout, Array]:
    """Return what `pack_weights` made."""
    tensors = _load(data)
    layout = layout_of(tensors)
    return layout, layout.flat(tensors)


def pack_state(state: State) -> bytes:
    """Return a checkpoint as a file: weights by name, and what goes with them."""
    tensors = {
        f"weights.{name}": array.copy()
        for name, array in state.layout.named(state.weights).items()
    }
    tensors["momentum"] = state.momentum
    tensors["lost"] = state.lost
    return save(tensors, metadata={"syncs": str(state.syncs)})


def unpack_state(data: bytes) -> State:
    """Return what `pack_state` made."""
    tensors = _load(data)
    own = {
        name.removeprefix("weights."): array
        for name, array in tensors.items()
        if name.startswith("weights.")
    }
    layout = layout_of(own)
    momentum, lost = tensors.get("momentum"), tensors.get("lost")
    size = (layout.size,)
    if momentum is None or lost is None or momentum.shape != size or lost.shape != size:
        raise ProtocolError("this file is no checkpoint of a run")
    syncs = int(_metadata(data).get("syncs", "0"))
    return State(syncs, layout, layout.flat(own), momentum, lost)


def pack_fragment(data: bytes, encoding: Encoding) -> bytes:
    """Return the bytes of a compressed fragment as a file.

    One text is all it says: safetensors writes several in any order, and equal
    fragments are to be equal files.
    """
    array = np.frombuffer(data, dtype=np.uint8)
    return save({"fragment": array}, metadata={"encoding": encoding})


def unpack_fragment(data: bytes, size: int) -> Array:
    """Return the values of a fragment of `size`."""
    tensors = _load(data, np.uint8)
    encoding = _metadata(data).get("encoding", "")
    if "fragment" not in tensors or encoding not in compression.ENCODINGS:
        raise ProtocolError("this file is no fragment of a model")
    return compression.decode(tensors["fragment"].tobytes(), encoding, size)


def _load(data: bytes, kind: type = np.float32) -> dict[str, Array]:
    try:
        tensors = load(data)
    except (SafetensorError, ValueError, KeyError) as error:
        raise ProtocolError(
            "this is no safetensors file", because=str(error)
        ) from error
    for name, array in tensors.items():
        if array.dtype != kind:
            raise ProtocolError(f"tensor {name} is of type {array.dtype}")
    return tensors


def _metadata(data: bytes) -> dict[str, str]:
    """Return a safetensors file's metadata; `load` has checked it."""
    length = int.from_bytes(data[:8], "little")
    header: dict[str, dict[str, str]] = json.loads(data[8 : 8 + length])
    return header.get("__metadata__", {})
