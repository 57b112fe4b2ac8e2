"""Decodes plain values from untrusted machines, without running any of their code.

`protocol.plain_values` encodes them. Lengths, types and shapes are checked before
memory is allocated for them; any defect raises `ProtocolError`.

A value is a MessagePack structure, followed by raw buffers if it has large parts.
Containers are extensions that hold a flat row, so nesting is bounded by `DEPTH_MAX`.
Each buffer can be used once, so a small message cannot expand into a large value.
"""

from __future__ import annotations

import datetime
import math
import re
import struct
from array import array
from collections import Counter
from decimal import Decimal
from importlib import import_module
from typing import Any, Final, NoReturn, final

import msgspec
from msgspec.msgpack import Ext

from shoal.errors import ProtocolError
from shoal.protocol import plain_values as plain

DIMENSIONS_MAX: Final = 32
ALIKE_MAX: Final = 64
"""Most keys of one dict or set that may share a hash."""

DIGITS_MAX: Final = 10_000
CODE_POINT_MAX: Final = 0x10FFFF
_COUNT: Final = struct.Struct("<BI")
_DTYPE: Final = re.compile(
    r"\|b1|[|<>][iu][1248]|[<>][fc](2|4|8|16|32)|[|<>][SU][1-9]\d{0,6}"
    r"|[<>][mM]8(\[\d{0,6}[A-Za-z]{1,2}\])?"
)
_TENSOR: Final = re.compile(
    r"u?int(8|16|32|64)|b?float(16|32|64)|bool|complex(32|64|128)"
    r"|float8_e(4m3fn|5m2|4m3fnuz|5m2fnuz)"
)
_VALUE: Final = msgspec.msgpack.Decoder(bool | int | float | str | Ext | None)
_ROW: Final = msgspec.msgpack.Decoder(list[bool | int | float | str | Ext | None])
"""Excludes MessagePack maps and lists: they would be built before any check."""


def loads(data: bytes | bytearray | memoryview) -> Any:  # noqa: ANN401 - Any value.
    """Decode a plain value; raise `ProtocolError` if the bytes are malformed."""
    try:
        structure, buffers = _cut(memoryview(data))
        return _Reader(buffers).read(structure)
    except ProtocolError:
        raise
    except Exception as error:  # noqa: BLE001 - Any failure means bad input.
        _refuse(f"{type(error).__name__}: {str(error)[:200]}")


def _refuse(why: str) -> NoReturn:
    raise ProtocolError("a result is no plain value", kind="malformed", because=why)


def _cut(data: memoryview) -> tuple[memoryview, list[memoryview]]:
    """Split a value into its structure and its buffers."""
    kind = data[0] if data else None
    pieces = [data[1:]]
    if kind == plain.PLAIN_BESIDE:
        count = _COUNT.unpack_from(data)[1]
        start = _COUNT.size + 8 * count
        if not 0 < count <= plain.BUFFERS_MAX + 1 or start > len(data):
            _refuse(f"{count} buffers in {len(data)} bytes")
        pieces.clear()
        for size in struct.unpack_from(f"<{count}Q", data, _COUNT.size):
            pieces.append(data[start : start + size])
            start += size
        if start != len(data):
            _refuse(f"{len(data)} bytes should be {start}")
    elif kind != plain.PLAIN:
        _refuse(f"it begins with {kind}")
    if len(pieces[0]) > plain.STRUCTURE_BYTES_MAX:
        _refuse(f"its structure has {len(pieces[0])} bytes")
    return pieces[0], pieces[1:]


