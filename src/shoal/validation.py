"""Say in words what the decoder of specs and settings complains about.

msgspec writes "Expected `str | array | null`, got `int` - at `$.command`". People read
"expected text or a list, got a whole number", and see an example of what fits there.
"""

from __future__ import annotations

import contextlib
import functools
import json
import re
from typing import TYPE_CHECKING, Any, Final

from msgspec import inspect

if TYPE_CHECKING:
    import msgspec

KINDS: Final = {
    "array": "a list",
    "bool": "true or false",
    "float": "a number",
    "int": "a whole number",
    "null": "nothing",
    "object": "a mapping",
    "str": "text",
}
_TYPE: Final = re.compile(r"Expected `([^`]+)`(?:, got `([^`]+)`)?")
_BOUND: Final = re.compile(r"Expected `\w+` (>=|<=) (\S+)")
_LENGTH: Final = re.compile(r"Expected `(\w+)` of length (>=|<=) (\d+)")
_FIELD: Final = re.compile(r"Object (missing required|contains unknown) field `(.*)`")
_VALUE: Final = re.compile(r"Invalid (?:enum )?value (.+)")
_LIMITS: Final = {">=": "at least", "<=": "at most"}
_STEP: Final = re.compile(r"\.([^.\[\]]+)|\[(\d+|\.\.\.)\]")


def told(error: msgspec.ValidationError) -> tuple[str, str]:
    """Return what is wrong, in words, and the path of where it is."""
    what, _, path = str(error).partition(" - at `")
    return in_words(what), path.rstrip("`") or "$"


def sentence(error: msgspec.MsgspecError) -> str:
    """Return what is wrong, and where, in words."""
    what, at, path = str(error).partition(" - at `")
    return f"{in_words(what)}{at}{path}"


def in_words(what: str) -> str:
    """Return a complaint of the decoder as people say it."""
    if found := _LENGTH.fullmatch(what):
        kind, limit, count = found.groups()
        unit = "character" if kind == "str" else "entry"
        many = {"character": "characters", "entry": "entries"}[unit]
        return f"expected {_LIMITS[limit]} {count} {unit if count == '1' else many}"
    if found := _BOUND.fullmatch(what):
        return f"expected {_LIMITS[found[1]]} {found[2]}"
    if found := _TYPE.fullmatch(what):
        kinds = dict.fromkeys(found[1].split(" | "))
        kinds.pop("null", None)
        if "float" in kinds:
            kinds.pop("int", None)  # A whole number is a number.
        wanted = [KINDS.get(kind, kind) for kind in kinds]
        got = f", got {KINDS.get(found[2], found[2])}" if found[2] else ""
        return f"expected {_either(wanted or ['nothing'])}{got}"
    if found := _FIELD.fullmatch(what):
        is_missing = found[1].startswith("missing")
        return f"{'no' if is_missing else 'unknown'} field '{found[2]}'"
    if found := _VALUE.fullmatch(what):
        return f"{found[1]} is no value for this"
    return what


def advice(kind: object, path: str) -> str:
    """Say what fits at a path of a document of this kind: the choices, or examples."""
    options, examples = _fitting(_shape_of(kind), path)
    for option in options:
        match option:
            case inspect.LiteralType(values=values):
                return f"allowed here: {', '.join(map(str, values))}"
            case inspect.StructType(fields=fields):
                return f"its fields are {', '.join(f.encode_name for f in fields)}"
            case inspect.IntType(ge=int() as least, le=int() as most):
                return f"allowed here: {least} to {most}"
            case _:
                pass
    if examples:
        shown = (_typed(example) for example in examples)
        return f"for example: {_either([f'`{each}`' for each in shown])}"
    return ""


def _typed(example: object) -> str:
    """Write an example as it is typed: in quotes if it would else be a number."""
    if isinstance(example, str):
        with contextlib.suppress(ValueError):
            float(example)
            return json.dumps(example)
        return example
    return json.dumps(example)


@functools.cache
def _shape_of(kind: object) -> inspect.Type:
    """Return what a document of this kind looks like: slow to find out."""
    return inspect.type_info(kind)


def value_at(document: Any, path: str) -> object:  # noqa: ANN401 - Whatever was given.
    """Return what a document has at a path; None if there is nothing."""
    value = document
    for name, index in _steps(path):
        try:
            value = value[int(index) if index else name]
        except (LookupError, TypeError, ValueError):
            return None
    return value


def _steps(path: str) -> list[tuple[str, str]]:
    """Cut a path into names, and places in lists."""
    return [(step[1] or "", step[2] or "") for step in _STEP.finditer(path)]


def _either(words: list[str]) -> str:
    *first, last = words
    return f"{', '.join(first)} or {last}" if first else last


def _fitting(kind: inspect.Type, path: str) -> tuple[list[inspect.Type], list[Any]]:
    """Return what may stand at a path, and the nearest examples on the way there."""
    examples = _examples(kind)
    options = _options(kind)
    for name, index in _steps(path):
        inside = [each for o in options for each in _inside(o, name, index)]
        options = [option for each in inside for option in _options(each)]
        found = [example for each in inside for example in _examples(each)]
        examples = found or examples
    return ([] if examples else options) or _literals(options), examples


def _literals(options: list[inspect.Type]) -> list[inspect.Type]:
    return [each for each in options if isinstance(each, inspect.LiteralType)]


def _examples(kind: inspect.Type) -> list[Any]:
    match kind:
        case inspect.Metadata():
            # msgspec does not say what is in it.
            schema: dict[str, Any] = kind.extra_json_schema or {}  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
            return list(schema.get("examples", ())) or _examples(kind.type)
        case inspect.UnionType(types=types):
            return [example for each in types for example in _examples(each)]
        case _:
            return []


def _options(kind: inspect.Type) -> list[inspect.Type]:
    """Return all kinds that a value may be of."""
    if isinstance(kind, inspect.Metadata):
        return _options(kind.type)
    if isinstance(kind, inspect.UnionType):
        return [option for each in kind.types for option in _options(each)]
    return [kind]


def _inside(kind: inspect.Type, name: str, index: str) -> list[inspect.Type]:
    match kind:
        case inspect.StructType(fields=fields) if name:
            return [field.type for field in fields if field.encode_name == name]
        case inspect.DictType(value_type=value):
            return [value]
        case inspect.VarTupleType(item_type=item) | inspect.ListType(item_type=item):
            return [item] if index else []
        case _:
            return []
