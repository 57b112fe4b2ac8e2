"""What can be in a message, as msgspec sees it: every place in it, and its bounds."""

from collections.abc import Iterator
from typing import Any, Final

import msgspec
from msgspec import inspect

from shoal.model.text.bounds import GRAMMAR
from shoal.protocol.codec import MESSAGES
from shoal.protocol.messages import AnyMessage

Path = tuple[str | int, ...]
Plain = Any
"""A value made of dict, list, str, bytes, int, float, bool and None."""

KEY: Final = "<key>"
"""In a path: not the value under the first key of a dict, but that key itself."""


def tag_of(kind: type[AnyMessage]) -> str:
    """Return the tag of a kind of message."""
    return str(kind.__struct_config__.tag)


TYPES: Final = {
    tag_of(kind): info
    for kind, info in zip(MESSAGES, inspect.multi_type_info(MESSAGES), strict=True)
}


def structs(
    info: inspect.Type, seen: dict[type, None] | None = None
) -> dict[type, None]:
    """Collect the classes of all structs in `info`, in the order of their places."""
    seen = {} if seen is None else seen
    if isinstance(info, inspect.StructType) and info.cls in seen:
        return seen
    if isinstance(info, inspect.StructType):
        seen[info.cls] = None
    for _, inner in _parts(info):
        structs(inner, seen)
    return seen


def places(info: inspect.Type, path: Path = ()) -> Iterator[tuple[Path, inspect.Type]]:
    """Go through every place in a value of the type, into a recursive type once."""
    yield path, info
    for step, inner in _parts(info):
        if not (step == "delegation" and "delegation" in path):
            yield from places(inner, (*path, *([] if step is None else [step])))


def grammars(info: inspect.Type) -> Iterator[tuple[Path, str | None]]:
    """Go through every text in a value of the type, with the name of its grammar."""
    named: dict[Path, str] = {}
    texts: list[Path] = []
    for path, inner in places(info):
        if isinstance(inner, inspect.Metadata) and inner.extra:
            named[path] = inner.extra[GRAMMAR]
        if isinstance(inner, inspect.StrType):
            texts.append(path)
    for path in texts:
        yield path, named.get(path)


def beyond(info: inspect.Type) -> Iterator[Plain]:
    """Return values of the right type that are just out of bounds."""
    match info:
        case inspect.IntType(ge=int() as low, le=int() as high):
            yield from (low - 1, high + 1)
        case inspect.FloatType(ge=int() | float() as low, le=int() | float() as high):
            yield from (float("nan"), float("inf"), float("-inf"))
            if high < 1e300:
                yield from (float(high) * 1.001 + 1.0, float(low) - 0.001)
        case inspect.StrType(max_length=int() as most):
            yield "x" * (most + 1)
        case inspect.BytesType(max_length=int() as most):
            yield b"x" * (most + 1)
        case inspect.VarTupleType(max_length=int() as most):
            yield [None] * (most + 1)
        case inspect.DictType(max_length=int() as most):
            yield {str(n): None for n in range(most + 1)}
        case _:
            return


def bounded(info: inspect.Type) -> bool:
    """Say whether a value of this type, without what is in it, has a bound."""
    match info:
        case inspect.IntType() | inspect.FloatType():
            return info.ge is not None and info.le is not None
        case inspect.StrType() | inspect.BytesType():
            return info.max_length is not None
        case inspect.VarTupleType() | inspect.DictType():
            return info.max_length is not None
        case inspect.StructType() | inspect.TupleType() | inspect.UnionType():
            return True
        case inspect.LiteralType() | inspect.BoolType() | inspect.NoneType():
            return True
        case inspect.Metadata():
            return True  # What it annotates is a place of its own.
        case _:
            return False


def replaced(plain: Plain, path: Path, value: Plain) -> Plain:
    """Return a copy of the plain value with another value at `path`.

    Raises `LookupError` or `TypeError` if there is nothing at `path` yet.
    """
    if not path:
        return value
    step, rest = path[0], path[1:]
    if step == KEY:
        first = next(iter(plain))
        return {value if key == first else key: plain[key] for key in plain}
    if isinstance(plain, dict):
        key = step if isinstance(step, str) else next(iter(plain))
        return {**plain, key: replaced(plain[key], rest, value)}
    index = int(step)
    inner = replaced(plain[index], rest, value)
    return [*plain[:index], inner, *plain[index + 1 :]]


def plain_of(message: AnyMessage) -> Plain:
    """Return the message as dicts and lists, the way it is on the wire."""
    return msgspec.msgpack.decode(msgspec.msgpack.encode(message))


def _parts(info: inspect.Type) -> Iterator[tuple[str | int | None, inspect.Type]]:
    match info:
        case inspect.StructType():
            for index, field in enumerate(info.fields):
                yield (index if info.array_like else field.encode_name), field.type
        case inspect.VarTupleType():
            yield 0, info.item_type
        case inspect.TupleType():
            yield from enumerate(info.item_types)
        case inspect.DictType():
            yield KEY, info.key_type
            yield 0, info.value_type
        case inspect.UnionType():
            for choice in info.types:
                yield None, choice
        case inspect.Metadata():
            yield None, info.type
        case _:
            return
