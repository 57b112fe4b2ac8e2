"""Plain values come back as they were, and nothing that pretends to be one harms."""

import struct
import sys
import tracemalloc
from collections import OrderedDict
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any

import msgspec
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from shoal.client import plain_results
from shoal.errors import ProtocolError
from shoal.protocol import plain_values
from shoal.protocol.plain_values import NotPlainError

pack = msgspec.msgpack.encode
MEMORY_MAX = 64 << 20

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(1 << 200), 1 << 200)
    | st.floats(allow_nan=False)
    | st.complex_numbers(allow_nan=False)
    | st.text()
    | st.binary()
    | st.dates()
    | st.times()
    | st.datetimes(timezones=st.sampled_from([None, UTC]))
    | st.timedeltas()
    | st.decimals(allow_nan=False)
)
KEYS = st.text() | st.integers() | st.tuples(st.integers(), st.text())
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner)
        | st.lists(st.floats(allow_nan=False), min_size=40, max_size=50)
        | st.lists(st.integers(-(1 << 70), 1 << 70), min_size=40, max_size=50)
        | st.lists(inner).map(tuple)
        | st.dictionaries(KEYS, inner)
        | st.sets(KEYS)
        | st.frozensets(KEYS)
    ),
    max_leaves=20,
)


def whole(value: object) -> bytes:
    return b"".join(plain_values.dumps(value))


def back(value: object) -> Any:  # noqa: ANN401
    return plain_results.loads(whole(value))


@given(VALUES)
def test_a_plain_value_comes_back_as_it_was(value: object) -> None:
    assert repr(back(value)) == repr(value) or back(value) == value
    assert type(back(value)) is type(value)


@pytest.mark.parametrize(
    "value",
    [
        date(2026, 11, 17),
        time(9, 30, fold=1),
        datetime(2026, 1, 2, 3, 4, 5, 6, timezone(timedelta(minutes=-90)), fold=1),
        timedelta(days=-3, microseconds=7),
        Decimal("1.10"),
        bytearray(b"x" * 10_000),
        b"y" * 10_000,
        float("inf"),
        1 << 64,
        -(1 << 63) - 1,
    ],
)
def test_the_rarer_types_come_back_too(value: object) -> None:
    assert back(value) == value
    assert type(back(value)) is type(value)


@pytest.mark.parametrize(
    "array",
    [
        np.arange(12.0).reshape(3, 4),
        np.arange(24).reshape(2, 3, 4)[:, ::2, ::-1],
        np.zeros((0, 3), np.int8),
        np.array(7, np.uint16),
        np.array([True, False]),
        np.array(["a", "ábc"]),
        np.array([b"a", b"bc"]),
        np.array(["2026-11-17"], "M8[D]"),
        np.array([1 + 2j], ">c16"),
    ],
)
def test_arrays_of_numpy_come_back(array: np.ndarray[Any, Any]) -> None:
    found = back({"x": [array]})["x"][0]

    assert found.dtype == array.dtype
    assert found.shape == array.shape
    assert (found == array).all()
    assert found.flags.writeable


def test_scalars_of_numpy_and_tensors_come_back() -> None:
    number = back(np.float32(1.5))
    half = back(torch.tensor([[1.5, -2.0]], dtype=torch.bfloat16))

    assert type(number) is np.float32
    assert number == np.float32(1.5)
    assert half.dtype is torch.bfloat16
    assert half.tolist() == [[1.5, -2.0]]


def test_tables_of_arrow_come_back() -> None:
    arrow = pytest.importorskip("pyarrow")
    table = arrow.table({"n": [1, None, 3], "t": ["a", "bb", None], "f": [1.5, 2, 3]})

    assert back(table).equals(table)
    assert back(table.column("t").slice(1)).to_pylist() == ["bb", None]


class Thing:
    """Nothing plain."""


def looped() -> object:
    found: list[object] = []
    found.append(found)
    return found


def laughs() -> object:
    found: list[object] = [1]
    for _ in range(30):
        found = [found, found]
    return found


@pytest.mark.parametrize(
    "make",
    [
        Thing,
        lambda: {"a": [Thing()]},
        lambda: OrderedDict(a=1),
        looped,
        laughs,
        lambda: "\ud800",
        lambda: np.array([None]),
        lambda: np.zeros(2, [("a", "f8")]),
        lambda: torch.eye(2).to_sparse(),
        lambda: print,
    ],
)
def test_what_is_not_plain_says_so_and_takes_no_time(make: Callable[[], Any]) -> None:
    with pytest.raises(NotPlainError, match=r"\w"):
        plain_values.dumps(make())


def extension(kind: int, body: bytes) -> bytes:
    return struct.pack(">BIB", 0xC9, len(body), kind) + body


def beside(structure: bytes, *buffers: bytes) -> bytes:
    pieces = [structure, *buffers]
    head = struct.pack(f"<BI{len(pieces)}Q", 3, len(pieces), *map(len, pieces))
    return head + b"".join(pieces)


def array_of(dtype: str, shape: list[int], data: bytes = b"\0" * 16) -> bytes:
    body = pack([dtype, 1, *shape])
    return beside(extension(plain_values.ARRAY, body), data)


