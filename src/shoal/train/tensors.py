"""Weights as flat arrays: in fragments, and as files.

What the workers of a run share is joined into one flat array: first the trained
weights, in the order of their names, then the buffers. Trained weights take the outer
step; buffers, such as the running variance of a batch norm, are averaged plainly and
travel uncompressed. A fragment is a range of each, so fragments are of equal size for
any layers.

Files are safetensors. They are written from the arrays as they are and read piece by
piece, so that no second copy of a model is ever in memory: the library's own writer
makes one of all that goes into a file.
"""

from __future__ import annotations

import itertools
import shutil
import zlib
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, BinaryIO, Final, Protocol, cast, final

import msgspec
import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open

from shoal.errors import ProtocolError
from shoal.train.diloco import compression
from shoal.train.diloco.compression import Array
from shoal.train.diloco.messages import joined_check

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path

    from shoal.train.diloco.compression import Encoding

CHUNK: Final = 16 * compression.BLOCK
"""Values that are computed with at a time, and compressed together."""

HEAD: Final = "shoal"
"""The one text in a file: safetensors writes several in any order, and equal weights
are to be equal files."""

KINDS: Final = {"<f4": "F32", "<f2": "F16", "|u1": "U8"}
"""What safetensors calls the types of numpy."""

ENCODED_MORE: Final = 1_024
"""Bytes of an encoded chunk beyond four for each value, at the most."""

INNER: Final = "inner"
BUFFERS: Final = "buffers"


@final
class Fragment(msgspec.Struct, frozen=True):
    """The ranges of the flat array that one sync exchanges."""

    trained: slice
    buffers: slice

    @property
    def chunks(self) -> list[slice]:
        """The trained range in parts of `CHUNK`."""
        stop = self.trained.stop
        return [
            slice(start, min(stop, start + CHUNK))
            for start in range(self.trained.start, stop, CHUNK)
        ]

    def cut(self, shares: int) -> list[Fragment]:
        """Cut it into equal shares."""
        return [
            Fragment(_part(self.trained, n, shares), _part(self.buffers, n, shares))
            for n in range(shares)
        ]


@final
class Layout(msgspec.Struct, frozen=True):
    """Where each tensor is in the flat array."""

    trained: dict[str, tuple[int, ...]]
    buffers: dict[str, tuple[int, ...]] = {}
    frozen: int = 0  # CRC-32 of weights that are the same everywhere and stay so

    @property
    def trained_size(self) -> int:
        """How many values take the outer step."""
        return sum(_size(shape) for shape in self.trained.values())

    @property
    def size(self) -> int:
        """How many values there are."""
        return self.trained_size + sum(_size(each) for each in self.buffers.values())

    def fragment(self, number: int, fragments: int) -> Fragment:
        """Return the ranges of a fragment."""
        assert 0 <= number < fragments
        trained, size = self.trained_size, self.size
        return Fragment(
            _part(slice(0, trained), number, fragments),
            _part(slice(trained, size), number, fragments),
        )

    def places(self) -> dict[str, tuple[int, tuple[int, ...]]]:
        """Return where each tensor begins, and its shape."""
        found: dict[str, tuple[int, tuple[int, ...]]] = {}
        start = 0
        for name, shape in (*self.trained.items(), *self.buffers.items()):
            found[name] = start, shape
            start += _size(shape)
        return found

    def flat(self, tensors: Mapping[str, Array]) -> Array:
        """Join tensors; raise `ProtocolError` if they do not match the layout."""
        places = self.places()
        if {name: array.shape for name, array in tensors.items()} != {
            name: shape for name, (_, shape) in places.items()
        }:
            raise ProtocolError(
                "these are not the weights of this model",
                because="names or shapes of the tensors differ",
                hint="run the same program with the same settings on all workers",
            )
        flat = np.empty(self.size, dtype=np.float32)
        for name, (start, shape) in places.items():
            flat[start : start + _size(shape)] = np.ravel(tensors[name])
        return flat

    def named(self, flat: Array) -> dict[str, Array]:
        """Split a flat array into tensors, as views."""
        assert flat.shape == (self.size,)
        return {
            name: flat[start : start + _size(shape)].reshape(shape)
            for name, (start, shape) in self.places().items()
        }


