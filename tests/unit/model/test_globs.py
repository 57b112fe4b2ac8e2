"""Patterns of outputs: what they mean, which are none, and how long a match takes."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.errors import UsageError
from shoal.model.spec.globs import Glob, Globs, flaw


@pytest.mark.parametrize(
    ("pattern", "yes", "no"),
    [
        ("out/", ["out/a", "out/deep/b"], ["out", "sub/out/a"]),
        ("out", ["out", "out/a"], ["outer", "sub/out"]),
        ("*.pt", ["x.pt", "x.pt/inside"], ["sub/x.pt", "x.ptx"]),
        ("**/*.pt", ["x.pt", "a/b/x.pt"], ["x.txt"]),
        ("a/**/z", ["a/z", "a/b/c/z"], ["a", "z"]),
        ("out/**", ["out/a", "out/b/c"], ["out"]),
        ("**", ["a", "a/b"], []),
        ("log-?.txt", ["log-1.txt"], ["log-.txt", "log-12.txt"]),
        ("[a-c]x[!0-9]", ["axy", "cx-"], ["dxy", "ax1"]),
        (r"\*", ["*"], ["x"]),
        ("[", ["["], ["x"]),
        ("[]]", ["]"], ["["]),
        ("./a//b", ["a/b"], ["a"]),
        ("a*b*c", ["abc", "aXbYc"], ["ab", "acb"]),
        ("*a*", ["xax", "a"], ["b"]),
    ],
)
def test_a_pattern_means_these_and_not_those(
    pattern: str, yes: list[str], no: list[str]
) -> None:
    glob = Glob(pattern)

    assert [path for path in yes if not glob.matches(path)] == []
    assert [path for path in no if glob.matches(path)] == []


@pytest.mark.parametrize(
    "pattern",
    [
        *("x\\", "x\\\\\\", "", "!", ".", "./", "/etc", "../x", "a/../b"),
        *("a\0b", "a\nb", "\ud800", "!x\\", "/".join("a" * 65), " "),
    ],
)
def test_what_can_be_no_output_is_refused_with_a_reason(pattern: str) -> None:
    with pytest.raises(UsageError) as caught:
        Glob(pattern)

    assert caught.value.because
    assert caught.value.what.isprintable() or "\ud800" in pattern


def test_what_is_taken_out_is_not_meant_whatever_the_order() -> None:
    for patterns in (("!out/tmp", "out"), ("out", "!out/tmp")):
        globs = Globs(patterns)

        assert globs.meaning("out/a")
        assert not globs.meaning("out/tmp/a")


def test_no_root_is_within_another() -> None:
    assert Globs(["a/b", "a", "ab/*", "!c"]).roots == ["a", "ab"]
    assert Globs(["a/b", "*.pt"]).roots == [""]


@given(*[st.text(st.characters(max_codepoint=0x2FF), max_size=12)] * 2)
def test_any_text_is_a_pattern_or_has_a_flaw(pattern: str, path: str) -> None:
    if not flaw(pattern):
        Glob(pattern).matches(path)


@given(st.text("ab*?[]!^-\\/", max_size=10), st.text("ab-/", min_size=1, max_size=8))
def test_a_plain_name_matches_itself(pattern: str, path: str) -> None:
    if not flaw(pattern):
        Glob(pattern).matches(path)
    if not flaw(path):
        names = [name for name in path.split("/") if name]
        assert Glob("/".join(names)).matches("/".join(names))


@pytest.mark.parametrize(
    ("pattern", "path"),
    [
        ("*a" * 60 + "*b", "a" * 255),
        ("*?" * 100 + "b", "a" * 255),
        ("/".join(["**", "a"] * 31) + "/b", "/".join("a" * 63)),
    ],
)
def test_no_pattern_keeps_a_node_busy(pattern: str, path: str) -> None:
    glob = Glob(pattern)
    began = time.process_time()

    assert not glob.matches(path)
    assert time.process_time() - began < 0.5
