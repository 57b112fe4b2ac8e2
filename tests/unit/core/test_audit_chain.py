"""A chain shows what was changed in it, and a flood becomes a number."""

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.core.durability.audit_chain import (
    FIRST,
    HOLD_S,
    KEYS_MAX,
    LASTING,
    LINE_BYTES_MAX,
    AuditEntry,
    AuditThrottle,
    check,
    hash_of,
    line_of,
    read,
)


def chain(count: int) -> list[bytes]:
    lines: list[bytes] = []
    head = FIRST
    for n in range(1, count + 1):
        entry = AuditEntry(n=n, at_s=float(n), what="submit", job=f"j{n}", prev=head)
        lines.append(line_of(entry))
        head = hash_of(lines[-1])
    return lines


def test_a_whole_chain_has_no_flaw() -> None:
    lines = chain(5)

    found = check(lines)

    assert (found.entries, found.first, found.last, found.flaws) == (5, 1, 5, [])
    assert found.head == hash_of(lines[-1])


def test_a_chain_whose_begin_was_rotated_away_has_no_flaw() -> None:
    found = check(chain(9)[4:])

    assert (found.first, found.last, found.flaws) == (5, 9, [])


@pytest.mark.parametrize("place", range(1, 5))
def test_a_changed_line_is_found(place: int) -> None:
    lines = chain(6)
    lines[place] = lines[place].replace(b'"j', b'"k')

    assert [flaw.place for flaw in check(lines).flaws] == [place + 2]


@pytest.mark.parametrize("place", range(1, 5))
def test_a_line_that_was_taken_out_is_found(place: int) -> None:
    lines = chain(6)
    del lines[place]

    assert check(lines).flaws[0].place == place + 1


def test_a_line_that_was_put_in_is_found() -> None:
    lines = chain(4)
    forged = AuditEntry(n=3, what="revoke", prev=hash_of(lines[1]))
    lines.insert(2, line_of(forged))

    assert check(lines).flaws


def test_a_line_that_is_no_entry_is_found() -> None:
    lines = chain(3)
    lines[1] = b"\xff{\n"

    assert check(lines).flaws[0].what == "it cannot be read"


TEXTS = st.text(max_size=10_000)


@given(TEXTS, TEXTS)
def test_any_text_makes_one_plain_line_of_bounded_length(one: str, other: str) -> None:
    line = line_of(AuditEntry(what=one, target=other, because=other + one, owner=one))

    assert line.isascii()
    assert line.count(b"\n") == 1
    assert all(32 <= byte < 127 for byte in line[:-1])
    assert len(line) <= LINE_BYTES_MAX
    assert json.loads(line)


@given(st.binary(max_size=300))
def test_no_bytes_make_the_reader_raise(data: bytes) -> None:
    read(data)
    check([data])


def entry(**fields: object) -> AuditEntry:
    return msgspec.convert({"what": "submit", **fields}, AuditEntry)


def test_what_happens_often_is_counted_and_told_once_a_minute() -> None:
    squeeze = AuditThrottle()
    written = [squeeze.take(entry(node="n"), 1.0) for _ in range(1_000)]

    early, due, late = squeeze.due(30.0), squeeze.due(1.0 + HOLD_S), squeeze.due(999.0)

    assert sum(each is not None for each in written) == 60
    assert early == []
    assert [each.count for each in due] == [940]
    assert late == []


def test_a_flood_of_strangers_is_a_few_lines_a_minute_however_many_they_are() -> None:
    squeeze = AuditThrottle()
    written = 0
    for second in range(3_600):
        for n in range(50):
            stranger = entry(
                what="join", result="refused", address=f"10.{n}.{second}", node=f"{n}"
            )
            written += squeeze.take(stranger, float(second)) is not None
        written += len(squeeze.due(float(second)))

    assert written < 30 + 60 * 8
    assert sum(each.count for each in squeeze.rest()) > 0


def test_nothing_is_lost_of_what_was_counted() -> None:
    squeeze = AuditThrottle()
    count = 0
    for second in range(500):
        for n in range(300):
            one = squeeze.take(entry(node=f"n{n}", what=f"w{n}"), float(second))
            count += one is not None
        count += sum(each.count for each in squeeze.due(float(second)))
    count += sum(each.count for each in squeeze.rest())

    assert count == 500 * 300
    assert len(squeeze._buckets) <= KEYS_MAX + 1  # pyright: ignore[reportPrivateUsage]


@pytest.mark.parametrize("what", sorted(LASTING))
def test_a_change_of_rights_is_always_written(what: str) -> None:
    squeeze = AuditThrottle()

    written = [squeeze.take(entry(what=what), 0.0) for _ in range(500)]

    assert None not in written


def test_looking_at_one_job_all_the_time_is_one_line_a_minute() -> None:
    squeeze = AuditThrottle()
    looks = [
        squeeze.take(entry(what="read-output", job=job), second / 10)
        for second in range(600)
        for job in ("a", "b")
    ]

    assert [each.job for each in looks if each is not None] == ["a", "b"]
    assert [each.count for each in squeeze.due(120.0)] == [599, 599]
