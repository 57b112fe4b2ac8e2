import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

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


PARSERS_WORDS = re.compile(
    r"token|expected|found|Expecting|stream|scalar|block|<|delimiter|Extra|allowed"
)


@pytest.mark.parametrize(
    ("text", "why", "hint"),
    [
        ("a: b: c", "a second name and colon", '`name: "a: b"`'),
        ("\ta: 1", "a tab", "with spaces"),
        ("a: [1", "a list that is not closed, in line 1, column 6", "`[a, b]`"),
        ("a: {b: 1", "a mapping that is not closed", "`{a: 1, b: 2}`"),
        ("a: 'x", "a quote that is not closed", '`"a"`'),
        ("a: *.txt", "begins with * or &", '"*.txt"'),
        ("a: *x", "begins with *", '"*.txt"'),
        ("a: %x", "begins with a sign", "quote it"),
        ("command: {lr} x", "more text after a value", "quote the whole"),
        ("a:\n  - 1\n - 2", "a line that is not indented as", "same number"),
        ("a: 1\n---\nb: 2", "a second document", "one job"),
        ('a: "\\q"', "a backslash before", "two of them"),
        ("x: [", "a list or mapping that is not closed", "`[a, b]`"),
        ("a: >x", "text right after >", "quote it"),
        ("a: \0", "characters that no text has", "UTF-8"),
    ],
)
def test_what_is_no_yaml_is_said_in_words_with_an_example(
    text: str, why: str, hint: str
) -> None:
    with pytest.raises(SpecError, match="not YAML") as error:
        read_yaml(text)

    assert why in error.value.because
    assert hint in error.value.hint
    assert not PARSERS_WORDS.search(error.value.because)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{a: 1}", "a name in double quotes is missing, in line 1, column 2"),
        ('{"a" 1}', "a comma or colon"),
        ('{"a":}', "a value"),
        ('"x', "a text is not closed"),
        ("{} {}", "something follows"),
        ('{"a": "\\q"}', "a backslash"),
    ],
)
def test_what_is_no_json_is_said_in_words_with_an_example(text: str, why: str) -> None:
    with pytest.raises(SpecError, match="not JSON") as error:
        read_json(text)

    assert error.value.because.startswith(why)


@given(st.text("a1 \n\t:-,[]{}'\"*&!|>%@`#?\\", max_size=24))
def test_no_word_of_a_parser_reaches_the_user(text: str) -> None:
    for read in (read_yaml, read_json):
        because = ""
        try:
            read(text)
        except SpecError as error:
            because = error.because
        assert not PARSERS_WORDS.search(because)
