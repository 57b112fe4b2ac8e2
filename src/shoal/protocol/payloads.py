"""Values as bytes: arguments on their way to an interpreter, results on their way back.

Nodes pass the bytes on and never load them. Loading them runs what is in them:
interpreters do, in their sandbox, and a client whose own machines sent them.
Plain values are pickled as they are. Whatever else is pickled by cloudpickle, so that
functions and classes of a script travel too, with large buffers beside the pickle
instead of copied into it. Cloudpickle is loaded when it is first needed.

An interpreter has this file but nothing else of shoal, so it imports nothing of ours.
"""

from __future__ import annotations

import pickle
import struct
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

PROTOCOL: Final = 5
WHOLE: Final = 0
"""The first byte, if all of the value is in the pickle that follows."""

BESIDE: Final = 1
"""The first byte, if buffers follow the pickle; their number and sizes come first."""

LARGE_BYTES: Final = 1 << 16
BUFFERS_MAX: Final = 100_000
_COUNT: Final = struct.Struct("<BI")
_SIMPLE: Final = frozenset({int, float, str, bytes, bool, type(None)})
_ROWS_MAX: Final = 64


def is_plain(value: object, depth: int = 3) -> bool:
    """Whether a value holds nothing but numbers, texts and small rows of them."""
    kind = type(value)
    if kind in _SIMPLE:
        return True
    if not depth:
        return False
    row: Any = value
    if kind is tuple or kind is list:
        if len(row) > _ROWS_MAX:
            return False
        for each in row:  # A loop: this runs for every call.
            if type(each) not in _SIMPLE and not is_plain(each, depth - 1):
                return False
        return True
    if kind is dict:
        if len(row) > _ROWS_MAX:
            return False
        return is_plain((*row.keys(), *row.values()), depth)
    return False


def cloudpickle() -> Any:  # noqa: ANN401 - The module has no types.
    """Return the module, which takes long to load and is often not needed."""
    return import_module("cloudpickle")


def dumps(value: object) -> list[bytes | memoryview]:
    """Return the pieces that together are the bytes of a value.

    Raises whatever pickling it raises.
    """
    if is_plain(value):
        return _whole(pickle.dumps(value, PROTOCOL))
    buffers: list[pickle.PickleBuffer] = []
    dump = cloudpickle().dumps
    data: bytes = dump(value, PROTOCOL, buffer_callback=buffers.append)
    if not buffers:
        return _whole(data)
    views = [buffer.raw() for buffer in buffers]
    sizes = [len(data), *(view.nbytes for view in views)]
    head = _COUNT.pack(BESIDE, len(sizes)) + struct.pack(f"<{len(sizes)}Q", *sizes)
    return [head + data, *views]


def _whole(data: bytes) -> list[bytes | memoryview]:
    """Return the pieces of a pickle that has all; a large one is not copied."""
    return [b"\0" + data] if len(data) < LARGE_BYTES else [b"\0", data]


def loads(data: bytes | bytearray | memoryview) -> Any:  # noqa: ANN401 - Whatever was pickled.
    """Return the value; arrays in it share the memory of `data`.

    Raises whatever unpickling raises, and ValueError if `data` is none of ours.
    """
    if not data or data[0] not in (WHOLE, BESIDE):
        raise ValueError("these bytes are no payload")
    view = memoryview(data)
    if data[0] == WHOLE:
        return pickle.loads(view[1:])  # noqa: S301 - See above.
    if len(data) < _COUNT.size:
        raise ValueError("these bytes are no payload")
    count = _COUNT.unpack_from(data)[1]
    start = _COUNT.size + 8 * count
    if not 0 < count <= BUFFERS_MAX or start > len(data):
        raise ValueError("these bytes are no payload")
    pieces: list[memoryview] = []
    for size in struct.unpack_from(f"<{count}Q", data, _COUNT.size):
        pieces.append(view[start : start + size])
        start += size
    if start != len(data):
        raise ValueError(f"a payload of {start} bytes has {len(data)}")
    return pickle.loads(pieces[0], buffers=pieces[1:])  # noqa: S301


def parts_of(pieces: Sequence[bytes | memoryview], size: int) -> Iterator[bytes]:
    """Go through the same bytes in parts of at most `size`, one at least.

    Each is cut out when its turn comes: all at once would be one more copy.
    """
    rest, is_first = b"", True
    for piece in pieces:
        view = memoryview(piece).cast("B")
        start = size - len(rest)
        if len(view) < start:
            rest += view
            continue
        yield rest + view[:start]
        is_first = False
        while len(view) - start >= size:
            yield bytes(view[start : start + size])
            start += size
        rest = bytes(view[start:])
    if rest or is_first:
        yield rest