@final
class _Reader:
    """Decodes one value; each of its buffers can be used once."""

    def __init__(self, buffers: list[memoryview]) -> None:
        self._buffers = dict(enumerate(buffers, 1))

    def read(self, data: memoryview) -> Any:  # noqa: ANN401 - Any plain value.
        return self._value(_VALUE.decode(data), 0)

    def _value(self, told: Any, depth: int) -> Any:  # noqa: ANN401 - Any plain value.
        if type(told) is not Ext:
            return told
        kind, data = told.code, memoryview(told.data)
        if kind in _LEAVES:
            return self._leaf(kind, data)
        if depth > plain.DEPTH_MAX:
            _refuse(f"it is nested more than {plain.DEPTH_MAX} deep")
        row = _ROW.decode(data)
        if Ext in set(map(type, row)):
            row = [self._value(each, depth + 1) for each in row]
        match kind:
            case plain.LIST:
                return row
            case plain.TUPLE:
                return tuple(row)
            case plain.DICT:
                return dict(zip(_keys(row[::2]), row[1::2], strict=True))
            case plain.SET:
                return set(_keys(row))
            case plain.FROZENSET:
                return frozenset(_keys(row))
            case _:
                return self._of_parts(kind, row)

    def _leaf(self, kind: int, data: memoryview) -> Any:  # noqa: ANN401
        match kind:
            case plain.COMPLEX:
                return complex(*struct.unpack("<dd", data))
            case plain.INTEGER:
                return int.from_bytes(data, "little", signed=True)
            case plain.DECIMAL:
                return Decimal(bytes(data[:DIGITS_MAX]).decode("ascii"))
            case plain.RAW:
                return bytes(data)
            case plain.BYTES:
                return bytes(self._named(data))
            case plain.BYTEARRAY:
                return bytearray(self._named(data))
            case _:
                return self._numbers("d" if kind == plain.FLOATS else "q", data)

    def _of_parts(self, kind: int, row: list[Any]) -> Any:  # noqa: ANN401
        match kind:
            case plain.ARRAY:
                return self._array(row)
            case plain.SCALAR:
                return _only(self._array(row))
            case plain.TENSOR:
                return self._tensor(row)
            case plain.COLUMN:
                return self._column(row)
            case plain.TABLE:
                half = len(row) // 2
                arrow = import_module("pyarrow")
                return arrow.table(row[half:], names=row[:half])
            case _:
                return _date(kind, row)

    def _buffer(self, number: object) -> memoryview:
        """Return a buffer once, so that few bytes cannot name it a million times."""
        found = self._buffers.pop(number, None) if type(number) is int else None
        if found is None:
            _refuse("there is no such buffer, or it is named twice")
        return found

    def _named(self, name: memoryview) -> memoryview:
        return self._buffer(struct.unpack("<I", name)[0])

    def _numbers(self, kind: str, data: memoryview) -> list[Any]:
        numbers: array[Any] = array(kind)
        numbers.frombytes(self._named(data))
        if struct.pack("=H", 1) != struct.pack("<H", 1):
            numbers.byteswap()
        return numbers.tolist()

    def _shaped(
        self, shape: list[Any], item_bytes: int, place: object
    ) -> tuple[tuple[int, ...], memoryview]:
        """Return a shape and its buffer; refuse them unless the sizes match."""
        buffer = self._buffer(place)
        if len(shape) > DIMENSIONS_MAX or any(type(n) is not int for n in shape):
            _refuse("a shape is none")
        if any(not 0 <= n < 1 << 48 for n in shape):
            _refuse("a shape is out of bounds")
        if math.prod(shape) * item_bytes != len(buffer):
            _refuse(f"a shape needs {math.prod(shape) * item_bytes} bytes")
        return tuple(shape), buffer

    def _array(self, row: list[Any]) -> Any:  # noqa: ANN401 - An array of numpy.
        name, place, *shape = row
        if _DTYPE.fullmatch(name) is None:
            _refuse(f"an array has dtype {name[:40]!r}")
        numpy = import_module("numpy")
        dtype = numpy.dtype(name)
        if dtype.hasobject or dtype.names or dtype.subdtype or not dtype.itemsize:
            _refuse(f"an array has dtype {name[:40]!r}")
        dimensions, buffer = self._shaped(shape, dtype.itemsize, place)
        if dtype.kind == "b":
            _check_most(numpy.frombuffer(buffer, numpy.uint8), 1)
        if dtype.kind == "U":
            _check_most(numpy.frombuffer(buffer, f"{name[0]}u4"), CODE_POINT_MAX)
        return numpy.frombuffer(buffer, dtype).reshape(dimensions).copy()

    def _tensor(self, row: list[Any]) -> Any:  # noqa: ANN401 - A tensor of torch.
        name, place, *shape = row
        if _TENSOR.fullmatch(name) is None:
            _refuse(f"a tensor has type {name[:40]!r}")
        torch = import_module("torch")
        dtype = getattr(torch, name)
        dimensions, buffer = self._shaped(shape, dtype.itemsize, place)
        if name == "bool" and any(each > 1 for each in set(bytes(buffer))):
            _refuse("a truth value is neither 0 nor 1")
        if not len(buffer):
            return torch.empty(dimensions, dtype=dtype)
        return torch.frombuffer(bytearray(buffer), dtype=dtype).reshape(dimensions)

    def _column(self, row: list[Any]) -> Any:  # noqa: ANN401 - An array of Arrow.
        name, length, *places = row
        if name not in plain.COLUMN_TYPES or not 0 <= length < 1 << 40:
            _refuse(f"a column has type {name[:40]!r} and length {length}")
        arrow = import_module("pyarrow")
        buffers = [
            None if each is None else arrow.py_buffer(bytes(self._buffer(each)))
            for each in places
        ]
        kind = arrow.type_for_alias(_ARROW_NAMES.get(name, name))
        found = arrow.Array.from_buffers(kind, length, buffers)
        found.validate(full=True)
        return found


