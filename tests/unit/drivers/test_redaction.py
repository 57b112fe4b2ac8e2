from hypothesis import given
from hypothesis import strategies as st

from shoal.drivers.supervisor.redaction import Redacted, Redaction

SECRET = "hunter2hunter3"


def shown(secrets: list[str], *parts: bytes) -> bytes:
    stream = Redacted(Redaction(secrets))
    found, offset = b"", 0
    for part in parts:
        start, data = stream.feed(offset, part)
        assert not data or start == len(found)
        found += data
        offset += len(part)
    start, data = stream.end()
    assert not data or start == len(found)
    return found + data


def test_a_secret_becomes_stars_of_the_same_length() -> None:
    assert shown([SECRET], b"a hunter2hunter3 b") == b"a ************** b"


def test_a_secret_that_comes_in_pieces_is_found() -> None:
    assert shown([SECRET], b"a hunt", b"er2hun", b"ter3 b") == b"a ************** b"
    assert shown([SECRET], *(bytes([c]) for c in b"hunter2hunter3!")) == b"*" * 14 + (
        b"!"
    )


def test_what_only_begins_like_a_secret_is_passed_on_in_the_end() -> None:
    assert shown([SECRET], b"hunter2hunt") == b"hunter2hunt"
    assert shown([SECRET], b"hunter2hun", b"dred") == b"hunter2hundred"


def test_the_longest_of_several_is_taken_out_whole() -> None:
    assert shown(["abcd", "abcdefgh"], b"abcdefgh abcd") == b"******** ****"


def test_lines_of_a_long_secret_are_found_one_by_one() -> None:
    assert shown(["BEGIN\nkeyline1\nEND!"], b"x keyline1 y") == b"x ******** y"


def test_short_values_are_left_alone() -> None:
    assert not Redaction(["a", "12", ""])
    assert shown(["a"], b"banana") == b"banana"
    assert Redaction(["1234"]).text("code 1234") == "code ****"


@given(
    parts=st.lists(st.text("abx", max_size=8).map(str.encode), max_size=8),
    secret=st.text("ab", min_size=4, max_size=6),
)
def test_however_it_is_cut_no_secret_passes_and_no_byte_is_lost(
    parts: list[bytes], secret: str
) -> None:
    found = shown([secret], *parts)

    whole = b"".join(parts)
    assert len(found) == len(whole)
    assert secret.encode() not in found
    assert all(a in (b, ord("*")) for a, b in zip(found, whole, strict=True))
