"""A folder as one blob: files by hash, links and empty folders.

A tree comes from a peer, so nothing in it is believed before `flaw` has found nothing:
no path or link of it leads out of the folder where it is unpacked. Its name cannot be
guessed, because there is a salt in it; who knows the name was told it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal

import msgspec

from shoal.model.ids import BlobId
from shoal.protocol.blob_hashing import size_of

if TYPE_CHECKING:
    from collections.abc import Iterable

TREE_VERSION: Final = 1
ENTRIES_MAX: Final = 100_000
TREE_BYTES_MAX: Final = 64 << 20
"""The list itself, not what it names."""

FILES_BYTES_MAX: Final = 1 << 40
PATH_BYTES_MAX: Final = 3_072
NAME_BYTES_MAX: Final = 255
DEPTH_MAX: Final = 64
LINKS_FOLLOWED_MAX: Final = 40
"""As many as Linux follows before it gives up."""

Kind = Literal["file", "program", "link", "folder"]


class TreeEntry(msgspec.Struct, frozen=True, array_like=True):
    """One thing in a folder. `to` is the blob of a file, or where a link leads."""

    path: str
    kind: Kind
    to: str = ""


class Tree(msgspec.Struct, frozen=True, array_like=True):
    """A folder; entries are in the order of their paths."""

    version: int
    salt: bytes
    entries: tuple[TreeEntry, ...]

    def files(self) -> list[BlobId]:
        """Return the blobs of all files, each once."""
        blobs = (BlobId(e.to) for e in self.entries if e.kind in ("file", "program"))
        return list(dict.fromkeys(blobs))

    def size(self) -> int:
        """Return how many bytes all files have together."""
        return sum(size_of(e.to) or 0 for e in self.entries if e.kind != "link")


_DECODER: Final = msgspec.msgpack.Decoder(Tree)


def make(salt: bytes, entries: Iterable[TreeEntry]) -> Tree:
    """Return the tree of these entries; the same for any order of them."""
    return Tree(TREE_VERSION, salt, tuple(sorted(entries, key=lambda e: e.path)))


def encode(tree: Tree) -> bytes:
    """Return the bytes of a tree."""
    return msgspec.msgpack.encode(tree)


def decode(data: bytes) -> Tree | str:
    """Decode a tree; return why not if it is invalid or unsafe to unpack."""
    if len(data) > TREE_BYTES_MAX:
        return f"a list of {len(data):,} bytes; the most is {TREE_BYTES_MAX:,}"
    try:
        tree = _DECODER.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        return f"not a tree: {error}"
    if tree.version != TREE_VERSION:
        return f"a tree of version {tree.version}; this node knows {TREE_VERSION}"
    reason = flaw(tree)
    return tree if reason is None else reason


def flaw(tree: Tree) -> str | None:
    """Say why a tree must not be unpacked; None if it may."""
    if len(tree.entries) > ENTRIES_MAX:
        return f"{len(tree.entries):,} entries; the most is {ENTRIES_MAX:,}"
    kinds: dict[str, TreeEntry] = {}
    last = ""
    for entry in tree.entries:
        if reason := path_flaw(entry.path) or _bad_target(entry):
            return f"entry '{_shown(entry.path)}': {reason}"
        if entry.path <= last:
            return f"entry '{_shown(entry.path)}' is twice there, or out of order"
        last = entry.path
        kinds[entry.path] = entry
    if tree.size() > FILES_BYTES_MAX:
        return f"{tree.size():,} bytes; the most is {FILES_BYTES_MAX:,}"
    for entry in tree.entries:
        for parent in _parents(entry.path):
            above = kinds.get(parent)
            if above is not None and above.kind != "folder":
                return f"entry '{_shown(entry.path)}' lies below a {above.kind}"
        if entry.kind == "link" and _leads_out(entry, kinds):
            return f"link '{_shown(entry.path)}' leads out"
    return None


def inside(path: str, target: str, kinds: dict[str, TreeEntry]) -> bool:
    """Whether a link at `path` stays among these entries, or would lead out."""
    return not _leads_out(TreeEntry(path, "link", target), kinds)


def path_flaw(path: str) -> str | None:
    """Say why nothing in a tree can have this path; None if it can."""
    names = path.split("/")
    if len(names) > DEPTH_MAX:
        return f"{len(names)} folders deep; the most is {DEPTH_MAX}"
    for name in names:
        if name in ("", ".", "..") or "\0" in name:
            return "not a plain path below the folder"
        if len(_bytes(name)) > NAME_BYTES_MAX:
            return f"a name of over {NAME_BYTES_MAX} bytes"
    if len(_bytes(path)) > PATH_BYTES_MAX:
        return f"a path of over {PATH_BYTES_MAX} bytes"
    return None


def _bad_target(entry: TreeEntry) -> str | None:
    match entry.kind:
        case "folder":
            return "a folder has no contents of its own" if entry.to else None
        case "link":
            bad = not entry.to or "\0" in entry.to or entry.to.startswith("/")
            long = len(_bytes(entry.to)) > PATH_BYTES_MAX
            return "a link that leads nowhere or out" if bad or long else None
        case _:
            return "not the name of a blob" if size_of(entry.to) is None else None


def _leads_out(link: TreeEntry, kinds: dict[str, TreeEntry]) -> bool:
    """Follow a link as the system would, through other links of the tree."""
    place = link.path.split("/")[:-1]
    todo = link.to.split("/")[::-1]
    followed = 1
    while todo:
        name = todo.pop()
        if name in ("", "."):
            continue
        if name == "..":
            if not place:
                return True
            place.pop()
            continue
        place.append(name)
        found = kinds.get("/".join(place))
        if found is not None and found.kind == "link":
            followed += 1
            if followed > LINKS_FOLLOWED_MAX:
                return True
            place.pop()
            todo += found.to.split("/")[::-1]
    return False


def _parents(path: str) -> Iterable[str]:
    at = path.rfind("/")
    while at > 0:
        yield path[:at]
        at = path.rfind("/", 0, at)


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _shown(text: str) -> str:
    return "".join(c if c.isprintable() else "?" for c in text[:80])
