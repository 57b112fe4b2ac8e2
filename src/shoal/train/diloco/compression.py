"""Compress DiLoCo deltas, with error feedback: send later what was lost.

`float16` halves it. `int8` rounds to 255 levels at the most, as fine as the values of a
block need, and squeezes the levels by Huffman coding, to a sixth or less. What rounding
takes away is kept as the residual and added to what is sent next (error feedback), so
over time nothing is lost.
"""

from __future__ import annotations

import zlib
from typing import Any, Final, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from shoal.errors import ProtocolError

Array = NDArray[np.float32]
Residual = NDArray[np.float16]
Encoding = Literal["float32", "float16", "int8"]
ENCODINGS: Final[tuple[Encoding, ...]] = get_args(Encoding)
VALUE_BYTES: Final = {"float32": 4, "float16": 2, "int8": 1}
"""What a value takes at the most."""

BLOCK: Final = 65_536
"""Values that share one scale in int8."""

LEVELS: Final = 127
FINEST: Final = 8
"""Levels that the usual value of a block spans. More would be coded exactly what is
mostly noise: each doubling costs one bit a value, and rounding is made good later."""

FLOAT16_MAX: Final = 65_504.0
FLOAT16_BEYOND: Final = 65_520.0
"""From here on values are nearer to what half precision takes for infinite."""

HALVES: Final = np.arange(1 << 16, dtype=np.uint16).view(np.float16).astype(np.float32)
"""All there are, by their bits."""


def encode(values: Array, encoding: Encoding) -> bytes:
    """Compress flat values to bytes."""
    match encoding:
        case "float32":
            return values.astype("<f4").tobytes()
        case "float16":
            return halved(np.clip(values, -FLOAT16_MAX, FLOAT16_MAX)).tobytes()
        case "int8":
            return _to_int8(values)


def decode(data: bytes, encoding: Encoding, size: int) -> Array:
    """Return the flat values in `data`; raise `ProtocolError` if they are not `size`.

    Takes memory in proportion to `size`, for any bytes.
    """
    match encoding:
        case "float32":
            return _plain(data, "<f4", size).astype(np.float32)
        case "float16":
            return widened(_plain(data, "<f2", size))
        case "int8":
            return _from_int8(data, size)


def with_feedback(
    values: Array, residual: Residual, encoding: Encoding
) -> tuple[bytes, Array, Residual]:
    """Return the bytes, the values a receiver decodes, and the residual.

    What is not finite leaves no residual: it would spoil all that follows.
    """
    if encoding == "int8":  # Its levels are squeezed together.
        return _fed_back(values, residual, encoding)
    parts: list[bytes] = []
    read, lost = np.empty_like(values), np.empty_like(residual)
    for start in range(0, values.size, BLOCK):  # What is worked on stays in the cache.
        block = slice(start, start + BLOCK)
        data, read[block], lost[block] = _fed_back(
            values[block], residual[block], encoding
        )
        parts.append(data)
    return b"".join(parts), read, lost


def _fed_back(
    values: Array, residual: Residual, encoding: Encoding
) -> tuple[bytes, Array, Residual]:
    wanted = widened(residual)
    wanted += values
    if encoding == "float32":
        return encode(wanted, encoding), wanted, np.zeros_like(residual)
    with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
        data = encode(wanted, encoding)
        read = decode(data, encoding, wanted.size)
        lost = np.subtract(wanted, read, out=wanted)
        is_kept = np.abs(lost) < FLOAT16_BEYOND
    if not is_kept.all():
        lost = np.where(is_kept, lost, np.float32(0))
    return data, read, halved(lost)


def widened(halves: Residual) -> Array:
    """Return half-precision values in single precision."""
    values: Array = HALVES[halves.view(np.uint16)]
    return values


def halved(values: Array) -> Residual:
    """Round values to half precision, as `astype` does, to the bit.

    numpy converts one value at a time, and raises a flag of the processor for each
    that is tiny, as deltas and their residuals are: that takes ten times as long.
    """
    if not np.isfinite(values).all():
        return values.astype(np.float16)
    found = np.empty(values.size, dtype=np.uint16)
    for start in range(0, values.size, BLOCK):  # What is worked on stays in the cache.
        bits = np.ascontiguousarray(values[start : start + BLOCK]).view(np.uint32)
        found[start : start + BLOCK] = _halved_bits(bits)
    return found.view(np.float16)


