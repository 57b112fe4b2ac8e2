import os
from pathlib import Path

import pytest

from shoal.blobs import file_systems
from shoal.blobs.store import SYNCED_SINGLY_MAX, BlobStore
from shoal.errors import ShoalError
from shoal.model.ids import BlobId
from shoal.protocol import blob_hashing as hashing
from shoal.protocol.limits import PIECE_BYTES_MAX

BIG = os.urandom(3 * PIECE_BYTES_MAX + 5)


def opened(path: Path, bytes_max: int = 1 << 30) -> BlobStore:
    store = BlobStore(path / "cache", bytes_max)
    store.open()
    return store


def file_of(path: Path, blob: BlobId) -> Path:
    return path / "cache" / blob[:2] / blob


def test_what_was_put_is_there_after_a_restart(tmp_path: Path) -> None:
    store = opened(tmp_path)
    small, big = store.put(b"small"), store.put(BIG)

    again = opened(tmp_path)

    assert again.read(small) == b"small"
    assert again.read(big) == BIG
    assert again.used_bytes == store.used_bytes == 5 + len(BIG) + 4 * 32
    assert again.missing([big, BlobId("x"), small, BlobId("x")]) == [BlobId("x")]


def test_every_piece_can_be_read_by_itself(tmp_path: Path) -> None:
    store = opened(tmp_path)
    big = store.put(BIG)

    pieces = [store.read_piece(big, 0, index) for index in range(4)]

    assert b"".join(p for p in pieces if p) == BIG
    assert store.read_piece(big, 0, 4) is None
    assert len(store.read_piece(big, 1, 0) or b"") == 4 * 32
    assert store.read_piece(big, 2, 0) is None
    assert store.read_piece(BlobId("nonsense"), 0, 0) is None


@pytest.mark.parametrize("ending", ["", ".leaves"])
def test_a_file_that_changed_on_disk_is_never_given_out(
    tmp_path: Path, ending: str
) -> None:
    big = opened(tmp_path).put(BIG)
    path = Path(f"{file_of(tmp_path, big)}{ending}")
    data = bytearray(path.read_bytes())
    data[40] ^= 1
    path.write_bytes(data)

    store = opened(tmp_path)

    assert store.read_piece(big, 0, 0) is None
    assert not store.has(big), "it can be fetched again"
    assert not path.exists()


def test_a_changed_file_is_noticed_while_it_is_copied(tmp_path: Path) -> None:
    store = opened(tmp_path)
    big = store.put(BIG)
    file_of(tmp_path, big).write_bytes(BIG[::-1])

    assert store.read(big) is None
    assert not store.has(big)
    assert store.dropped == 1


def test_a_file_that_was_cut_by_a_crash_is_dropped_at_the_start(tmp_path: Path) -> None:
    big = opened(tmp_path).put(BIG)
    with file_of(tmp_path, big).open("r+b") as file:
        file.truncate(10)

    assert not opened(tmp_path).has(big)


def test_the_least_recently_used_go_first_and_never_what_is_held(
    tmp_path: Path,
) -> None:
    store = opened(tmp_path, bytes_max=400)
    old, held, used = (store.put(bytes([n]) * 100) for n in range(3))
    store.hold("job 1", [held])
    store.read(old)
    store.read(used)

    store.put(b"n" * 150)

    assert not store.has(old)
    assert store.has(held)
    assert store.has(used)


def test_a_store_that_is_full_of_held_blobs_says_so(tmp_path: Path) -> None:
    store = opened(tmp_path, bytes_max=100)
    blob = store.put(b"x" * 80)
    store.hold("job 1", [blob])
    store.hold("job 2", [blob])
    store.release("job 1")

    with pytest.raises(ShoalError, match="no room for 50 bytes"):
        store.put(b"y" * 50)

    store.release("job 2")
    store.put(b"y" * 50)
    assert not store.has(blob)


def test_a_fetch_goes_on_where_an_earlier_life_was_killed(tmp_path: Path) -> None:
    hasher = hashing.Hasher()
    hasher.update(BIG)
    leaves, big = hasher.leaves(), hasher.name()
    store = opened(tmp_path)
    assert store.begin(big) is False
    store.write(big, [(2, BIG[2 * PIECE_BYTES_MAX : 3 * PIECE_BYTES_MAX])])
    store.write(big, [(1, b"torn by a power cut")])

    again = opened(tmp_path)

    assert again.begin(big) is True
    assert again.check(big, 0, leaves) == [2]
    for index in (0, 1, 3):
        data = BIG[index * PIECE_BYTES_MAX : (index + 1) * PIECE_BYTES_MAX]
        again.write(big, [(index, data)])
    again.finish(big, leaves)
    assert again.read(big) == BIG


def test_drafts_of_an_earlier_life_are_dropped(tmp_path: Path) -> None:
    store = opened(tmp_path)
    draft = store.draft(10)
    draft.write(b"half")

    opened(tmp_path)

    assert list((tmp_path / "cache" / "new").iterdir()) == []
    draft.close()


def test_what_is_synced_is_what_was_put(tmp_path: Path) -> None:
    store = opened(tmp_path)
    blobs = [store.put(b"a"), store.put(BIG)]

    store.sync(blobs)

    with pytest.raises(FileNotFoundError):
        store.sync([hashing.name_of_bytes(b"never put")])


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of all files and folders that are synced, in order."""
    names: list[str] = []
    sync_one, sync_all = os.fsync, file_systems.sync

    def one(descriptor: int) -> None:
        names.append(Path(f"/proc/self/fd/{descriptor}").readlink().name)
        sync_one(descriptor)

    def everything(folder: Path) -> None:
        names.append("everything")
        sync_all(folder)

    monkeypatch.setattr(os, "fsync", one)
    monkeypatch.setattr(file_systems, "sync", everything)
    return names


def test_a_blob_is_synced_once_until_it_is_removed(
    tmp_path: Path, synced: list[str]
) -> None:
    store = opened(tmp_path)
    blob = store.put(b"code")

    store.sync([blob, blob])
    store.sync([blob])
    assert synced == [blob, blob[:2]]

    store.drop(blob)
    store.put(b"code")
    store.sync([blob])
    assert synced == [blob, blob[:2]] * 2


def test_many_blobs_are_synced_by_one_call(tmp_path: Path, synced: list[str]) -> None:
    store = opened(tmp_path)
    blobs = [store.put(b"%d" % number) for number in range(SYNCED_SINGLY_MAX + 1)]
    gone = [hashing.name_of_bytes(b"never put")]

    store.sync(blobs)
    store.sync(blobs)
    assert synced == ["everything"]

    with pytest.raises(FileNotFoundError):
        store.sync(blobs + gone)
    with pytest.raises(FileNotFoundError):
        opened(tmp_path).sync(blobs + gone)
