"""Plain values as bytes: data and nothing else, so that to read them runs no code.

Results of interpreters on machines of other owners travel so. A value is a scalar of
MessagePack, or an extension whose kind says what it is: a list, a dict, a date. Within
is a row of values, or the number of a buffer. Buffers lie beside: long bytes, lists of
numbers, arrays and tensors. A value keeps its exact types; what has another type than
those listed here is not plain.

This is the writing side. It imports nothing of ours and needs no library, because an
interpreter has this file but nothing else of shoal. `client.plain_results` reads.
"""

from __future__ import annotations

import datetime
import struct
import sys
from array import array
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final, final

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

PLAIN: Final = 2
"""The first byte, if all of the value is in what follows."""

PLAIN_BESIDE: Final = 3
"""The first byte, if buffers follow; their number and sizes come first."""

NOT_PLAIN: Final = 4
"""The first byte of a pickle: a text of two bytes' length says why, then it comes."""

RESULTS_VARIABLE: Final = "SHOAL_RESULTS"
"""If it is "plain" for an interpreter, it sends plain values to its own owner too."""

TUPLE: Final = 1
SET: Final = 2
FROZENSET: Final = 3
COMPLEX: Final = 4
INTEGER: Final = 5
DATE: Final = 6
TIME: Final = 7
DATETIME: Final = 8
TIMEDELTA: Final = 9
DECIMAL: Final = 10
FLOATS: Final = 11
INTEGERS: Final = 12
BYTES: Final = 13
BYTEARRAY: Final = 14
ARRAY: Final = 15
SCALAR: Final = 16
TENSOR: Final = 17
COLUMN: Final = 18
TABLE: Final = 19
LIST: Final = 20
DICT: Final = 21
RAW: Final = 22

DEPTH_MAX: Final = 32
ITEMS_MAX: Final = 1 << 20
STRUCTURE_BYTES_MAX: Final = 16 << 20
"""Of what is not in buffers: a reader needs many times as much memory for it."""

BUFFERS_MAX: Final = 10_000
BESIDE_BYTES: Final = 4_096
"""Bytes from this length on travel beside the structure."""

NUMBERS_LEAST: Final = 32
"""From this length on, a list of numbers of one type travels as an array."""

KINDS: Final = frozenset("biufcSUmM")
"""Kinds of numpy's types: no objects, no records."""

COLUMN_TYPES: Final = frozenset(
    f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)
) | {
    *("halffloat", "float", "double", "bool", "date32[day]", "date64[ms]"),
    *("string", "large_string", "binary", "large_binary"),
    *(f"timestamp[{unit}]" for unit in ("s", "ms", "us", "ns")),
}
"""Types of Arrow's columns: each is a few buffers, and has no columns within."""

_COUNT: Final = struct.Struct("<BI")
_FLOAT: Final = struct.Struct(">Bd")
_HEAD: Final = struct.Struct(">BI")
_EXTENSION: Final = struct.Struct(">BIB")
_INT64: Final = range(-(1 << 63), 1 << 64)
_MODULES: Final = ("numpy", "torch", "pyarrow")


class NotPlainError(Exception):
    """The value has something in it that is not plain; the text says what."""


def dumps(value: object) -> list[bytes | memoryview]:
    """Return the pieces that together are the bytes of a value, or raise."""
    writer = _Writer()
    try:
        writer.put(value)
    except (UnicodeEncodeError, OverflowError, ValueError, TypeError) as error:
        raise NotPlainError(f"{type(value).__name__}: {error}") from None
    if len(writer.out) > STRUCTURE_BYTES_MAX or len(writer.buffers) > BUFFERS_MAX:
        raise NotPlainError("it has too many parts: arrays may be larger")
    if not writer.buffers:
        return [b"\2" + writer.out]
    pieces = [memoryview(writer.out), *writer.buffers]
    sizes = [piece.nbytes for piece in pieces]
    head = _COUNT.pack(PLAIN_BESIDE, len(sizes)) + struct.pack(
        f"<{len(sizes)}Q", *sizes
    )
    return [head, *pieces]