def _halved_bits(bits: NDArray[np.uint32]) -> NDArray[np.uint16]:
    """Round the bits of finite single-precision values to those of halves.

    Deltas are on both sides of what is tiny for a half, in no order. To choose between
    two results by a condition, value by value, takes the processor ten times as long
    as all of the arithmetic: it guesses wrong half of the time. So it is done by bits.
    """
    unsigned = bits & np.uint32(0x7FFF_FFFF)
    # Above 2^-14, 13 bits are dropped: up if they are more than half of the last that
    # stays, or exactly half and that is odd. Exponents count from 15 instead of 127.
    found = unsigned >> np.uint32(13)
    found &= np.uint32(1)
    found += unsigned
    found -= np.uint32((112 << 23) - 0xFFF)
    found >>= np.uint32(13)
    # Below, halves are equally spaced. So are singles from 0.5 to 1, as finely: adding
    # 0.5 rounds to the nearest, and leaves the number of the half in the bits.
    half = np.float32(0.5)
    tiny = (unsigned.view(np.float32) + half).view(np.uint32)
    tiny -= half.view(np.uint32)
    is_tiny = (unsigned < np.uint32(113 << 23)).astype(np.uint32)
    np.negative(is_tiny, out=is_tiny)  # all bits, or none
    tiny ^= found
    tiny &= is_tiny
    found ^= tiny
    np.minimum(found, np.uint32(0x7C00), out=found)  # infinite
    sign = bits >> np.uint32(16)
    sign &= np.uint32(0x8000)
    found |= sign
    return found.astype(np.uint16)


def _blocks(size: int) -> int:
    return -(-size // BLOCK)


def _to_int8(values: Array) -> bytes:
    padded = np.zeros(_blocks(values.size) * BLOCK, dtype=np.float32)
    padded[: values.size] = values
    blocks = padded.reshape(-1, BLOCK)
    scales = _scales(blocks, values.size)
    safe = np.where(scales > 0, scales, np.float32(1))
    levels = np.rint(blocks / safe[:, None]).astype(np.int8)
    squeezer = zlib.compressobj(9, zlib.DEFLATED, -15, 9, zlib.Z_HUFFMAN_ONLY)
    flat = levels.reshape(-1)[: values.size].tobytes()
    head: bytes = scales.tobytes()
    return head + squeezer.compress(flat) + squeezer.flush()


def _scales(blocks: Array, size: int) -> Array:
    """Return the quantisation step of each block, by its largest value."""
    counts = np.full(len(blocks), BLOCK, dtype=np.float64)
    counts[-1:] -= blocks.size - size  # The padding of the last is no value.
    usual = np.sqrt(np.square(blocks, dtype=np.float64).sum(axis=1) / counts)
    largest = np.abs(blocks).max(axis=1)
    scales: Array = np.maximum(largest / LEVELS, usual / FINEST).astype("<f4")
    return scales


def _from_int8(data: bytes, size: int) -> Array:
    head = 4 * _blocks(size)
    scales = _plain(data[:head], "<f4", _blocks(size)).astype(np.float32)
    unsqueezer = zlib.decompressobj(-15)
    try:
        flat = unsqueezer.decompress(data[head:], max(1, size))
    except zlib.error as error:
        raise ProtocolError("int8 values cannot be read", because=str(error)) from error
    if len(flat) != size or not (unsqueezer.eof or size == 0):
        raise ProtocolError("int8 values cannot be read", because="of another size")
    padded = np.zeros(_blocks(size) * BLOCK, dtype=np.int8)
    padded[:size] = np.frombuffer(flat, dtype=np.int8)
    values = padded.reshape(-1, BLOCK).astype(np.float32) * scales[:, None]
    return values.reshape(-1)[:size]


def _plain(data: bytes, kind: str, size: int) -> NDArray[Any]:
    wanted = size * np.dtype(kind).itemsize
    if len(data) != wanted:
        raise ProtocolError(
            "values cannot be read", because=f"{len(data)} bytes are not {wanted}"
        )
    return np.frombuffer(data, dtype=kind)
