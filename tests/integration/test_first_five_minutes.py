"""The first five minutes of a new user, typed word for word on real nodes."""

from pathlib import Path

import pytest
from tests.integration.transcripts import Session, matched, parse

pytestmark = pytest.mark.integration

HERE = Path(__file__).parent
SESSIONS = sorted((HERE / "sessions").glob("*.txt"))


@pytest.mark.parametrize("path", SESSIONS, ids=lambda path: str(path.stem))
def test_everything_happens_as_shown(path: Path, tmp_path: Path) -> None:
    session = Session(tmp_path, HERE.parents[1] / "examples")

    try:
        session.play(path.read_text(encoding="utf-8"))
    finally:
        session.close()


def test_a_transcript_is_read_as_it_is_described() -> None:
    first, second = parse(
        "# A remark.\na$ cat > x <<END\n> one\n> END\n\nb% ls\nx\n\ny\n\n(exit 3)\n"
    )

    assert first[1:] == ("a", False, "cat > x <<END\none\nEND", (), 0)
    assert second[1:] == ("b", True, "ls", ("x", "", "y"), 3)


@pytest.mark.parametrize(
    ("shown", "printed", "words"),
    [
        (("job {job} is {state}",), "job 7k is done\n", {"job": "7k", "state": "done"}),
        (("{job}", "...", "end {job}"), "7k\na\nb\nend 7k\n", {"job": "7k"}),
        (("{job}", "{job}"), "7k\n8k\n", None),
        (("in ... s",), "in 0.3 s\n", {}),
        (("a", "..."), "a\n", {}),
        (("a",), "a\nb\n", None),
        (("a.c",), "abc\n", None),
        ((), "", {}),
    ],
)
def test_an_output_looks_as_shown_or_not(
    shown: tuple[str, ...], printed: str, words: dict[str, str] | None
) -> None:
    assert matched(shown, printed, {}) == words
