"""Harm to valid messages: to their bytes, and to the values that they are made of."""

import json
from collections.abc import Callable, Sequence
from random import Random
from typing import Any, Final

import msgspec

RANDOM_BYTES_MAX: Final = 64
EDGES: Final[tuple[Any, ...]] = (
    *(None, True, 0, -1, 1, 127, 255, 65_536, 1 << 31, (1 << 53) + 1, 1 << 60),
    *(-(1 << 63), (1 << 63) - 1, (1 << 64) - 1, 0.0, -0.5, 1e308, float("inf")),
    *(float("nan"), "", "\0", "a\nb", "..", "/", "\x1b[2J", "é" * 40, "x" * 5_000),
    *(b"", b"\0", b"\xff" * 40, [], {}, [[]], {"": {}}, ["a"] * 2_000),
)
"""Values at the edges of what anybody expects."""

Mutate = Callable[[Random, Sequence[bytes]], bytes]


def bytewise(draw: Random, seeds: Sequence[bytes]) -> bytes:
    """Return random bytes, or a seed with some bytes changed, cut, doubled or mixed."""
    if draw.random() < 0.1 or not seeds:
        return draw.randbytes(draw.randrange(RANDOM_BYTES_MAX))
    data = bytearray(draw.choice(seeds))
    for _ in range(draw.choice((1, 1, 1, 2, 4))):
        at = draw.randrange(len(data) + 1)
        match draw.randrange(7):
            case 0:
                data[at:at] = draw.randbytes(draw.randrange(1, 9))
            case 1:
                del data[at : at + draw.randrange(1, 9)]
            case 2:
                data[at : at + 1] = bytes((draw.randrange(256),))
            case 3:
                data[at : at + 4] = draw.choice(_WORDS)
            case 4:
                del data[at:]
            case 5:
                data[at:at] = data[at : at + draw.randrange(1, 40)]
            case _:
                other = draw.choice(seeds)
                data[at:] = other[draw.randrange(len(other) + 1) :]
    return bytes(data)


_WORDS: Final = (b"\0\0\0\0", b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\1\0\0\0")


def _structured(
    decode: Callable[[bytes], Any], encode: Callable[[Any], bytes]
) -> Mutate:
    def mutate(draw: Random, seeds: Sequence[bytes]) -> bytes:
        """Change values in a message that stays well formed; now and then its bytes."""
        if draw.random() < 0.4:
            return bytewise(draw, seeds)
        value = decode(draw.choice(seeds))
        for _ in range(draw.choice((1, 1, 2, 3))):
            value = harmed(draw, value)
        try:
            data = encode(value)
        except (TypeError, ValueError, OverflowError, RecursionError):
            return bytewise(draw, seeds)
        return bytewise(draw, [data]) if draw.random() < 0.05 else data

    return mutate


def harmed(draw: Random, value: Any) -> Any:  # noqa: ANN401 - Any value.
    """Return the value with one place in it changed."""
    if isinstance(value, dict) and value and draw.random() < 0.9:
        key = draw.choice(list(value))
        return _harmed_item(draw, value, key)
    if isinstance(value, list) and value and draw.random() < 0.9:
        place = draw.randrange(len(value))
        if draw.random() < 0.1:
            return value * draw.choice((2, 50))
        return [*value[:place], harmed(draw, value[place]), *value[place + 1 :]]
    if isinstance(value, str) and draw.random() < 0.4:
        place = draw.randrange(len(value) + 1)
        return value[:place] + draw.choice(("\0", "/", ".", "\n", "ÿ")) + value[place:]
    if isinstance(value, int) and draw.random() < 0.4:
        return value + draw.choice((-1, 1, 1 << 32))
    if draw.random() < 0.02:
        return _deep(draw.choice((20, 200, 5_000)))
    return draw.choice(EDGES)


def _harmed_item(draw: Random, value: dict[Any, Any], key: Any) -> dict[Any, Any]:  # noqa: ANN401
    left = {k: v for k, v in value.items() if k != key}
    match draw.randrange(10):
        case 0:
            return left
        case 1:
            return {**left, draw.choice(("", "type", 7, key)): value[key]}
        case _:
            return {**value, key: harmed(draw, value[key])}


def _deep(depth: int) -> list[Any]:
    found: list[Any] = []
    for _ in range(depth):
        found = [found]
    return found


packed: Final = _structured(msgspec.msgpack.decode, msgspec.msgpack.encode)
written: Final = _structured(json.loads, lambda value: json.dumps(value).encode())