@final
class _Writer:
    """Writes one value."""

    def __init__(self) -> None:
        self.out = bytearray()
        self.buffers: list[memoryview] = []
        self._depth = 0
        self._items = 0

    def put(self, value: Any) -> None:  # noqa: ANN401 - Whatever a function returned.
        kind = _type_of(value)
        write = _WRITERS.get(kind)
        if write is not None:
            write(self, value)
        elif kind.__module__.partition(".")[0] in _MODULES:
            self._put_array(value, kind)
        else:
            raise NotPlainError(_name_of(kind))

    # MessagePack.

    def put_none(self, _: None) -> None:
        self.out.append(0xC0)

    def put_bool(self, value: bool) -> None:
        self.out.append(0xC3 if value else 0xC2)

    def put_int(self, value: int) -> None:
        if -32 <= value < 128:
            self.out.append(value & 0xFF)
        elif value not in _INT64:
            size = value.bit_length() // 8 + 1
            self.extend(INTEGER, value.to_bytes(size, "little", signed=True))
        elif value < 0:
            self.out += struct.pack(">Bq", 0xD3, value)
        else:
            self.out += struct.pack(">BQ", 0xCF, value)

    def put_float(self, value: float) -> None:
        self.out += _FLOAT.pack(0xCB, value)

    def put_str(self, value: str) -> None:
        data = value.encode()
        size = len(data)
        if size < 32:
            self.out.append(0xA0 | size)
        else:
            self.out += _HEAD.pack(0xDB, size)
        self.out += data

    def put_bytes(self, value: bytes) -> None:
        if len(value) >= BESIDE_BYTES:
            self.extend(BYTES, self.named(memoryview(value)))
        else:
            self.extend(RAW, value)

    def put_list(self, value: list[Any]) -> None:
        if len(value) >= NUMBERS_LEAST and self._put_numbers(value):
            return
        self.nested(LIST, value)

    def put_dict(self, value: dict[Any, Any]) -> None:
        self.nested(DICT, [each for pair in value.items() for each in pair])

    def _begin(self, items: int) -> None:
        self._depth += 1
        self._items += items
        if self._depth > DEPTH_MAX:
            raise NotPlainError(f"it is nested more than {DEPTH_MAX} deep")
        if self._items > ITEMS_MAX:
            raise NotPlainError(f"it has more than {ITEMS_MAX:,} parts, not in arrays")

    # Extensions.

    def extend(self, kind: int, body: bytes | bytearray) -> None:
        self.out += _EXTENSION.pack(0xC9, len(body), kind)
        self.out += body

    def nested(self, kind: int, row: Collection[object]) -> None:
        """Write an extension whose body is a row of plain values."""
        self._begin(len(row))
        before, self.out = self.out, bytearray(_HEAD.pack(0xDD, len(row)))
        for each in row:
            write = _WRITERS.get(type(each))
            if write is not None:
                write(self, each)
            else:
                self.put(each)
        body, self.out = self.out, before
        self._depth -= 1
        self.out += _EXTENSION.pack(0xC9, len(body), kind)
        self.out += body

    def beside(self, buffer: memoryview) -> int:
        """Put a buffer beside the structure; return its number."""
        self.buffers.append(buffer.cast("B") if buffer.nbytes else memoryview(b""))
        return len(self.buffers)

    def named(self, buffer: memoryview) -> bytes:
        """Put a buffer beside the structure; return how an extension names it."""
        return struct.pack("<I", self.beside(buffer))

    def _put_numbers(self, value: list[Any]) -> bool:
        kinds = set(map(type, value))
        if len(kinds) > 1 or not kinds <= {int, float}:
            return False
        is_float = float in kinds
        try:
            numbers = array("d" if is_float else "q", value)
        except OverflowError:
            return False
        if sys.byteorder == "big":
            numbers.byteswap()
        kind = FLOATS if is_float else INTEGERS
        self.extend(kind, self.named(memoryview(numbers)))
        return True

    def _put_array(self, value: Any, kind: type) -> None:  # noqa: ANN401
        numpy, torch, arrow = (sys.modules.get(name) for name in _MODULES)
        if numpy is not None and kind is numpy.ndarray:
            self._put_numpy(numpy, ARRAY, value)
        elif numpy is not None and isinstance(value, numpy.generic):
            self._put_numpy(numpy, SCALAR, numpy.asarray(value))
        elif torch is not None and kind is torch.Tensor:
            self._put_tensor(torch, value)
        elif arrow is not None and isinstance(value, arrow.Array | arrow.ChunkedArray):
            self._put_column(arrow, value)
        elif arrow is not None and kind is arrow.Table:
            names = value.column_names
            self.nested(TABLE, [*names, *(value.column(n) for n in range(len(names)))])
        else:
            raise NotPlainError(_name_of(kind))

    def _put_numpy(self, numpy: Any, kind: int, value: Any) -> None:  # noqa: ANN401
        dtype = value.dtype
        if dtype.kind not in KINDS or not dtype.itemsize:
            raise NotPlainError(f"an array of numpy with dtype {dtype}")
        flat = numpy.ascontiguousarray(value).reshape(-1).view(numpy.uint8)
        place = self.beside(memoryview(flat))
        self.nested(kind, (dtype.str, place, *value.shape))

    def _put_tensor(self, torch: Any, value: Any) -> None:  # noqa: ANN401
        if value.layout is not torch.strided or value.is_quantized:
            raise NotPlainError("a tensor that is sparse or quantized")
        flat = value.detach().cpu().contiguous().reshape(-1)
        place = self.beside(memoryview(flat.view(torch.uint8).numpy()))
        name = str(value.dtype).removeprefix("torch.")
        self.nested(TENSOR, (name, place, *value.shape))

    def _put_column(self, arrow: Any, value: Any) -> None:  # noqa: ANN401
        if isinstance(value, arrow.ChunkedArray):
            value = value.combine_chunks()
        name = str(value.type)
        if name not in COLUMN_TYPES:
            raise NotPlainError(f"a column of Arrow with type {name}")
        if value.offset:
            value = value.take(arrow.array(range(len(value)), arrow.int64()))
        places = [
            None if each is None else self.beside(memoryview(each))
            for each in value.buffers()
        ]
        self.nested(COLUMN, (name, len(value), *places))

    def put_date(self, value: datetime.date) -> None:
        self.nested(DATE, [value.year, value.month, value.day])

    def put_time(self, value: datetime.time) -> None:
        parts = [value.hour, value.minute, value.second, value.microsecond]
        self.nested(TIME, [*parts, value.fold, _offset(value.tzinfo)])

    def put_datetime(self, value: datetime.datetime) -> None:
        parts = [value.year, value.month, value.day, value.hour, value.minute]
        rest = [value.second, value.microsecond, value.fold, _offset(value.tzinfo)]
        self.nested(DATETIME, [*parts, *rest])

    def put_timedelta(self, value: datetime.timedelta) -> None:
        self.nested(TIMEDELTA, [value.days, value.seconds, value.microseconds])

    def put_complex(self, value: complex) -> None:
        self.extend(COMPLEX, struct.pack("<dd", value.real, value.imag))


