from pathlib import Path

from shoal.blobs import trees
from shoal.blobs.store import BlobStore
from shoal.blobs.trees import TreeEntry
from shoal.model.ids import BlobId, NodeId
from shoal.protocol.messages import BlobHeld, PeerAddress
from shoal.runtime.artifacts.blob_access import BlobAccess
from shoal.runtime.artifacts.tree_holders import TreeHolders

NOTHING = BlobId("")


def shelf_in(path: Path) -> tuple[BlobAccess, BlobStore]:
    store = BlobStore(path / "cache", 1 << 30)
    store.open()
    return BlobAccess(store), store


def test_a_tree_and_its_files_are_for_those_who_know_the_tree(tmp_path: Path) -> None:
    shelf, store = shelf_in(tmp_path)
    inside, outside = store.put(b"inside"), store.put(b"outside")
    made = trees.make(b"salt", [TreeEntry("a", "file", inside)])
    tree = store.put(trees.encode(made))
    first = ((0, 0),)

    assert shelf.pieces(tree, NOTHING, first) == [(0, 0, trees.encode(made))]
    assert shelf.pieces(inside, tree, first) == [(0, 0, b"inside")]
    refusal = "it is not in a tree that was named"
    assert shelf.pieces(inside, NOTHING, first) == refusal
    assert shelf.pieces(outside, tree, first) == refusal
    assert shelf.pieces(inside, outside, first) == refusal
    assert shelf.pieces(inside, BlobId("x" * 64), first) == refusal


def test_what_a_task_gave_out_is_for_all_who_know_its_name(tmp_path: Path) -> None:
    shelf, store = shelf_in(tmp_path)
    blob = store.put(b"tensor")

    shelf.give_out(blob)

    assert shelf.pieces(blob, NOTHING, ((0, 0),)) == [(0, 0, b"tensor")]
    assert isinstance(shelf.pieces(blob, NOTHING, ((0, 1),)), str)
    assert shelf.pieces(BlobId(f"{'0' * 64}-1"), NOTHING, ((0, 0),)) == (
        "it is not held here"
    )


def test_holders_are_told_to_others_and_not_to_themselves() -> None:
    holders = TreeHolders(lambda node: () if node == "hidden" else (f"/at/{node}",))
    tree = BlobId("t")
    for node in ("otter", "hidden", "heron"):
        holders.note(tree, NodeId(node))

    found = holders.besides(NodeId("heron"), tree)

    assert found == (PeerAddress(NodeId("otter"), ("/at/otter",)),)
    assert holders.besides(NodeId("x"), BlobId("other")) == ()


def test_only_whom_we_asked_may_name_others() -> None:
    holders = TreeHolders(lambda _node: ())
    tree, blob = BlobId("t"), BlobId("b")
    holders.fetching(tree, [NodeId("boss")])
    holders.wants(tree, blob)
    otter = PeerAddress(NodeId("otter"), ("/at/otter",))
    held = BlobHeld(blob=tree, holders=(otter,))

    assert holders.told(NodeId("stranger"), held) == {}
    assert holders.told(NodeId("boss"), held) == {otter: (blob,)}
    assert holders.told(NodeId("boss"), held) == {}, "no news"
    assert holders.hints(tree) == ("otter",)
    holders.fetched(tree)
    assert holders.hints(tree) == ()
