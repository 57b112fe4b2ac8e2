"""What the decoder says, as people say it."""

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from msgspec import inspect

from shoal import validation
from shoal.errors import SpecError
from shoal.model.spec.canonical import spec_of
from shoal.model.spec.spec import JobSpec


@pytest.mark.parametrize(
    ("document", "what", "hint"),
    [
        ({"command": 5}, "expected text or a list, got a whole number", "`python "),
        ({"nodes": 0}, "expected at least 1", "for example: `1`, `4` or `2..4`"),
        ({"params": {"a": []}}, "expected true or false, a number or text, got", "lr"),
        ({"env": {"A": [1]}}, "expected true or false, a number or text", "WANDB_MODE"),
        ({"python": {"version": 3.12}}, "expected text, got a number", '`"3.12"`'),
        ({"secrets": [""]}, "expected at least 1 character", "HF_TOKEN"),
        ({"outputs": [5]}, "expected text, got a whole number", "out/"),
        ({"resources": []}, "expected a mapping, got a list", "gpu, cpu, ram, disk"),
        ({"retry": {"max": "x"}}, "expected a whole number, got text", "0 to 1000"),
        ({"verify": {"owners": "all"}}, "'all' is no value", "any, different"),
        ({"retry": {"often": 1}}, "unknown field 'often'", "max"),
    ],
)
def test_a_complaint_is_a_sentence_with_what_fits_there(
    document: dict[str, object], what: str, hint: str
) -> None:
    with pytest.raises(msgspec.ValidationError) as raised:
        msgspec.convert(document, JobSpec)

    said, path = validation.told(raised.value)

    assert said.startswith(what)
    assert hint in validation.advice(JobSpec, path)


WRONG: tuple[Any, ...] = (
    *(5, -1, 2.5, True, None, "", "x" * 5_000, "\0"),
    *([], [[]], [None], [5], {}, {"": 1}, {"x": None}, {"x": {"y": []}}),
)


def _within(kind: inspect.Type, depth: int = 4) -> Iterator[tuple[str | int, ...]]:
    """Go through the places of a document, down to this depth."""
    yield ()
    match kind:
        case inspect.Metadata(type=inner):
            yield from _within(inner, depth)
        case inspect.UnionType(types=types):
            for each in types:
                yield from _within(each, depth)
        case inspect.StructType(fields=fields) if depth:
            for field in fields:
                for path in _within(field.type, depth - 1):
                    yield (field.encode_name, *path)
        case inspect.DictType(value_type=value) if depth:
            for path in _within(value, depth - 1):
                yield ("a", *path)
        case inspect.VarTupleType(item_type=item) if depth:
            for path in _within(item, depth - 1):
                yield (0, *path)
        case _:
            pass


def _document(path: tuple[str | int, ...], value: Any) -> Any:  # noqa: ANN401
    for step in reversed(path):
        value = [value] if step == 0 else {step: value}
    return value


def test_no_wrong_value_anywhere_in_a_spec_is_answered_with_words_of_the_decoder() -> (
    None
):
    raw = ("Expected `", "Object ", "Invalid ", " | ")
    places = dict.fromkeys(_within(inspect.type_info(JobSpec)))
    refused = 0
    for path in places:
        for value in WRONG:
            document = _document(path, value)
            try:
                spec_of(document)
            except SpecError as error:
                refused += 1
                said = f"{error.what} {error.because}"
                assert not any(word in said for word in raw), (document, said)

    assert len(places) > 150
    assert refused > 1_500


def test_a_value_is_found_by_its_path() -> None:
    document = {"steps": {"a": {"command": ["x", 5]}}}

    assert validation.value_at(document, "$.steps.a.command[1]") == 5
    assert validation.value_at(document, "$.steps.b.command[1]") is None
    assert validation.value_at(document, "$") is document
