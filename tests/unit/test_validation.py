"""What the decoder says, as people say it."""

import msgspec
import pytest

from shoal import validation
from shoal.model.spec.spec import JobSpec


@pytest.mark.parametrize(
    ("document", "what", "hint"),
    [
        ({"command": 5}, "expected text or a list, got a whole number", "`python "),
        ({"nodes": 0}, "expected at least 1", "for example: `1`, `4` or `2..4`"),
        ({"params": {"a": []}}, "expected true or false, a number or text, got", "lr"),
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


def test_no_complaint_of_the_decoder_about_a_spec_stays_as_it_is() -> None:
    wrong: tuple[object, ...] = (
        5,
        2.5,
        "",
        "x" * 5_000,
        [],
        [[]],
        {},
        {"": 1},
        None,
        True,
    )
    for field in JobSpec.__struct_fields__:
        for value in wrong:
            try:
                msgspec.convert({field: value}, JobSpec)
            except msgspec.ValidationError as error:
                said, _ = validation.told(error)
                assert "`" not in said, said
                assert not said.startswith(("Expected", "Object", "Invalid")), said


def test_a_value_is_found_by_its_path() -> None:
    document = {"steps": {"a": {"command": ["x", 5]}}}

    assert validation.value_at(document, "$.steps.a.command[1]") == 5
    assert validation.value_at(document, "$.steps.b.command[1]") is None
    assert validation.value_at(document, "$") is document
