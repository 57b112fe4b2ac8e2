"""A journal that is gone, or not what it was, is missed: none takes its place."""

import shutil
from contextlib import closing
from pathlib import Path

import pytest
from tests.unit.store.hosting import hosted

from shoal.errors import StoreError
from shoal.store.journal import Journal
from shoal.store.journal_mark import Begin, read_mark

NAMES = ("journal.db", "journal.db-wal", "acknowledged")


class Homes:
    """A journal as a node leaves it: closed, or as it is when the node is killed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder / "journal.db"
        self.mark = folder / "acknowledged"

    def write(self, *payloads: bytes, killed_into: "Homes | None" = None) -> None:
        with hosted(self.path, mark=self.mark) as host:
            for payload in payloads:
                host.journal.append("entry", payload)
                host.sync()
            if killed_into is not None:
                for name in NAMES:
                    shutil.copy(self.folder / name, killed_into.folder / name)

    def read(self, begin: Begin = "") -> list[bytes]:
        opened = Journal.open(self.path, mark=self.mark, begin=begin)
        with closing(opened) as journal:
            return [row.payload for row in journal.rows()]

    def refusal(self) -> StoreError:
        with pytest.raises(StoreError) as caught:
            self.read()
        assert "--journal new" in caught.value.hint
        return caught.value


@pytest.fixture
def home(tmp_path: Path) -> Homes:
    (tmp_path / "one").mkdir()
    return Homes(tmp_path / "one")


@pytest.fixture
def killed(home: Homes, tmp_path: Path) -> Homes:
    """A home whose node was killed: entries are in the log, not in the file."""
    (tmp_path / "two").mkdir()
    two = Homes(tmp_path / "two")
    home.write(b"a", b"b", b"c", killed_into=two)
    return two


def test_a_journal_that_is_as_it_was_opens_after_any_end(
    home: Homes, killed: Homes
) -> None:
    assert killed.read() == home.read() == [b"a", b"b", b"c"]
    assert killed.read() == [b"a", b"b", b"c"]


def test_a_journal_that_has_vanished_is_missed(home: Homes) -> None:
    home.write(b"a", b"b")
    home.path.unlink()

    error = home.refusal()

    assert error.kind == "missing"
    assert str(home.path) in error.what
    assert "2 entries" in error.because
    assert not home.path.exists()


def test_a_log_that_has_vanished_is_missed_and_can_be_put_back(killed: Homes) -> None:
    log = killed.folder / "journal.db-wal"
    saved = log.read_bytes()
    log.unlink()

    error = killed.refusal()
    log.write_bytes(saved)

    assert error.kind == "missing"
    assert "entry 3 was on disk" in error.because
    assert "journal.db-wal" in error.hint
    assert killed.read() == [b"a", b"b", b"c"]


def test_a_log_that_is_left_alone_is_not_thrown_away(killed: Homes) -> None:
    killed.path.unlink()
    killed.mark.unlink()

    error = killed.refusal()

    assert "is missing" in error.what
    assert (killed.folder / "journal.db-wal").stat().st_size > 0


def test_an_older_copy_in_its_place_is_noticed(home: Homes) -> None:
    home.write(b"a")
    copy = home.path.read_bytes()
    home.write(b"b")
    home.path.write_bytes(copy)

    assert "ends at entry 1, and entry 2 was on disk" in home.refusal().because
    assert home.read("old") == [b"a"]
    assert home.read() == [b"a"]


def test_another_journal_in_its_place_is_noticed(home: Homes, tmp_path: Path) -> None:
    (tmp_path / "two").mkdir()
    other = Homes(tmp_path / "two")
    home.write(b"a", b"b")
    other.write(b"x", b"y", b"z")
    shutil.copy(other.path, home.path)

    assert "is not the one that was written" in home.refusal().because


@pytest.mark.parametrize("size", [0, 10, 100, 5_000])
def test_a_journal_that_was_cut_is_never_taken_for_a_new_one(
    home: Homes, size: int
) -> None:
    home.write(b"a")
    with home.path.open("r+b") as file:
        file.truncate(size)

    assert home.refusal().kind in ("missing", "damaged", "foreign")


def test_a_folder_in_its_place_is_refused(home: Homes) -> None:
    home.write(b"a")
    home.path.unlink()
    home.path.mkdir()

    with pytest.raises(StoreError):
        home.read()


def test_who_says_so_starts_anew_and_what_was_left_stays_beside(killed: Homes) -> None:
    (killed.folder / "journal.db-wal").unlink()

    assert killed.read("new") == []
    assert killed.read() == []
    assert len(list(killed.folder.glob("journal.db.2*"))) == 1


def test_a_mark_that_makes_no_sense_is_no_alarm(home: Homes) -> None:
    home.write(b"a")
    home.mark.write_bytes(b"\xff{")

    assert home.read() == [b"a"]


def test_a_compacted_journal_is_as_far_as_it_was(home: Homes) -> None:
    with hosted(home.path, mark=home.mark) as host:
        for payload in (b"a", b"b", b"c"):
            host.journal.append("entry", payload)
        host.sync()
        host.compact(b"abc")
    found = read_mark(home.mark)

    assert found is not None
    assert found.seq == 3
    assert home.read() == [b"abc"]
