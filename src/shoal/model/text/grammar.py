"""Check the texts in values from outside: messages of peers, and job specs.

A type says the grammar of a text by `Meta(extra=...)`, see `bounds`. `checker` walks a
type once and makes two functions for each part of it that holds texts. The first
says whether all texts in a value are surely good. Every message of every peer goes
through it, so it avoids what Python does slowly: the fields of a struct, and of the
structs in it, are fetched by one `attrgetter` for each grammar, and texts are judged by
`map`. The second looks for the first bad text, and is called only if the first fails.

The patterns of msgspec are not used: types that have one crash the interpreter at its
end now and then (msgspec issue 717), and cost more.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator
from operator import attrgetter
from typing import Any, Final, NamedTuple, cast, final

from msgspec import ValidationError, inspect

from shoal.model.text.bounds import (
    ADDRESS,
    ARGUMENT,
    BELOW,
    GRAMMAR,
    ID,
    KEY,
    NAME,
    UNSEEN,
)

_KNOWN_MAX: Final = 32_768
"""Ids that are remembered to be good or bad: most come again and again."""

_KEY: Final = re.compile(r"(?!\.)[A-Za-z0-9._-]*")
_ID: Final = re.compile(r"(?!\.)[A-Za-z0-9._:/@+=-]*")
_NAME: Final = re.compile(rf"[^{UNSEEN}]*")
_ADDRESS: Final = re.compile(r"[!-~]*")

Check = Callable[[Any], None]
"""Raises `GrammarError` if a text in the value breaks its grammar."""

Get = Callable[[Any], Any]
IsGood = Callable[[Any], bool]
"""Whether all texts in a value are surely good."""

Fault = tuple[str, str]
"""The path to a bad text, and the rule that it breaks."""

Find = Callable[[Any], Fault | None]
"""Returns the first bad text in a value, if there is one."""


class GrammarError(ValidationError):
    """A text has what its grammar does not allow; `path` leads to it."""

    def __init__(self, what: str, path: str) -> None:
        super().__init__(what)
        self.what = what
        self.path = path

    def __str__(self) -> str:
        """Return what is wrong, and where."""
        return f"{self.what} - at `${self.path}`"


@functools.lru_cache(_KNOWN_MAX)
def is_key(text: str) -> bool:
    """Whether a text can be the id of a job, a group, a task, a blob or a node."""
    return _KEY.fullmatch(text) is not None


@functools.lru_cache(_KNOWN_MAX)
def is_id(text: str) -> bool:
    """Whether a text can be the id of a lease or a request."""
    return _ID.fullmatch(text) is not None


def is_name(text: str) -> bool:
    """Whether a text can be the name of something."""
    return text.isprintable() or _NAME.fullmatch(text) is not None


def is_below(path: str) -> bool:
    """Whether a text can be a path below some folder."""
    if not is_name(path) or path.startswith("/"):
        return False
    return ".." not in path or ".." not in path.split("/")


def is_argument(text: str) -> bool:
    """Whether a text can be an argument of a program."""
    return "\0" not in text


def is_address(text: str) -> bool:
    """Whether a text can say where a node is to be reached."""
    return _ADDRESS.fullmatch(text) is not None


def checker(type_: object) -> Check | None:
    """Return what checks all texts in values of a type; None if it has none."""
    part = _Walk().of(inspect.type_info(type_))
    if part is None:
        return None
    is_good, find = part

    def check(value: Any) -> None:  # noqa: ANN401
        if not is_good(value) and (fault := find(value)):
            path, rule = fault
            raise GrammarError(f"a text with what does not belong there: {rule}", path)

    return check


class _Part(NamedTuple):
    """A part of a type that holds texts, looked at in two ways."""

    is_good: IsGood
    find: Find


def _text(is_good: IsGood, is_surely_good: IsGood, rule: str) -> _Part:
    def find(text: str) -> Fault | None:
        return None if is_good(text) else ("", rule)

    return _Part(is_surely_good, find)


_TEXTS: Final[dict[str, _Part]] = {
    KEY: _text(
        is_key, is_key, "an id has letters, digits and . _ -, and begins with no dot"
    ),
    ID: _text(is_id, is_id, "an id has letters, digits and . _ - : / @ + ="),
    NAME: _text(is_name, str.isprintable, "a name or path has no control characters"),
    BELOW: _text(is_below, is_below, "a path below a folder is relative, without '..'"),
    ARGUMENT: _text(is_argument, str.isprintable, "no text has a zero byte"),
    ADDRESS: _text(
        is_address, is_address, "an address has no spaces or control characters"
    ),
}


@final
class _Walk:
    """Goes through a type; each struct is seen once, as structs may be recursive."""

    def __init__(self) -> None:
        self._structs: dict[type, _Struct] = {}

    def of(self, info: inspect.Type) -> _Part | None:
        """Return how to look at values of a type; None if there is no text in it."""
        match info:
            case inspect.Metadata():
                grammar = _grammar_of(info)
                return self.of(info.type) if grammar is None else _TEXTS[grammar]
            case inspect.StructType():
                return self._struct(info)
            case inspect.VarTupleType() | inspect.ListType():
                return _each(self.of(info.item_type))
            case inspect.TupleType():
                return _fixed([self.of(item) for item in info.item_types])
            case inspect.DictType():
                return _pairs(self.of(info.key_type), self.of(info.value_type))
            case inspect.UnionType():
                return self._union(info)
            case _:
                return None

    def _struct(self, info: inspect.StructType) -> _Part | None:
        known = self._structs.get(info.cls)
        if known is None:
            known = self._structs[info.cls] = _Struct()
            for field in info.fields:
                if (part := self.of(field.type)) is not None:
                    known.add(field, part)
            known.finish()
            if not known.fields:
                return None
        return _Part(known, known.find)

    def _union(self, info: inspect.UnionType) -> _Part | None:
        """Look at a value as the type that it has: msgspec allows one of each kind."""
        parts: dict[type, _Part] = {}
        for option in _options_of(info):
            if (part := self.of(option)) is not None:
                parts[_class_of(option)] = part
        if not parts:
            return None

        def is_good(value: object) -> bool:
            part = parts.get(type(value))
            return part is None or part.is_good(value)

        def find(value: object) -> Fault | None:
            part = parts.get(type(value))
            return part and part.find(value)

        return _Part(is_good, find)


@final
class _Struct:
    """How to look at a struct; in a recursive one it is used before it is finished."""

    def __init__(self) -> None:
        self.fields: list[tuple[str, Get, _Part]] = []
        # Dotted names of fields: texts by grammar, nested ones too, and the rest.
        self.texts: dict[IsGood, list[str]] = {}
        self.others: list[tuple[str, IsGood]] = []
        self.is_finished = False
        # How to get several texts of one grammar at once, and the rest.
        self._rows: list[tuple[Get, IsGood]] = []
        self._parts: list[tuple[Get, IsGood]] = []

    def add(self, field: inspect.Field, part: _Part) -> None:
        name, inner = field.name, part.is_good
        self.fields.append((field.encode_name, attrgetter(name), part))
        if isinstance(_bare(field.type), inspect.StrType):
            self.texts.setdefault(inner, []).append(name)
        elif isinstance(inner, _Struct) and inner.is_finished:
            for is_good, names in inner.texts.items():
                dotted = [f"{name}.{below}" for below in names]
                self.texts.setdefault(is_good, []).extend(dotted)
            self.others += [
                (f"{name}.{below}", is_good) for below, is_good in inner.others
            ]
        else:
            self.others.append((name, inner))

    def finish(self) -> None:
        for is_good, names in self.texts.items():
            where = self._parts if len(names) == 1 else self._rows
            where.append((attrgetter(*names), is_good))
        self._parts += [(attrgetter(name), is_good) for name, is_good in self.others]
        self.is_finished = True

    def __call__(self, value: Any) -> bool:  # noqa: ANN401
        for get, is_good in self._rows:
            if not all(map(is_good, get(value))):
                return False
        for get, is_good in self._parts:  # noqa: SIM110 - Faster than all().
            if not is_good(get(value)):
                return False
        return True

    def find(self, value: Any) -> Fault | None:  # noqa: ANN401
        for name, get, part in self.fields:
            if fault := part.find(get(value)):
                return f".{name}{fault[0]}", fault[1]
        return None


def _each(part: _Part | None) -> _Part | None:
    if part is None:
        return None
    is_good, find = part

    def are_good(values: Any) -> bool:  # noqa: ANN401
        return all(map(is_good, values))

    def find_in(values: Any) -> Fault | None:  # noqa: ANN401
        for place, value in enumerate(values):
            if fault := find(value):
                return f"[{place}]{fault[0]}", fault[1]
        return None

    return _Part(are_good, find_in)


def _fixed(parts: list[_Part | None]) -> _Part | None:
    inner = [(place, part) for place, part in enumerate(parts) if part is not None]
    if not inner:
        return None

    def is_good(values: Any) -> bool:  # noqa: ANN401
        return all(part.is_good(values[place]) for place, part in inner)

    def find(values: Any) -> Fault | None:  # noqa: ANN401
        faults = (part.find(values[place]) for place, part in inner)
        return next(filter(None, faults), None)

    return _Part(is_good, find)


def _pairs(key: _Part | None, value: _Part | None) -> _Part | None:
    if key is None and value is None:
        return None

    def is_good(values: dict[Any, Any]) -> bool:
        if key is not None and not all(map(key.is_good, values)):
            return False
        return value is None or all(map(value.is_good, values.values()))

    def find(values: dict[Any, Any]) -> Fault | None:
        for name, inside in values.items():
            if fault := (key and key.find(name)) or (value and value.find(inside)):
                return f".{name}{fault[0]}", fault[1]
        return None

    return _Part(is_good, find)


def _grammar_of(info: inspect.Metadata) -> str | None:
    extra = cast("dict[str, str] | None", info.extra)  # pyright: ignore[reportUnknownMemberType]
    return extra.get(GRAMMAR) if extra else None


def _options_of(info: inspect.Type) -> Iterator[inspect.Type]:
    """Go through what a value of a union may be; unions in it are taken apart."""
    inside = _bare(info)
    if isinstance(inside, inspect.UnionType):
        for option in inside.types:
            yield from _options_of(option)
    else:
        yield info


def _bare(info: inspect.Type) -> inspect.Type:
    """Return a type without its annotations."""
    return _bare(info.type) if isinstance(info, inspect.Metadata) else info


def _class_of(info: inspect.Type) -> type:
    """Return the class of the values of a type that has texts."""
    match inside := _bare(info):
        case inspect.StructType():
            return inside.cls
        case inspect.VarTupleType() | inspect.TupleType():
            return tuple
        case inspect.ListType():
            return list
        case inspect.DictType():
            return dict
        case _:
            return str
