"""The page about job specs, from their JSON Schema."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from shoal.cli.reference.tables import page, table
from shoal.model.schema import job_schema

if TYPE_CHECKING:
    from collections.abc import Iterator

INTRODUCTION: Final = """\
# Reference: job specs

Written by `make docs` from the JSON Schema that `shoal schema` prints;
[job-spec.md](../job-spec.md) explains the fields with examples. No field is required,
but a job has exactly one of `command`, `recipe` and `steps`.
"""

TITLES: Final = {
    "JobSpec": "A job",
    "ResourcesSpec": "Resources",
    "StepSpec": "A step",
    "SpanSpec": "Values of a sweep",
    "RetrySpec": "Retry",
    "PlacementSpec": "Placement",
    "VerifySpec": "Verify",
}
WORDS: Final = {
    "string": "text",
    "integer": "whole number",
    "number": "number",
    "boolean": "true or false",
    "array": "list",
    "object": "mapping",
    "null": "",
}


def spec_page() -> str:
    """Return the page."""
    return page(_lines())


def _lines() -> Iterator[str]:
    yield from INTRODUCTION.splitlines()
    parts: dict[str, dict[str, Any]] = job_schema()["$defs"]
    assert sorted(parts) == sorted(TITLES), "a part of specs has no title"
    for name, title in TITLES.items():
        yield from ("", f"## {title}", "")
        yield from (line.strip() for line in parts[name]["description"].splitlines())
        rows = [
            _row(field, part, parts)
            for field, part in parts[name]["properties"].items()
        ]
        yield from table(("field", "is", "default", "means", "such as"), rows)


def _row(
    field: str, part: dict[str, Any], parts: dict[str, dict[str, Any]]
) -> tuple[str, ...]:
    default = part.get("default")
    is_none = default is None or default in ("", [], {})
    return (
        f"`{field}`",
        ", or ".join(dict.fromkeys(filter(None, _kinds(part)))),
        "" if is_none else f"`{_short(default)}`",
        _meaning(part, parts),
        ", ".join(f"`{_short(each)}`" for each in _first(part, "examples") or ()),
    )


def _kinds(part: dict[str, Any]) -> Iterator[str]:
    if "$ref" in part:
        title = TITLES[part["$ref"].rpartition("/")[2]]
        yield f"[{title.lower()}](#{title.lower().replace(' ', '-')})"
    elif "enum" in part:
        yield " ".join(f"`{each}`" for each in part["enum"])
    elif "anyOf" in part:
        for each in part["anyOf"]:
            yield from _kinds(each)
    else:
        word = WORDS[part["type"]]
        low, high = part.get("minimum"), part.get("maximum")
        bounded = low is not None and high is not None and high <= 1_000_000
        yield f"{word} from {low} to {high}" if bounded else word


def _meaning(part: dict[str, Any], parts: dict[str, dict[str, Any]]) -> str:
    """Return what a field means: in its own words, or in those of what it holds."""
    if told := _first(part, "description"):
        return str(told)
    held: str = _first(part, "$ref").rpartition("/")[2]
    return str(parts[held]["description"].partition("\n")[0])


def _first(part: dict[str, Any], key: str) -> Any:  # noqa: ANN401 - Of a schema.
    """Return a property of a field, or of the first of its forms that has it."""
    if key in part:
        return part[key]
    return next((each[key] for each in part.get("anyOf", ()) if key in each), None)


def _short(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)
