import pytest

from shoal.errors import SpecError
from shoal.model.job import Scalar
from shoal.model.spec.documents import read_json, read_yaml, scalar_of, text_of
from shoal.model.spec.limits import SPEC_BYTES_MAX


def test_yaml_words_that_look_like_truth_or_times_stay_words() -> None:
    text = "on: yes\ngpu: 2:3\nzip: 007\nday: 2026-01-01\nmerge: {<<: {a: 1}}"

    assert read_yaml(text) == {
        "on": "yes",
        "gpu": "2:3",
        "zip": "007",
        "day": "2026-01-01",
        "merge": {"<<": {"a": 1}},
    }


def test_yaml_numbers_and_truth_are_values_unless_quoted() -> None:
    text = "[1, -2, 0.5, 1e-4, true, False, ~, null, '1', \"true\", !!str 5]"

    assert read_yaml(text) == [
        *(1, -2, 0.5, 0.0001, True, False, None, None),
        *("1", "true", "5"),
    ]


def test_an_alias_stands_for_what_it_names() -> None:
    assert read_yaml("a: &x {b: 1}\nc: *x") == {"a": {"b": 1}, "c": {"b": 1}}


def test_an_empty_yaml_text_is_nothing() -> None:
    assert read_yaml("# only a comment") is None


def bomb(levels: int) -> str:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    for n in range(1, levels):
        aliases = ", ".join([f"*a{n - 1}"] * 10)
        lines.append(f"a{n}: &a{n} [{aliases}]")
    return "\n".join(lines)


@pytest.mark.parametrize(
    ("text", "what"),
    [
        (bomb(9), "too large"),
        ("&a [*a]", "nested too deep"),
        ("[" * 20 + "]" * 20, "nested too deep"),
        ("[" * 2_000, "nested too deep"),
        ("a: 1\nb: 2\na: 3", "'a' is given twice - at `$.a`"),
        ("x: {y: 1, y: 1}", "'y' is given twice - at `$.x.y`"),
        ("x: !!python/object/apply:os.system [ls]", "tag"),
        ("x: !secret y", "tag !secret"),
        ("[a]: 1", "a name is not a word"),
        ("a: [", "not YAML"),
        ("a: b: c", "not YAML"),
        ("--- 1\n--- 2", "not YAML"),
        ("a: \x00", "not YAML"),
        ("a: *nowhere", "not YAML"),
        ("x" * (SPEC_BYTES_MAX + 1), "too large"),
    ],
)
def test_yaml_that_is_broken_or_a_bomb_is_refused(text: str, what: str) -> None:
    with pytest.raises(SpecError) as error:
        read_yaml(text)

    assert what in error.value.what
    assert error.value.because


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ('{"a": 1, "a": 2}', "'a' is given twice"),
        ("[" * 100_000, "nested too deep"),
        ('{"a": NaN}', "not JSON"),
        ('{"a": 1e999}', "not JSON"),
        ('{"a": 99999999999999999999}', "not JSON"),
        ('{"a": ' + "9" * 5000 + "}", "not JSON"),
        ("{", "not JSON"),
        (b"\xff", "not UTF-8"),
        (" " * (SPEC_BYTES_MAX + 1), "too large"),
    ],
)
def test_json_that_is_broken_or_too_large_is_refused(
    text: str | bytes, what: str
) -> None:
    with pytest.raises(SpecError) as error:
        read_json(text)

    assert what in error.value.what


def test_an_error_in_yaml_names_line_and_column() -> None:
    with pytest.raises(SpecError, match="line 2, column 5"):
        read_yaml("a: 1\nb: c: d")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("64", 64),
        ("-0", 0),
        ("0.001", 0.001),
        ("1e-3", 0.001),
        (".5", 0.5),
        ("true", True),
        ("007", "007"),
        ("1_000", "1_000"),
        ("nan", "nan"),
        ("1e999", "1e999"),
        ("9" * 19, "9" * 19),
        ("9" * 5000, "9" * 5000),
        ("sgd", "sgd"),
        ("", ""),
    ],
)
def test_a_text_that_is_written_as_a_number_is_that_number(
    text: str, value: Scalar
) -> None:
    found = scalar_of(text)

    assert found == value
    assert type(found) is type(value)


def test_a_value_is_written_for_a_program_as_in_json() -> None:
    assert [text_of(v) for v in (True, False, 1, 0.5, "x y")] == [
        "true",
        "false",
        "1",
        "0.5",
        "x y",
    ]
