"""Blobs that are not whole yet count, make room first, and do not stay for ever."""

import os
import time
from pathlib import Path

import pytest

from shoal.blobs.store import PARTIAL_KEPT_S, BlobStore, Draft
from shoal.errors import ShoalError
from shoal.model.ids import BlobId

MIB = 1 << 20


def name(letter: str, size: int) -> BlobId:
    return BlobId(f"{letter * 64}-{size}")


def opened(root: Path, bytes_max: int = 10 * MIB) -> BlobStore:
    store = BlobStore(root / "cache", bytes_max)
    store.open()
    return store


def _fill(draft: Draft) -> None:
    for _ in range(20):
        draft.write(b"x" * MIB)


def files(root: Path) -> list[str]:
    return sorted(path.name[0] for path in (root / "cache" / "new").iterdir())


def test_what_is_under_way_counts_with_all_that_it_will_be(tmp_path: Path) -> None:
    store = opened(tmp_path)
    store.begin(name("a", 6 * MIB))

    assert store.used_bytes == 6 * MIB
    with pytest.raises(ShoalError, match="no room"):
        store.begin(name("b", 6 * MIB))
    assert files(tmp_path) == ["a"]


def test_what_nobody_goes_on_with_makes_room_before_what_is_whole(
    tmp_path: Path,
) -> None:
    store = opened(tmp_path)
    whole = store.put(b"x" * 4 * MIB)
    store.begin(name("a", 5 * MIB))
    store.leave(name("a", 5 * MIB))

    store.begin(name("b", 5 * MIB))

    assert store.has(whole)
    assert files(tmp_path) == ["b"]
    assert store.evicted == 0


def test_one_peer_does_not_take_all_the_room(tmp_path: Path) -> None:
    store = opened(tmp_path)
    store.begin(name("a", 3 * MIB), "eve")

    with pytest.raises(ShoalError, match="same peer"):
        store.begin(name("b", 3 * MIB), "eve")
    store.begin(name("c", 3 * MIB), "bob")
    store.leave(name("a", 3 * MIB))
    store.begin(name("d", 3 * MIB), "eve")

    assert files(tmp_path) == ["a", "c", "d"]


def test_one_blob_may_be_larger_than_the_share_of_a_peer(tmp_path: Path) -> None:
    opened(tmp_path).begin(name("a", 9 * MIB), "bob")

    assert files(tmp_path) == ["a"]


def test_what_is_left_for_long_is_dropped_while_the_node_lives_and_at_its_start(
    tmp_path: Path,
) -> None:
    store = opened(tmp_path)
    old = time.time() - PARTIAL_KEPT_S - 1
    for letter in "ab":
        store.begin(name(letter, MIB))
        store.leave(name(letter, MIB))
    store.tend()
    assert files(tmp_path) == ["a", "b"]

    store._partials.touch(name("a", MIB), old)
    store.tend()
    assert files(tmp_path) == ["b"]
    assert store.used_bytes == MIB

    os.utime(tmp_path / "cache" / "new" / name("b", MIB), (old, old))
    again = opened(tmp_path)
    assert files(tmp_path) == []
    assert again.used_bytes == 0


def test_what_earlier_lives_left_counts_and_stays_within_the_limit(
    tmp_path: Path,
) -> None:
    store = opened(tmp_path)
    for letter in "abc":
        store.begin(name(letter, 3 * MIB))

    again = opened(tmp_path, 7 * MIB)

    assert again.used_bytes <= 7 * MIB
    assert len(files(tmp_path)) == 2


def test_a_draft_that_is_larger_than_it_was_said_to_be_is_stopped_at_the_limit(
    tmp_path: Path,
) -> None:
    store = opened(tmp_path)
    draft = store.draft(1)
    with pytest.raises(ShoalError, match="no room"):
        _fill(draft)
    draft.close()

    assert store.used_bytes == 0
    assert files(tmp_path) == []
