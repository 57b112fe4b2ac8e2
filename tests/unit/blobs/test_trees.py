import pytest

from shoal.blobs import trees
from shoal.blobs.trees import Tree, TreeEntry
from shoal.protocol.blob_hashing import name_of_bytes

BLOB = name_of_bytes(b"x")
SALT = b"s" * 16


def file(path: str) -> TreeEntry:
    return TreeEntry(path, "file", BLOB)


def link(path: str, to: str) -> TreeEntry:
    return TreeEntry(path, "link", to)


def read(*entries: TreeEntry) -> Tree | str:
    return trees.decode(trees.encode(trees.make(SALT, entries)))


def test_a_tree_is_the_same_for_any_order_of_its_entries() -> None:
    entries = [file("b"), file("a/c"), link("l", "a/c"), TreeEntry("e", "folder")]

    one = trees.make(SALT, entries)

    assert trees.encode(one) == trees.encode(trees.make(SALT, reversed(entries)))
    assert trees.decode(trees.encode(one)) == one
    assert one.files() == [BLOB]
    assert one.size() == 2


@pytest.mark.parametrize(
    "path",
    [
        "",
        "/etc/passwd",
        "..",
        "a/../b",
        "./a",
        "a//b",
        "a/",
        "a\x00b",
        "x" * 256,
        "/".join("a" * 65),
        "/".join(["a" * 200] * 20),
    ],
)
def test_a_path_that_is_not_plain_is_refused(path: str) -> None:
    assert isinstance(read(file(path)), str)


@pytest.mark.parametrize(
    ("path", "to"),
    [
        ("l", "/etc/passwd"),
        ("l", ".."),
        ("l", "../x"),
        ("a/l", "../../x"),
        ("l", ""),
        ("l", "a/../../x"),
        ("l", "a\0b"),
    ],
)
def test_a_link_that_leads_out_is_refused(path: str, to: str) -> None:
    assert isinstance(read(link(path, to), file("a/f")), str)


def test_links_that_lead_out_only_together_are_refused() -> None:
    # `up` is the root itself, so `up/..` is above it, though it looks harmless.
    assert isinstance(read(link("a/up", ".."), link("l", "a/up/../x")), str)
    assert isinstance(read(link("a", "b"), link("b", "a")), str)
    assert isinstance(read(link("d/a", "../c/b"), link("c/b", "../../x")), str)


def test_links_that_stay_inside_are_kept() -> None:
    found = read(
        file("a/f"),
        link("l", "a/f"),
        link("a/up", ".."),
        link("m", "a/up/l"),
        link("b/n", "../a/./f"),
        link("dangling", "not/there"),
    )

    assert isinstance(found, Tree)


def test_nothing_lies_below_a_file_or_a_link() -> None:
    assert isinstance(read(file("a"), file("a/b")), str)
    assert isinstance(read(link("a", "c"), file("a/b"), TreeEntry("c", "folder")), str)
    assert isinstance(read(TreeEntry("a", "folder"), file("a/b")), Tree)


def test_names_twice_or_out_of_order_are_refused() -> None:
    twice = Tree(trees.TREE_VERSION, SALT, (file("a"), file("a")))
    disorder = Tree(trees.TREE_VERSION, SALT, (file("b"), file("a")))

    assert isinstance(trees.decode(trees.encode(twice)), str)
    assert isinstance(trees.decode(trees.encode(disorder)), str)


def test_what_a_file_names_must_be_a_blob() -> None:
    assert isinstance(read(TreeEntry("a", "file", "../../etc/passwd")), str)
    assert isinstance(read(TreeEntry("a", "folder", BLOB)), str)


@pytest.mark.parametrize("data", [b"", b"nonsense", b"\x93\x01\xc4\x00\x91\x01"])
def test_bytes_that_are_no_tree_are_refused(data: bytes) -> None:
    assert isinstance(trees.decode(data), str)


def test_a_tree_of_another_version_is_refused_with_its_number() -> None:
    newer = Tree(7, SALT, ())

    assert trees.decode(trees.encode(newer)) == (
        "a tree of version 7; this node knows 1"
    )


def test_declared_sizes_have_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    huge = f"{'0' * 64}-{48 << 30}"
    entries = [TreeEntry(f"f{n:03}", "file", huge) for n in range(30)]

    assert "bytes; the most is" in str(read(*entries))
    monkeypatch.setattr(trees, "ENTRIES_MAX", 2)
    assert read(file("a"), file("b"), file("c")) == "3 entries; the most is 2"
