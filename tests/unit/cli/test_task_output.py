"""A terminal gets text and colours of tasks, and nothing that steers it."""

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.cli.display.task_output import PENDING_MAX, Screened, screened

BAD = [
    b"\x1b]0;title\x07",
    b"\x1b]52;c;aGk=\x1b\\",
    b"\x1bP1$r\x1b\\",
    b"\x1b[2J",
    b"\x1b[6n",
    b"\x1b[1;1H",
    b"\x1b[?1049h",
    b"\x1b(0",
    b"\x1bc",
    b"\x07\x08\x00\x0e",
    b"\x7f",
    "\u202e\u2066".encode(),
    "\x9b".encode(),
]


def shown(*pieces: bytes) -> str:
    out = io.BytesIO()
    screen = Screened(out)
    for piece in pieces:
        screen.write(piece)
    screen.close()
    return out.getvalue().decode()


@pytest.mark.parametrize("bad", BAD)
def test_what_steers_a_terminal_is_left_out(bad: bytes) -> None:
    assert shown(b"a" + bad + b"b\n") == "ab\n"


@pytest.mark.parametrize("bad", BAD)
def test_it_is_left_out_however_it_is_cut_into_pieces(bad: bytes) -> None:
    whole = b"a" + bad + b"b\n"

    pieces = [whole[at : at + 1] for at in range(len(whole))]

    assert shown(*pieces) == "ab\n"


def test_colours_lines_tabs_and_progress_stay() -> None:
    text = "\x1b[1;32mok\x1b[0m\t50%\r100%\n naïve 🐟\n"

    assert shown(text.encode()) == text + "\x1b[0m"


def test_colours_end_with_the_output() -> None:
    assert shown(b"\x1b[31mred").endswith("\x1b[0m")
    assert shown(b"plain") == "plain"


def test_a_sequence_that_never_ends_hides_only_itself() -> None:
    assert "seen" in shown(b"\x1b]0;" + b"x" * PENDING_MAX, b"x\nseen\n")
    assert shown(b"\x1b]0;x\nseen\n").endswith("x\nseen\n")


@given(st.lists(st.binary(max_size=40), max_size=20))
def test_no_bytes_whatever_get_a_control_through(pieces: list[bytes]) -> None:
    seen = shown(*pieces)

    text = "".join(part.split("m", 1)[-1] for part in seen.split("\x1b["))
    assert "\x1b" not in text
    assert not any(ch < " " and ch not in "\r\n\t" for ch in text)
    assert not any("\x7f" <= ch <= "\x9f" for ch in text)


@given(st.binary(max_size=200))
def test_one_line_of_the_monitor_has_no_control(line: bytes) -> None:
    seen = screened(line.replace(b"\n", b""))

    assert not any(ch < " " and ch != "\t" for ch in seen)