def layout_of(
    trained: Mapping[str, Array],
    buffers: Mapping[str, Array] | None = None,
    frozen: int = 0,
) -> Layout:
    """Return the layout of tensors, sorted by name."""
    kept = buffers or {}
    return Layout(
        {name: trained[name].shape for name in sorted(trained)},
        {name: kept[name].shape for name in sorted(kept)},
        frozen,
    )


def _size(shape: tuple[int, ...]) -> int:
    return int(np.prod(shape, dtype=np.int64)) if shape else 1


def _part(of: slice, number: int, parts: int) -> slice:
    """Return one of several equal parts of a range."""
    size = of.stop - of.start
    return slice(
        of.start + size * number // parts, of.start + size * (number + 1) // parts
    )


def check(flat: Array, part: Fragment, shares: int = 0) -> int:
    """Return the CRC-32 of a fragment, to compare the weights of two workers.

    Of one in several shares, it is that of their checks.
    """
    if shares > 0:
        return joined_check([check(flat, each) for each in part.cut(shares)])
    return zlib.crc32(
        _bytes(flat[part.buffers]), zlib.crc32(_bytes(flat[part.trained]))
    )


def _bytes(values: NDArray[Any]) -> memoryview:
    kind = values.dtype.newbyteorder("<")
    return np.ascontiguousarray(values, dtype=kind).reshape(-1).data.cast("B")


# Files of weights.


class State(msgspec.Struct):
    """An aggregator's checkpoint: everything it needs to resume.

    `momentum` is that of the trained weights; `lost` is what compression took away
    from their updates so far, in half precision: it is small, and made good again.
    """

    syncs: int
    fragments: int
    layout: Layout
    weights: Array
    momentum: Array
    lost: NDArray[np.float16]


class _Head(msgspec.Struct, omit_defaults=True):
    """What a file says of itself."""

    syncs: int = 0
    fragments: int = 1
    buffers: tuple[str, ...] = ()
    frozen: int = 0
    encoding: str = ""


def begun(layout: Layout, weights: Array, syncs: int, fragments: int) -> State:
    """Return the state of a run whose outer step has no history."""
    size = layout.trained_size
    momentum = np.zeros(size, dtype=np.float32)
    lost = np.zeros(size, dtype=np.float16)
    return State(syncs, fragments, layout, weights, momentum, lost)


def save_weights(path: Path, layout: Layout, flat: Array) -> None:
    """Write weights to a file, each tensor under its name."""
    head = _Head(buffers=tuple(layout.buffers), frozen=layout.frozen)
    _save(path, layout.named(flat), head)


def save_state(path: Path, state: State, inner: Path | None = None) -> None:
    """Write a checkpoint: weights by name, and what goes with them.

    `inner` is a file of what a worker's loop keeps, which only the loop understands.
    """
    layout = state.layout
    arrays: dict[str, NDArray[Any]] = {
        f"weights.{name}": array for name, array in layout.named(state.weights).items()
    }
    arrays["momentum"], arrays["lost"] = state.momentum, state.lost
    head = _Head(
        syncs=state.syncs,
        fragments=state.fragments,
        buffers=tuple(layout.buffers),
        frozen=layout.frozen,
    )
    _save(path, arrays, head, inner)


def load_weights(path: Path) -> tuple[Layout, Array]:
    """Read what `save_weights` wrote."""
    with _opened(path) as (file, head):
        return _read_weights(file, head, "")


