"""Whatever is in a folder or in a tree, nothing is lost and nothing gets out."""

import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.blobs import trees, unpacking
from shoal.blobs.packing import pack_workdir
from shoal.blobs.store import BlobStore
from shoal.blobs.trees import TreeEntry
from shoal.protocol.blob_hashing import name_of_bytes

NAMES = st.sampled_from(["a", "b", "c", "d.e", "ä", " x", "-", "*", "[z]", "..."])
PATHS = st.lists(NAMES, min_size=1, max_size=4).map("/".join)
HOSTILE = st.lists(
    st.one_of(NAMES, st.sampled_from(["..", ".", "", "\0", "/"])), max_size=5
).map("/".join)
EMPTY = name_of_bytes(b"")


@settings(max_examples=25, deadline=None)
@given(files=st.dictionaries(PATHS, st.binary(max_size=300), max_size=8))
def test_what_is_packed_is_unpacked_as_it_was(files: dict[str, bytes]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        store = BlobStore(root / "cache", 1 << 30)
        store.open()
        (root / "in").mkdir()
        (root / "out").mkdir()
        made: dict[str, bytes] = {}
        for path, data in files.items():
            target = root / "in" / path
            try:
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(data)
            except (FileExistsError, NotADirectoryError, IsADirectoryError):
                continue  # One name is a file and a folder at once.
            made[path] = data

        packed = pack_workdir(root / "in", store.put_file)
        tree = trees.decode(trees.encode(trees.make(b"", packed.entries)))
        assert isinstance(tree, trees.Tree)
        unpacking.unpack(store, tree, root / "out")

        found = {
            str(path.relative_to(root / "out")): path.read_bytes()
            for path in (root / "out").rglob("*")
            if path.is_file()
        }
        assert found == made


@settings(max_examples=120, deadline=None)
@given(
    entries=st.lists(
        st.one_of(
            st.builds(TreeEntry, HOSTILE, st.just("file"), st.just(EMPTY)),
            st.builds(TreeEntry, HOSTILE, st.just("link"), HOSTILE),
            st.builds(TreeEntry, HOSTILE, st.just("folder"), st.just("")),
        ),
        max_size=6,
    )
)
def test_no_tree_that_is_accepted_leads_out_of_its_folder(
    entries: list[TreeEntry],
) -> None:
    tree = trees.decode(trees.encode(trees.make(b"", entries)))
    if isinstance(tree, str):
        return
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder).resolve()
        store = BlobStore(root / "cache", 1 << 30)
        store.open()
        store.put(b"")
        inside = root / "x" / "work"
        inside.mkdir(parents=True)

        unpacking.unpack(store, tree, inside)

        assert [path.name for path in (root / "x").iterdir()] == ["work"]
        for path in inside.rglob("*"):
            assert path.resolve().is_relative_to(inside)


@settings(max_examples=120, deadline=None)
@given(data=st.binary(max_size=200))
def test_any_bytes_are_a_tree_or_a_reason(data: bytes) -> None:
    found = trees.decode(data)

    assert isinstance(found, str | trees.Tree)
