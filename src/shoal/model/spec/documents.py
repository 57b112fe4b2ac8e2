"""YAML and JSON text as plain values, within bounds and without surprises.

The YAML reader is a module of its own, loaded only when needed. It
goes by the rules of version 1.2: `on`, `yes` and `2:30` are words, not truth or
numbers, so `retry: {on: ...}` and `gpu: 2:3` mean what they say. A word of digits that
begins with 0 stays a word, since 007 is a name more often than a number. Aliases are
counted in full, keys may not repeat, and there are no tags.
"""

from __future__ import annotations

import json
import math
import re
from typing import Final, NoReturn, TypeAlias

from shoal.errors import SpecError
from shoal.model.job import Scalar
from shoal.model.spec.limits import SPEC_BYTES_MAX, SPEC_NESTING_MAX
from shoal.model.text.bounds import INT64_MAX

Plain: TypeAlias = "str | int | float | bool | list[Plain] | dict[str, Plain] | None"
"""A value as a document holds it."""

_DIGITS_MAX: Final = 32

_INTEGER: Final = re.compile(r"-?(?:0|[1-9][0-9]*)")
_REAL: Final = re.compile(
    r"-?(?:(?:0|[1-9][0-9]*)(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?"
)
_TRUTHS: Final = {
    "true": True,
    "True": True,
    "TRUE": True,
    "false": False,
    "False": False,
    "FALSE": False,
}


_JSON_COMPLAINTS: Final = (
    ("quotes", "a name in double quotes is missing", 'write it like `{"a": 1}`'),
    ("delimiter", "a comma or colon is missing", 'write it like `{"a": 1, "b": 2}`'),
    ("value", "a value is missing", 'write it like `{"a": 1}` or `[1, 2]`'),
    (" at", "a text is not closed, or has a tab in it", 'write it like `"a"`, `"\\t"`'),
    ("data", "something follows the end", "write one job into a file"),
    ("escape", "a backslash does nothing to the sign after it", "write two of them"),
    ("", "it makes no sense", "correct the text there"),
)
"""What the parser says, what that means, and what to do."""


def read_yaml(text: str | bytes) -> Plain:
    """Return the one document of a YAML text."""
    from shoal.model.spec.yaml_documents import read  # noqa: PLC0415 - Slow to import.

    return read(decoded(text))


def read_json(text: str | bytes) -> Plain:
    """Return the value of a JSON text."""
    try:
        value: Plain = json.loads(
            decoded(text),
            object_pairs_hook=_object,
            parse_constant=_refuse_constant,
            parse_int=_json_integer,
            parse_float=_json_real,
        )
        return value
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        why, hint = next(
            told for words, *told in _JSON_COMPLAINTS if words in error.msg
        )
        raise unreadable("JSON", f"{why}, in {where}", hint) from None
    except RecursionError:
        raise too_deep("$") from None


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


def decoded(text: str | bytes) -> str:
    """Return a text of bounded size as such."""
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
        raise unreadable("UTF-8", f"byte {error.start} is {error.reason}") from None


def _object(pairs: list[tuple[str, Plain]]) -> Plain:
    result: dict[str, Plain] = {}
    for name, value in pairs:
        if name in result:
            raise repeated(name, "$")
        result[name] = value
    return result


def _json_integer(text: str) -> int:
    if len(text) > _DIGITS_MAX or abs(int(text)) > INT64_MAX:
        raise unreadable("JSON", f"integer {text[:16]}... needs more than 64 bits")
    return int(text)


def _json_real(text: str) -> float:
    if not math.isfinite(float(text)):
        raise unreadable("JSON", f"number {text[:16]} is too large")
    return float(text)


def _refuse_constant(name: str) -> NoReturn:
    raise unreadable("JSON", f"{name} is not a number of JSON")


def unreadable(
    language: str, because: str, hint: str = "correct the text there"
) -> SpecError:
    """Return the error for a text that is not in its language."""
    return SpecError(f"the spec is not {language}", because=because, hint=hint)


def repeated(name: str, path: str) -> SpecError:
    """Return the error for a name that is there twice."""
    return SpecError(
        f"'{name}' is given twice",
        path=path,
        because="only one of the two could count",
        hint="remove one of them",
    )


def too_deep(path: str) -> SpecError:
    """Return the error for values within too many others."""
    return SpecError(
        "the spec is nested too deep",
        path=path,
        because=f"the most is {SPEC_NESTING_MAX} levels",
        hint="no field of a spec needs more than six",
    )
