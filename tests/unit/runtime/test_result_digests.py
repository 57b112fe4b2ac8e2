"""What results are compared by."""

from pathlib import Path

import pytest

from shoal.blobs import trees
from shoal.blobs.store import BlobStore
from shoal.model.job import Verify
from shoal.protocol.messages import ALL_OUTPUTS, Outcome
from shoal.runtime.artifacts.blob_reader import BlobReader
from shoal.runtime.verification.result_digests import digest_of


@pytest.fixture
def store(tmp_path: Path) -> BlobStore:
    made = BlobStore(tmp_path / "cache", 1 << 20)
    made.open()
    return made


def digest(
    store: BlobStore,
    salt: bytes,
    verify: Verify | None = None,
    key: str = ALL_OUTPUTS,
    **files: bytes,
) -> str:
    entries = [
        trees.TreeEntry(name.replace("__", "/"), "file", store.put(data))
        for name, data in files.items()
    ]
    tree = store.put(trees.encode(trees.make(salt, entries)))
    outcome = Outcome("exited", exit_code=0, outputs={key: tree})
    return digest_of(BlobReader(store), outcome, verify or Verify())


def test_equal_outputs_of_two_nodes_have_one_digest(store: BlobStore) -> None:
    one = digest(store, b"salt", out__a=b"1", out__b=b"2")

    assert one == digest(store, b"other", out__b=b"2", out__a=b"1")
    assert one != digest(store, b"salt", out__a=b"1", out__b=b"3")
    assert one != digest(store, b"salt", out__a=b"1", out__c=b"2")
    assert one != digest(store, b"salt", out__a=b"1")


def test_one_path_is_compared_alone(store: BlobStore) -> None:
    loss = Verify(compare="out/loss")
    folder = Verify(compare="out/")

    same = digest(store, b"1", loss, out__loss=b"7", out__log=b"x", outer=b"a")
    assert same == digest(store, b"2", loss, out__loss=b"7", out__log=b"y", outer=b"b")
    assert digest(store, b"1", folder, out__loss=b"7", outer=b"a") == digest(
        store, b"2", folder, out__loss=b"7", outer=b"b"
    )


def test_nothing_has_no_digest(store: BlobStore) -> None:
    empty = Outcome("exited", exit_code=0)

    assert digest_of(BlobReader(store), empty, Verify()) == ""
    assert digest(store, b"1") == ""
    assert digest(store, b"1", out__a=b"") == ""
    assert digest(store, b"1", Verify(compare="b"), a=b"1") == ""
    assert digest(store, b"1", Verify(compare="stdout"), a=b"1") == ""


def test_stdout_is_a_tree_of_its_own(store: BlobStore) -> None:
    assert digest(store, b"1", Verify(compare="stdout"), "stdout", stdout=b"1") != ""


def test_what_is_not_here_has_no_digest(store: BlobStore) -> None:
    gone = Outcome("exited", exit_code=0, outputs={ALL_OUTPUTS: "0" * 64 + "-7"})

    assert digest_of(BlobReader(store), gone, Verify()) == ""