def nested(depth: int) -> bytes:
    found = pack([])
    for _ in range(depth):
        found = extension(plain_values.TUPLE, b"\x91" + found)
    return found


def alike(count: int) -> bytes:
    """Return a row of numbers whose hashes are all the same."""
    modulus = sys.hash_info.modulus
    numbers = [((n + 9) * modulus).to_bytes(10, "little") for n in range(count)]
    kind = plain_values.INTEGER
    return pack([msgspec.msgpack.Ext(kind, number) for number in numbers])


FIRST = struct.pack("<I", 1)
HOSTILE: dict[str, bytes] = {
    "nothing": b"",
    "another kind": b"\7\0",
    "no end": b"\2\xdd\xff\xff\xff\xff",
    "more than one value": b"\2\1\1",
    "deep lists": b"\2" + b"\x91" * 1_000_000,
    "deep tuples": b"\2" + nested(5_000),
    "a tuple of no row": b"\2" + extension(1, pack({})),
    "a set of lists": b"\2" + extension(2, pack([[1]])),
    "no extension": b"\2" + extension(99, pack([1])),
    "a date out of range": b"\2" + extension(plain_values.DATE, pack([2026, 13, 1])),
    "a date without parts": b"\2" + extension(plain_values.DATE, pack([])),
    "a zone too far": b"\2"
    + extension(plain_values.TIME, pack([1, 1, 1, 1, 0, 1 << 60])),
    "half a complex": b"\2" + extension(plain_values.COMPLEX, b"12345678"),
    "no decimal": b"\2" + extension(plain_values.DECIMAL, b"__import__('os')"),
    "buffers beyond the end": struct.pack("<BIQ", 3, 1, 1 << 60),
    "more buffers than bytes": struct.pack("<BI", 3, 1 << 31),
    "a buffer that is not there": beside(extension(13, struct.pack("<I", 2)), b"x"),
    "a buffer with an empty name": beside(extension(13, b""), b"x"),
    "one buffer, many times": beside(
        extension(plain_values.LIST, pack([msgspec.msgpack.Ext(13, FIRST)] * 9)), b"x"
    ),
    "a list of MessagePack": b"\2" + pack([1]),
    "a map of MessagePack": b"\2" + pack({"a": 1}),
    "a map within": b"\2" + extension(plain_values.LIST, pack([{"a": 1}])),
    "bytes of MessagePack": b"\2" + pack(b"x"),
    "a dict without its last value": b"\2" + extension(21, pack([1, 2, 3])),
    "a dict of lists": b"\2" + extension(21, b"\x92" + extension(20, pack([])) + b"\0"),
    "keys with one hash": b"\2" + extension(plain_values.SET, alike(50_000)),
    "half a float": beside(extension(plain_values.FLOATS, FIRST), b"1234567"),
    "objects": array_of("|O", [2]),
    "objects, by another name": array_of("object", [2]),
    "a record": array_of("f8,O", [1]),
    "a record of bytes": array_of("V16", [1]),
    "a subarray": array_of("(2,)f8", [1]),
    "a type by its module": array_of("numpy.object_", [2]),
    "a comma": array_of("<f8,<f8", [1]),
    "text that is none": array_of("<U1", [1], b"\xff\xff\xff\xff"),
    "truth that is none": array_of("|b1", [1], b"\7"),
    "a huge shape": array_of("<f8", [1 << 60, 1 << 60]),
    "a negative shape": array_of("<f8", [-1, -2]),
    "a shape that does not fit": array_of("<f8", [3]),
    "many dimensions": array_of("<f8", [1] * 65 + [2]),
    "a number with a shape": beside(
        extension(plain_values.SCALAR, pack(["<f8", 1, 2])), b"\0" * 16
    ),
    "a tensor of a type that is a module": beside(
        extension(plain_values.TENSOR, pack(["serialization", 1, 2])), b"\0"
    ),
    "a huge tensor": beside(
        extension(plain_values.TENSOR, pack(["float64", 1, 1 << 60])), b"\0"
    ),
    "a column of lists": beside(
        extension(plain_values.COLUMN, pack(["list<int8>", 2, 1])), b"\0" * 16
    ),
    "a column that is too short": beside(
        extension(plain_values.COLUMN, pack(["int64", 1 << 30, None, 1])), b"\0"
    ),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_what_only_pretends_to_be_plain_raises_one_error_in_little_memory(
    name: str,
) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(ProtocolError):
            plain_results.loads(HOSTILE[name])
        assert tracemalloc.get_traced_memory()[1] < MEMORY_MAX
    finally:
        tracemalloc.stop()


@given(st.data())
def test_bytes_that_were_changed_give_a_value_or_the_one_error(
    data: st.DataObject,
) -> None:
    good = whole({"a": [1.5, (2, "x")], "b": np.arange(3), "c": [1.0] * 40})
    place = data.draw(st.integers(0, len(good) - 1))
    bad = bytearray(good)
    bad[place] = data.draw(st.integers(0, 255))

    try:
        plain_results.loads(bad)
    except ProtocolError:
        return
