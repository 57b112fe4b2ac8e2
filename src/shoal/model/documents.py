"""YAML and JSON text as plain values, within bounds and without surprises.

YAML is read by the rules of version 1.2: `on`, `yes` and `2:30` are words, not truth
or numbers, so `retry: {on: ...}` and `gpu: 2:3` mean what they say. A word of digits
that begins with 0 stays a word, since 007 is a name more often than a number. Aliases
are counted in full, keys may not repeat, and there are no tags.
"""

from __future__ import annotations

import json
import math
import re
from typing import Final, NoReturn, TypeAlias, cast

import yaml

from shoal.errors import SpecError
from shoal.model.bounds import INT64_MAX
from shoal.model.job import Scalar
from shoal.model.limits import SPEC_BYTES_MAX, SPEC_NESTING_MAX, SPEC_NODES_MAX

Plain: TypeAlias = "str | int | float | bool | list[Plain] | dict[str, Plain] | None"
"""A value as a document holds it."""

_DIGITS_MAX: Final = 32

_INTEGER: Final = re.compile(r"-?(?:0|[1-9][0-9]*)")
_REAL: Final = re.compile(
    r"-?(?:(?:0|[1-9][0-9]*)(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?"
)
_NULLS: Final = frozenset({"", "~", "null", "Null", "NULL"})
_TRUTHS: Final = {
    "true": True,
    "True": True,
    "TRUE": True,
    "false": False,
    "False": False,
    "FALSE": False,
}
_PLAIN_TAG: Final = "plain"
_TEXT_TAG: Final = "tag:yaml.org,2002:str"


def read_yaml(text: str | bytes) -> Plain:
    """Return the one document of a YAML text."""
    try:
        node = _Loader(_decoded(text)).get_single_node()
        return _Reader().value(node, "$", 0) if node is not None else None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = (
            f"line {mark.line + 1}, column {mark.column + 1}" if mark else "the text"
        )
        problem = error.problem or error.context or "syntax error"
        raise _unreadable("YAML", f"{problem} in {where}") from None
    except yaml.YAMLError as error:
        raise _unreadable("YAML", str(error).splitlines()[0]) from None


def read_json(text: str | bytes) -> Plain:
    """Return the value of a JSON text."""
    try:
        value: Plain = json.loads(
            _decoded(text),
            object_pairs_hook=_object,
            parse_constant=_refuse_constant,
            parse_int=_json_integer,
            parse_float=_json_real,
        )
        return value
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        raise _unreadable("JSON", f"{error.msg} in {where}") from None
    except RecursionError:
        raise _too_deep("$") from None


def scalar_of(text: str) -> Scalar:
    """Return the number or truth that `text` is written as, else `text` itself."""
    if text in _TRUTHS:
        return _TRUTHS[text]
    if len(text) > _DIGITS_MAX:
        return text
    if _INTEGER.fullmatch(text):
        return int(text) if abs(int(text)) <= INT64_MAX else text
    if _REAL.fullmatch(text):
        number = float(text)
        return number if math.isfinite(number) else text
    return text


def text_of(value: Scalar) -> str:
    """Write a value as a program gets it on its command line."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


class _Loader(yaml.SafeLoader):
    """Builds the tree of nodes; tells plain words from quoted ones and tags.

    It builds by recursion, so it counts how deep it is before the stack runs out.
    """

    _depth = 0

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        self._depth += 1
        if self._depth > SPEC_NESTING_MAX + 1:
            raise _too_deep("$")
        node = super().compose_node(parent, index)
        self._depth -= 1
        return node

    def resolve(
        self, kind: type[yaml.Node], value: str, implicit: tuple[bool, bool]
    ) -> str:
        if kind is yaml.ScalarNode:
            return _PLAIN_TAG if implicit[0] else _TEXT_TAG
        return _PLAIN_TAG


class _Reader:
    """Turns nodes into values and counts them, an alias as all it stands for."""

    def __init__(self) -> None:
        self._nodes = 0

    def value(self, node: yaml.Node, path: str, depth: int) -> Plain:
        self._nodes += 1
        if self._nodes > SPEC_NODES_MAX:
            raise SpecError(
                "the spec is too large",
                path=path,
                because=f"with aliases written out it has over {SPEC_NODES_MAX} values",
                hint="use array or sweep for jobs of many tasks",
            )
        if depth > SPEC_NESTING_MAX:
            raise _too_deep(path)
        if node.tag not in {_PLAIN_TAG, _TEXT_TAG}:
            raise SpecError(
                f"tag {node.tag} is not known",
                path=path,
                because="a spec has no tags",
                hint="remove what begins with an exclamation mark",
            )
        match node:
            case yaml.MappingNode():
                return self._mapping(node, path, depth)
            case yaml.SequenceNode():
                items = cast("list[yaml.Node]", node.value)
                return [
                    self.value(item, f"{path}[{place}]", depth + 1)
                    for place, item in enumerate(items)
                ]
            case _:
                return _word(node)

    def _mapping(self, node: yaml.MappingNode, path: str, depth: int) -> Plain:
        result: dict[str, Plain] = {}
        for key, item in cast("list[tuple[yaml.Node, yaml.Node]]", node.value):
            if not isinstance(key, yaml.ScalarNode):
                raise SpecError(
                    "a name is not a word",
                    path=path,
                    because="a list or a mapping stands where a name should",
                    hint="quote it, if it is meant as text",
                )
            name = str(key.value)
            if name in result:
                raise _repeated(name, f"{path}.{name}")
            result[name] = self.value(item, f"{path}.{name}", depth + 1)
        return result


def _word(node: yaml.Node) -> Plain:
    text = str(node.value)
    if node.tag == _TEXT_TAG:
        return text
    return None if text in _NULLS else scalar_of(text)


def _decoded(text: str | bytes) -> str:
    size = len(text)
    if size > SPEC_BYTES_MAX:
        raise SpecError(
            "the spec is too large",
            because=f"it has {size} bytes, the most is {SPEC_BYTES_MAX}",
            hint="keep data in files of the workdir, and name them in params",
        )
    if isinstance(text, str):
        return text
    try:
        return text.decode()
    except UnicodeDecodeError as error:
        raise _unreadable("UTF-8", f"byte {error.start} is {error.reason}") from None


def _object(pairs: list[tuple[str, Plain]]) -> Plain:
    result: dict[str, Plain] = {}
    for name, value in pairs:
        if name in result:
            raise _repeated(name, "$")
        result[name] = value
    return result


def _json_integer(text: str) -> int:
    if len(text) > _DIGITS_MAX or abs(int(text)) > INT64_MAX:
        raise _unreadable("JSON", f"integer {text[:16]}... needs more than 64 bits")
    return int(text)


def _json_real(text: str) -> float:
    if not math.isfinite(float(text)):
        raise _unreadable("JSON", f"number {text[:16]} is too large")
    return float(text)


def _refuse_constant(name: str) -> NoReturn:
    raise _unreadable("JSON", f"{name} is not a number of JSON")


def _unreadable(language: str, because: str) -> SpecError:
    return SpecError(
        f"the spec is not {language}", because=because, hint="correct the text there"
    )


def _repeated(name: str, path: str) -> SpecError:
    return SpecError(
        f"'{name}' is given twice",
        path=path,
        because="only one of the two could count",
        hint="remove one of them",
    )


def _too_deep(path: str) -> SpecError:
    return SpecError(
        "the spec is nested too deep",
        path=path,
        because=f"the most is {SPEC_NESTING_MAX} levels",
        hint="no field of a spec needs more than six",
    )
