"""Read plain values that machines of other owners sent. That runs no code of theirs.

`protocol.plain_values` writes them. Lengths, types and shapes are checked before any
memory is taken for them; what is wrong raises one `ProtocolError`.
"""

from __future__ import annotations

import datetime
import math
import re
import struct
from array import array
from decimal import Decimal
from importlib import import_module
from typing import Any, Final, NoReturn, final

import msgspec

from shoal.errors import ProtocolError
from shoal.protocol import plain_values as plain

DIMENSIONS_MAX: Final = 32
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
_ROW: Final = msgspec.msgpack.Decoder(tuple[str, list[int], bytes])
_COLUMN: Final = msgspec.msgpack.Decoder(tuple[str, int, list[bytes | None]])
_INTEGERS: Final = msgspec.msgpack.Decoder(list[int | None])


def loads(data: bytes | bytearray | memoryview) -> Any:  # noqa: ANN401 - Any value.
    """Return a plain value; raise `ProtocolError` if these bytes are none."""
    try:
        structure, buffers = _cut(memoryview(data))
        reader = _Reader(buffers) if buffers else _WITHOUT_BUFFERS
        return reader.read(structure)
    except ProtocolError:
        raise
    except Exception as error:  # noqa: BLE001 - Whatever is wrong, it is the sender's.
        _refuse(f"{type(error).__name__}: {str(error)[:200]}")


def _refuse(why: str) -> NoReturn:
    raise ProtocolError("a result is no plain value", kind="malformed", because=why)


def _cut(data: memoryview) -> tuple[memoryview, list[memoryview]]:
    """Return the structure, and the buffers beside it."""
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
    """Reads one value."""

    def __init__(self, buffers: list[memoryview]) -> None:
        self._buffers = dict(enumerate(buffers, 1))
        self._values = msgspec.msgpack.Decoder(ext_hook=self._extension)
        self._rows = msgspec.msgpack.Decoder(list[Any], ext_hook=self._extension)

    def read(self, data: memoryview) -> Any:  # noqa: ANN401 - Any plain value.
        return self._values.decode(data)

    def _extension(self, kind: int, data: memoryview) -> Any:  # noqa: ANN401
        match kind:
            case plain.TUPLE:
                return tuple(self._row(data))
            case plain.SET:
                return set(self._row(data))
            case plain.FROZENSET:
                return frozenset(self._row(data))
            case plain.COMPLEX:
                return complex(*struct.unpack("<dd", data))
            case plain.INTEGER:
                return int.from_bytes(data, "little", signed=True)
            case plain.DECIMAL:
                return Decimal(bytes(data[:DIGITS_MAX]).decode("ascii"))
            case plain.BYTES:
                return bytes(self._buffer(data))
            case plain.BYTEARRAY:
                return bytearray(self._buffer(data))
            case plain.FLOATS | plain.INTEGERS:
                return self._numbers("d" if kind == plain.FLOATS else "q", data)
            case plain.ARRAY | plain.SCALAR:
                found = self._array(data)
                return found if kind == plain.ARRAY else _only(found)
            case plain.TENSOR:
                return self._tensor(data)
            case plain.COLUMN:
                return self._column(data)
            case plain.TABLE:
                names, columns = self._row(data)
                return import_module("pyarrow").table(columns, names=names)
            case _:
                return _date(kind, _INTEGERS.decode(data))

    def _row(self, data: memoryview) -> list[Any]:
        return self._rows.decode(data)

    def _buffer(self, name: bytes | memoryview) -> memoryview:
        """Return a buffer, once: or a few bytes could name it a million times."""
        number = struct.unpack("<I", name)[0]
        found = self._buffers.pop(number, None)
        if found is None:
            _refuse(f"there is no buffer {number}, or it is named twice")
        return found

    def _numbers(self, kind: str, data: memoryview) -> list[Any]:
        numbers: array[Any] = array(kind)
        numbers.frombytes(self._buffer(data))
        if struct.pack("=H", 1) != struct.pack("<H", 1):
            numbers.byteswap()
        return numbers.tolist()

    def _shaped(
        self, shape: list[int], item_bytes: int, name: bytes
    ) -> tuple[tuple[int, ...], memoryview]:
        """Return a shape and its buffer, if one is exactly as large as the other."""
        buffer = self._buffer(name)
        if len(shape) > DIMENSIONS_MAX or any(not 0 <= n < 1 << 48 for n in shape):
            _refuse("a shape is out of bounds")
        if math.prod(shape) * item_bytes != len(buffer):
            _refuse(f"a shape needs {math.prod(shape) * item_bytes} bytes")
        return tuple(shape), buffer

    def _array(self, data: memoryview) -> Any:  # noqa: ANN401 - An array of numpy.
        name, shape, place = _ROW.decode(data)
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

    def _tensor(self, data: memoryview) -> Any:  # noqa: ANN401 - A tensor of torch.
        name, shape, place = _ROW.decode(data)
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

    def _column(self, data: memoryview) -> Any:  # noqa: ANN401 - An array of Arrow.
        name, length, places = _COLUMN.decode(data)
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


_WITHOUT_BUFFERS: Final = _Reader([])
"""Nothing in it changes, so it serves for all small values: it takes long to make."""

_ARROW_NAMES: Final = {"date32[day]": "date32", "date64[ms]": "date64"}


def _only(found: Any) -> Any:  # noqa: ANN401 - A scalar of numpy.
    if found.shape:
        _refuse("a number has a shape")
    return found[()]


def _check_most(found: Any, most: int) -> None:  # noqa: ANN401 - An array of numpy.
    if found.size and int(found.max()) > most:
        _refuse(f"an array has a value above {most}")


def _date(kind: int, told: list[int | None]) -> Any:  # noqa: ANN401 - Of four types.
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
