"""Damage to the file is noticed wherever it is; a torn end is just an earlier end."""

import shutil
from contextlib import closing
from pathlib import Path
from random import Random

import pytest
from tests.unit.store.hosting import fill, hosted, payloads, tamper

from shoal.errors import StoreError
from shoal.store.journal import Journal
from shoal.store.rows import TAIL_ROWS

ENTRIES = [b"entry %d" % n for n in range(1, 9)]


def complaint(path: Path) -> StoreError:
    with pytest.raises(StoreError) as raised:
        payloads(path)
    assert raised.value.hint
    assert raised.value.kind == "damaged"
    return raised.value


@pytest.mark.parametrize(
    ("row", "change"),
    [
        (3, "UPDATE entries SET payload = x'00' WHERE seq = 3"),
        (8, "UPDATE entries SET payload = x'00' WHERE seq = 8"),
        (3, "UPDATE entries SET payload = CAST(payload AS TEXT) WHERE seq = 3"),
        (3, "UPDATE entries SET kind = 'another' WHERE seq = 3"),
        (3, "UPDATE entries SET kind = x'00' WHERE seq = 3"),
        (3, "UPDATE entries SET checksum = zeroblob(16) WHERE seq = 3"),
        (3, "DELETE FROM entries WHERE seq = 3"),
        (1, "DELETE FROM entries WHERE seq = 1"),
    ],
)
def test_a_row_that_was_changed_or_lost_is_named(
    path: Path, row: int, change: str
) -> None:
    fill(path, *ENTRIES)
    tamper(path, change)

    assert f"row {row} of 'entries'" in str(complaint(path))


def test_rows_that_changed_places_are_noticed(path: Path) -> None:
    fill(path, *ENTRIES)
    tamper(
        path,
        "UPDATE entries SET seq = 100 WHERE seq = 3",
        "UPDATE entries SET seq = 3 WHERE seq = 4",
        "UPDATE entries SET seq = 4 WHERE seq = 100",
    )

    assert "row 3 of 'entries'" in str(complaint(path))


@pytest.mark.parametrize(
    "change",
    [
        "DELETE FROM entries WHERE seq > 5",
        "DELETE FROM entries",
        "DELETE FROM tail",
        "UPDATE tail SET seq = 7",
        "UPDATE tail SET seq = -1",
        "UPDATE tail SET seq = 'seven'",
        "UPDATE tail SET checksum = zeroblob(16)",
        "INSERT INTO entries SELECT 9, kind, checksum, payload FROM entries LIMIT 1",
        "UPDATE tail SET (seq, checksum) = (SELECT seq, checksum FROM entries)",
    ],
)
def test_an_end_that_was_lost_or_moved_is_noticed(path: Path, change: str) -> None:
    fill(path, *ENTRIES)
    tamper(path, change)

    complaint(path)


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE snapshot SET payload = x'00' WHERE seq = 2",
        "DELETE FROM snapshot WHERE seq = 1",
        "DELETE FROM snapshot WHERE seq = 3",
        "DELETE FROM snapshot",
        "UPDATE base SET last = 2",
        "UPDATE base SET first = 2",
        "UPDATE base SET seq = 3",
        "UPDATE base SET checksum = zeroblob(16)",
        "UPDATE base SET digest = zeroblob(16)",
        "UPDATE base SET seq = 'one'",
        "DELETE FROM base",
    ],
)
def test_a_snapshot_that_was_changed_is_noticed(path: Path, change: str) -> None:
    with hosted(path) as host:
        host.journal.append("job", b"x")
        host.compact(b"a", b"b", b"c")
        host.journal.append("job", b"y")
    tamper(path, change)

    complaint(path)


def test_damage_long_before_the_end_is_found_when_it_is_read(path: Path) -> None:
    fill(path, *(b"%d" % n for n in range(TAIL_ROWS + 20)))
    tamper(path, "UPDATE entries SET payload = x'00' WHERE seq = 7")
    read: list[bytes] = []

    with (
        closing(Journal.open(path)) as journal,
        pytest.raises(StoreError, match="row 7 of"),
    ):
        read += (row.payload for row in journal.rows())

    assert read == [b"%d" % n for n in range(6)]


def test_damage_near_the_end_is_found_when_it_is_opened(path: Path) -> None:
    fill(path, *(b"%d" % n for n in range(TAIL_ROWS + 20)))
    tamper(path, f"UPDATE entries SET payload = x'00' WHERE seq = {TAIL_ROWS}")

    with pytest.raises(StoreError, match=f"row {TAIL_ROWS} of"):
        Journal.open(path)


def test_pages_full_of_nonsense_are_noticed(path: Path) -> None:
    fill(path, *(bytes([n]) * 3_000 for n in range(100)))
    data = bytearray(path.read_bytes())
    data[40_000:44_000] = Random(1).randbytes(4_000)
    path.write_bytes(data)

    complaint(path)


# The log that is written ahead.


def copy_while_open(path: Path, count: int) -> Path:
    """Return a copy of a journal, as a crash right after the last sync leaves it."""
    copy = path.with_name("copy.db")
    with hosted(path) as host:
        for n in range(1, count + 1):
            host.journal.append("job", b"%d " % n * 300)
            host.sync()
        for end in ("", "-wal"):
            shutil.copy(f"{path}{end}", f"{copy}{end}")
    return copy


def numbers(path: Path) -> list[int]:
    return [int(payload.split()[0]) for payload in payloads(path)]


def test_a_log_that_is_whole_gives_all_entries(path: Path) -> None:
    copy = copy_while_open(path, 20)

    assert numbers(copy) == list(range(1, 21))


@pytest.mark.parametrize("seed", range(30))
def test_a_torn_log_gives_a_prefix(path: Path, seed: int) -> None:
    copy = copy_while_open(path, 20)
    log = copy.with_name("copy.db-wal")
    data = bytearray(log.read_bytes())
    rng = Random(seed)
    at = rng.randrange(len(data))
    if seed % 2:
        del data[at:]
    else:
        data[at] ^= 1 << rng.randrange(8)
    log.write_bytes(data)

    found = numbers(copy)

    assert found == list(range(1, len(found) + 1))
    assert numbers(copy) == found
    if at > len(data) * 0.6:
        assert found


@pytest.mark.parametrize("seed", range(40))
def test_a_flip_in_the_head_of_a_page_is_noticed_or_harmless(
    path: Path, seed: int
) -> None:
    fill(path, *(b"%d " % n * 300 for n in range(1, 21)))
    data = bytearray(path.read_bytes())
    rng = Random(seed)
    # The heads of pages, where one bit can hide any number of rows.
    page, byte = rng.randrange(len(data) // 4_096), rng.randrange(40)
    data[page * 4_096 + byte] ^= 1 << rng.randrange(8)
    path.write_bytes(data)

    try:
        found = numbers(path)
    except StoreError:
        return
    assert found == list(range(1, 21))