def load_state(path: Path, fragments: int) -> State:
    """Read a checkpoint, or bare weights as the start of a run."""
    with _opened(path) as (file, head):
        if "momentum" not in file.keys():  # noqa: SIM118 - It is no mapping.
            layout, flat = _read_weights(file, head, "")
            return begun(layout, flat, 0, fragments)
        layout, flat = _read_weights(file, head, "weights.")
        momentum = _read(file, "momentum", np.float32)
        lost = _read(file, "lost", np.float16)
        size = (layout.trained_size,)
        if momentum.shape != size or lost.shape != size:
            raise ProtocolError("this file is no checkpoint of a run")
        return State(head.syncs, head.fragments, layout, flat, momentum, lost)


def progress_of(path: Path) -> tuple[int, int]:
    """Return how many syncs a checkpoint has behind it, and how many are a round."""
    with _opened(path) as (file, head):
        if "momentum" not in file.keys() or head.fragments < 1:  # noqa: SIM118
            raise ProtocolError("this file is no checkpoint of a run")
        return head.syncs, head.fragments


def extract_inner(path: Path, to: Path) -> bool:
    """Write what a loop kept to a file; return whether the checkpoint has any."""
    with _opened(path) as (file, _):
        if INNER not in file.keys():  # noqa: SIM118
            return False
        data = file.get_slice(INNER)
        [size] = data.get_shape()
        with to.open("wb") as out:
            for start in range(0, size, CHUNK):
                out.write(data[start : min(size, start + CHUNK)].tobytes())
        return True


def _read_weights(file: _File, head: _Head, prefix: str) -> tuple[Layout, Array]:
    found = [name for name in list(file.keys()) if name.startswith(prefix)]
    names = [name.removeprefix(prefix) for name in found]
    shapes = {
        name: tuple(file.get_slice(prefix + name).get_shape()) for name in sorted(names)
    }
    layout = Layout(
        {name: shape for name, shape in shapes.items() if name not in head.buffers},
        {name: shape for name, shape in shapes.items() if name in head.buffers},
        head.frozen,
    )
    flat = np.empty(layout.size, dtype=np.float32)
    for name, (start, shape) in layout.places().items():
        array = _read(file, prefix + name, np.float32)
        flat[start : start + _size(shape)] = np.ravel(array)
    return layout, flat


# Files of fragments.


def save_fragment(
    path: Path,
    part: Fragment,
    chunks: Iterable[bytes],
    buffers: Array,
    encoding: Encoding,
) -> None:
    """Write a compressed fragment, each chunk as it comes, and its buffers."""
    head = _Head(encoding=encoding)
    sizes = [each.stop - each.start for each in part.chunks]
    most = [0, *itertools.accumulate(4 * size + ENCODED_MORE for size in sizes)]
    room = len(_header(_fragment_entries(most, buffers), head))
    with _drafted(path) as out:
        out.seek(room)  # How large the chunks are is known when they are written.
        ends = [0]
        for chunk in chunks:
            ends.append(ends[-1] + out.write(chunk))
        out.write(_bytes(buffers))
        out.seek(0)
        out.write(_header(_fragment_entries(ends, buffers), head, room))


def _fragment_entries(ends: Sequence[int], buffers: Array) -> dict[str, _Entry]:
    found = {
        str(number): _Entry("U8", (stop - start,), (start, stop))
        for number, (start, stop) in enumerate(itertools.pairwise(ends))
    }
    end = ends[-1]
    found[BUFFERS] = _Entry("F32", buffers.shape, (end, end + buffers.nbytes))
    return found


def fragment_chunks(path: Path, part: Fragment) -> Iterator[Array]:
    """Read a compressed fragment, one chunk of its values at a time.

    Raise `ProtocolError` for what is none, at the latest when it is reached.
    """
    with _opened(path) as (file, head):
        encoding = head.encoding
        if encoding not in compression.ENCODINGS:
            raise ProtocolError("this file is no fragment of a model")
        wanted = {BUFFERS, *(str(number) for number in range(len(part.chunks)))}
        if set(file.keys()) != wanted:
            raise ProtocolError("this file is a fragment of another size")
    for number, each in enumerate(part.chunks):
        with _opened(path) as (file, _):  # Until it is closed, all that was read stays.
            data = _read(file, str(number), np.uint8).tobytes()
        yield compression.decode(data, encoding, each.stop - each.start)


