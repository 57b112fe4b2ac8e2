"""Checks the texts in values from outside: messages of peers, and specs of jobs.

A type says the grammar of a text by `Meta(extra=...)`, see `bounds`; `checker` makes of
a type the function that looks at every text in a value of it. The patterns of msgspec
are not used: types that have one crash the interpreter at its end now and then
(msgspec issue 717), and cost more.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from operator import attrgetter
from typing import Any, Final

from msgspec import ValidationError, inspect

from shoal.model import glances
from shoal.model.bounds import (
    ADDRESS,
    ARGUMENT,
    BELOW,
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

Glance = Callable[[Any], bool]
"""Says quickly that all texts in a value are surely good; if not, a `Check` decides."""


class GrammarError(ValidationError):
    """A text has what its grammar does not allow; `path` leads to it."""

    def __init__(self, what: str) -> None:
        super().__init__(what)
        self.what = what
        self.path = ""

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


_GRAMMARS: Final[dict[str, tuple[Callable[[str], bool], str]]] = {
    KEY: (is_key, "an id has letters, digits and . _ -, and begins with no dot"),
    ID: (is_id, "an id has letters, digits and . _ - : / @ + ="),
    NAME: (is_name, "a name or path has no control characters"),
    BELOW: (is_below, "a path below a folder is relative, without '..'"),
    ARGUMENT: (is_argument, "no text has a zero byte"),
    ADDRESS: (is_address, "an address has no spaces or control characters"),
}
_GLANCES: Final[dict[str, Glance]] = {
    KEY: is_key,
    ID: is_id,
    NAME: str.isprintable,
    BELOW: is_below,
    ARGUMENT: str.isprintable,
    ADDRESS: is_address,
}


def checker(type_: object) -> Check | None:
    """Return what checks all texts in values of a type; None if it has none."""
    info = inspect.type_info(type_)
    glance, check = glances.Maker(_GLANCES).of(info), _Maker().of(info)
    if glance is None or check is None:
        return None

    def check_all(value: Any) -> None:  # noqa: ANN401
        if not glance(value):
            check(value)

    return check_all


class _Maker:
    """Makes checks of types; each struct has one, as structs may be recursive."""

    def __init__(self) -> None:
        self._structs: dict[type, list[tuple[str, Callable[[Any], Any], Check]]] = {}

    def of(self, info: inspect.Type) -> Check | None:
        match info:
            case inspect.Metadata():
                return self._annotated(info)
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

    def _annotated(self, info: inspect.Metadata) -> Check | None:
        grammar = glances.grammar_of(info)
        if grammar is None:
            return self.of(info.type)
        return _text(*_GRAMMARS[grammar])

    def _struct(self, info: inspect.StructType) -> Check | None:
        parts = self._structs.get(info.cls)
        if parts is None:
            parts = self._structs[info.cls] = []
            for field in info.fields:
                if (check := self.of(field.type)) is not None:
                    parts.append((field.encode_name, attrgetter(field.name), check))
            if not parts:
                return None

        def check_struct(value: Any) -> None:  # noqa: ANN401
            for name, get, check in parts:
                try:
                    check(get(value))
                except GrammarError as error:
                    error.path = f".{name}{error.path}"
                    raise

        return check_struct

    def _union(self, info: inspect.UnionType) -> Check | None:
        """Check a value as the type that it has: msgspec allows one of each kind."""
        checks: dict[type, Check] = {}
        for option in glances.options_of(info):
            if (check := self.of(option)) is not None:
                checks[glances.class_of(option)] = check
        if not checks:
            return None

        def check_union(value: object) -> None:
            check = checks.get(type(value))
            if check is not None:
                check(value)

        return check_union


def _text(is_good: Callable[[str], object], rule: str) -> Check:
    def check_text(text: str) -> None:
        if text and not is_good(text):
            raise GrammarError(f"a text with what does not belong there: {rule}")

    return check_text


def _each(check: Check | None) -> Check | None:
    if check is None:
        return None

    def check_each(values: Any) -> None:  # noqa: ANN401
        for place, value in enumerate(values):
            try:
                check(value)
            except GrammarError as error:
                error.path = f"[{place}]{error.path}"
                raise

    return check_each


def _fixed(checks: list[Check | None]) -> Check | None:
    inner = [(place, check) for place, check in enumerate(checks) if check is not None]
    if not inner:
        return None

    def check_fixed(values: Any) -> None:  # noqa: ANN401
        for place, check in inner:
            check(values[place])

    return check_fixed


def _pairs(key_check: Check | None, value_check: Check | None) -> Check | None:
    if key_check is None and value_check is None:
        return None

    def check_pairs(values: Any) -> None:  # noqa: ANN401
        for key, value in values.items():
            try:
                if key_check is not None:
                    key_check(key)
                if value_check is not None:
                    value_check(value)
            except GrammarError as error:
                error.path = f".{key}{error.path}"
                raise

    return check_pairs
