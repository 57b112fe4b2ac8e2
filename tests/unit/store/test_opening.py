"""Opening a journal: what is refused, why, and what happens to the file."""

import os
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from tests.unit.store.hosting import fill, payloads, tamper

from shoal.errors import StoreError
from shoal.store import database
from shoal.store.journal import Journal


def refusal(path: Path) -> StoreError:
    with pytest.raises(StoreError) as raised:
        Journal.open(path)
    assert raised.value.hint
    return raised.value


def test_a_journal_is_open_only_once(path: Path) -> None:
    with closing(Journal.open(path)):
        error = refusal(path)

    assert error.kind == "in-use"
    assert str(error).endswith(f"process {os.getpid()} has it open")
    Journal.open(path).close()


def test_a_reader_of_the_file_who_is_no_node_is_not_named(path: Path) -> None:
    fill(path, b"x")
    with closing(sqlite3.connect(path)) as other:
        other.execute("BEGIN IMMEDIATE")
        error = refusal(path)

    assert str(error).endswith("another program has it open")


def test_a_journal_of_a_newer_shoal_is_refused_and_left_alone(path: Path) -> None:
    fill(path, b"x")
    tamper(path, "PRAGMA user_version = 99")
    before = path.read_bytes()

    error = refusal(path)

    assert error.kind == "newer"
    assert "version 99" in str(error)
    assert path.read_bytes() == before


def test_a_database_of_another_program_is_refused_and_left_alone(path: Path) -> None:
    tamper(path, "CREATE TABLE bookmarks (url TEXT)")
    before = path.read_bytes()

    assert refusal(path).kind == "foreign"
    assert path.read_bytes() == before


def test_a_file_that_is_no_database_is_refused_and_left_alone(path: Path) -> None:
    path.write_bytes(b"Dear diary, " * 100)

    assert refusal(path).kind == "foreign"
    assert path.read_bytes() == b"Dear diary, " * 100


def test_a_folder_that_cannot_be_made_is_an_error_of_the_disk(path: Path) -> None:
    path.write_bytes(b"")

    assert refusal(path / "journal.db").kind == "disk"


def test_an_older_journal_is_brought_up_to_date_with_all_it_holds(path: Path) -> None:
    fill(path, b"x", b"y")
    step: database.Step = (
        "ALTER TABLE base ADD COLUMN note TEXT",
        ("UPDATE base SET note = ?", ("new",)),
    )

    with closing(database.connect(path, steps=[*database.STEPS, step])) as connection:
        [version] = connection.execute("PRAGMA user_version").fetchone()
        [note] = connection.execute("SELECT note FROM base").fetchone()
        [rows] = connection.execute("SELECT count(*) FROM entries").fetchone()

    assert (version, note, rows) == (2, "new", 2)
    assert refusal(path).kind == "newer"


def test_a_step_that_fails_leaves_the_old_version(path: Path) -> None:
    fill(path, b"x")
    step: database.Step = ("DROP TABLE snapshot", "DROP TABLE no_such_table")

    with pytest.raises(StoreError):
        database.connect(path, steps=[*database.STEPS, step])

    assert payloads(path) == [b"x"]


def test_a_file_that_was_made_but_never_filled_is_an_empty_journal(path: Path) -> None:
    path.write_bytes(b"")

    assert payloads(path) == []


def test_only_its_owner_can_read_a_journal(path: Path) -> None:
    fill(path, b"x")

    assert path.stat().st_mode & 0o077 == 0