def fragment_buffers(path: Path, part: Fragment) -> Array:
    """Read the buffers of a fragment."""
    with _opened(path) as (file, _):
        buffers = _read(file, BUFFERS, np.float32)
        if buffers.shape != (part.buffers.stop - part.buffers.start,):
            raise ProtocolError("this file is a fragment of another size")
        return buffers


# Safetensors.


class _Entry(msgspec.Struct, frozen=True):
    """Where a tensor is in a file, and what it is."""

    dtype: str
    shape: tuple[int, ...]
    data_offsets: tuple[int, int]  # from the end of the header


def _header(entries: Mapping[str, _Entry], head: _Head, size: int = 0) -> bytes:
    """Return the beginning of a file, of a size or of what it takes."""
    about = {HEAD: msgspec.json.encode(head).decode()}
    text = msgspec.json.encode({"__metadata__": about, **entries})
    taken = 8 + len(text)
    size = size or taken + -taken % 8
    assert taken <= size
    return (size - 8).to_bytes(8, "little") + text.ljust(size - 8)


def _save(
    path: Path,
    arrays: Mapping[str, NDArray[Any]],
    head: _Head,
    inner: Path | None = None,
) -> None:
    """Write a file, byte for byte as the library does; the bytes of `inner` come last.

    Its numbers are the smallest. They go from file to file, and never are in memory.
    """
    entries: dict[str, _Entry] = {}
    end = 0
    # Those of larger numbers first, so that all are aligned.
    names = sorted(arrays, key=lambda name: (-arrays[name].itemsize, name))
    for name in names:
        array, start = arrays[name], end
        end += array.nbytes
        kind = KINDS[array.dtype.newbyteorder("<").str]
        entries[name] = _Entry(kind, array.shape, (start, end))
    if inner is not None:
        size = inner.stat().st_size
        entries[INNER] = _Entry("U8", (size,), (end, end + size))
    with _drafted(path) as out:
        out.write(_header(entries, head))
        for name in names:
            out.write(_bytes(arrays[name]))
        if inner is not None:
            with inner.open("rb") as kept:
                shutil.copyfileobj(kept, out, CHUNK)


@contextmanager
def _drafted(path: Path) -> Generator[BinaryIO]:
    """Open a file that is there when it is whole, and not before."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.draft")
    with draft.open("wb") as out:
        yield out
    draft.replace(path)


class _Slice(Protocol):
    """A tensor of a file, of which parts can be read."""

    def get_shape(self) -> list[int]: ...
    def __getitem__(self, part: slice) -> NDArray[Any]: ...


class _File(Protocol):
    """What `safe_open` opens; it describes no types."""

    def keys(self) -> list[str]: ...
    def metadata(self) -> dict[str, str] | None: ...
    def get_tensor(self, name: str) -> NDArray[Any]: ...
    def get_slice(self, name: str) -> _Slice: ...


@contextmanager
def _opened(path: Path) -> Generator[tuple[_File, _Head]]:
    try:
        with cast("AbstractContextManager[_File]", safe_open(path, "numpy")) as file:
            text = (file.metadata() or {}).get(HEAD, "{}")
            yield file, msgspec.json.decode(text, type=_Head)
    except (SafetensorError, msgspec.MsgspecError, UnicodeError) as error:
        raise ProtocolError(
            "this is no safetensors file of a run", because=str(error)
        ) from error


def _read(file: _File, name: str, kind: type) -> NDArray[Any]:
    try:
        array = file.get_tensor(name)
    except (TypeError, ValueError, KeyError) as error:  # Types that numpy has not.
        raise ProtocolError(f"tensor {name} cannot be read") from error
    if array.dtype != kind:
        raise ProtocolError(f"tensor {name} is of type {array.dtype}")
    return array