def _type_of(value: object) -> type:
    """Return the exact type of a value."""
    return type(value)


def _offset(zone: datetime.tzinfo | None) -> int | None:
    """Return the microseconds of a fixed offset."""
    if zone is None:
        return None
    if type(zone) is not datetime.timezone:
        raise NotPlainError(f"a time with a zone of {_name_of(type(zone))}")
    return zone.utcoffset(None) // datetime.timedelta(microseconds=1)


def _name_of(kind: type) -> str:
    module = "" if kind.__module__ == "builtins" else f"{kind.__module__}."
    return f"an object of type {module}{kind.__qualname__}"


_WRITERS: Final[dict[type, Callable[[_Writer, Any], None]]] = {
    type(None): _Writer.put_none,
    bool: _Writer.put_bool,
    int: _Writer.put_int,
    float: _Writer.put_float,
    str: _Writer.put_str,
    bytes: _Writer.put_bytes,
    list: _Writer.put_list,
    dict: _Writer.put_dict,
    tuple: lambda writer, value: writer.nested(TUPLE, value),
    set: lambda writer, value: writer.nested(SET, value),
    frozenset: lambda writer, value: writer.nested(FROZENSET, value),
    complex: _Writer.put_complex,
    bytearray: lambda writer, value: writer.extend(
        BYTEARRAY, writer.named(memoryview(value))
    ),
    datetime.date: _Writer.put_date,
    datetime.time: _Writer.put_time,
    datetime.datetime: _Writer.put_datetime,
    datetime.timedelta: _Writer.put_timedelta,
    Decimal: lambda writer, value: writer.extend(DECIMAL, str(value).encode()),
}