_ARROW_NAMES: Final = {"date32[day]": "date32", "date64[ms]": "date64"}


_LEAVES: Final = frozenset(
    {
        *(plain.COMPLEX, plain.INTEGER, plain.DECIMAL, plain.RAW, plain.BYTES),
        *(plain.BYTEARRAY, plain.FLOATS, plain.INTEGERS),
    }
)
"""Extensions that hold no row."""


def _keys(row: list[Any]) -> list[Any]:
    """Return the keys; refuse them if they were chosen to collide by hash."""
    if len(row) > ALIKE_MAX:
        most = Counter(map(hash, row)).most_common(1)[0][1]
        if most > ALIKE_MAX:
            _refuse(f"{most} keys have the same hash")
    return row


def _only(found: Any) -> Any:  # noqa: ANN401 - A scalar of numpy.
    if found.shape:
        _refuse("a number has a shape")
    return found[()]


def _check_most(found: Any, most: int) -> None:  # noqa: ANN401 - An array of numpy.
    if found.size and int(found.max()) > most:
        _refuse(f"an array has a value above {most}")


def _date(kind: int, told: list[Any]) -> Any:  # noqa: ANN401 - Of four types.
    zone: datetime.timezone | None = None
    if kind in (plain.TIME, plain.DATETIME):
        offset = told.pop()
        if offset is not None:
            zone = datetime.timezone(datetime.timedelta(microseconds=offset))
    if None in told:
        _refuse("a date lacks a part")
    parts: list[Any] = told
    match kind:
        case plain.DATE:
            return datetime.date(*parts)
        case plain.TIME:
            hour, minute, second, micro, fold = parts
            return datetime.time(hour, minute, second, micro, zone, fold=fold)
        case plain.DATETIME:
            year, month, day, hour, minute, second, micro, fold = parts
            return datetime.datetime(
                year, month, day, hour, minute, second, micro, zone, fold=fold
            )
        case plain.TIMEDELTA:
            days, seconds, microseconds = parts
            return datetime.timedelta(days, seconds, microseconds)
        case _:
            _refuse(f"there is no extension {kind}")
