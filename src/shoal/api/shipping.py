"""A client's side of cargo: send a folder to a node, and take outputs from it.

Only what the node does not have is sent. What comes back is verified by its name, and
written so that no link in the user's folder is followed.
"""

from __future__ import annotations

import itertools
import os
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast

import msgspec

from shoal.api import shoal_pb2 as pb
from shoal.blobs import beneath, packing, trees
from shoal.blobs.hashing import Hasher, name_of_bytes, size_of
from shoal.errors import ShoalError
from shoal.model.bounds import ID_LENGTH_MAX
from shoal.model.grammar import is_key
from shoal.model.ids import BlobId
from shoal.model.texts import one_line
from shoal.model.units import parse_size

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from shoal.api.client import Client

PART_BYTES: Final = 1 << 20
TREE: Final = "tree:"
LIMIT_VARIABLE: Final = "SHOAL_WORKDIR_MAX"


class Shipped(msgspec.Struct, frozen=True):
    """What was sent of a folder."""

    tree: str
    files: int
    total_bytes: int
    sent_files: int
    sent_bytes: int
    notes: tuple[str, ...] = ()


def ship(client: Client, folder: Path) -> Shipped:
    """Send a folder to a node, without what is ignored there; return its tree."""
    paths: dict[BlobId, Path] = {}
    limit = os.environ.get(LIMIT_VARIABLE)
    bytes_max = parse_size(limit) if limit else packing.WORKDIR_BYTES_MAX
    packed = packing.pack_workdir(folder, packing.name_only, bytes_max)
    for entry in packed.entries:
        if entry.kind in ("file", "program"):
            paths[BlobId(entry.to)] = folder / entry.path
    reply = client.missing_blobs(paths)
    tree = trees.make(reply.salt, packed.entries)
    listing = trees.encode(tree)
    name = name_of_bytes(listing)
    missing = {BlobId(blob): paths[BlobId(blob)] for blob in reply.missing}
    is_new = bool(client.missing_blobs([name]).missing)
    sent_bytes = 0
    if missing or is_new:
        parts = _parts(missing, {name: listing} if is_new else {})
        sent_bytes = client.put_blobs(parts).bytes
    return Shipped(
        tree=TREE + name,
        files=len(paths),
        total_bytes=tree.size(),
        sent_files=len(missing),
        sent_bytes=sent_bytes,
        notes=packed.notes,
    )


def ship_all(client: Client, spec: dict[str, object]) -> dict[str, Shipped]:
    """Send every folder that a spec names, and put the trees in its place.

    Returns what was sent, by folder. Folders are seen from where the user is.
    """
    shipped: dict[str, Shipped] = {}
    steps = cast("dict[str, dict[str, object]]", spec.get("steps") or {})
    for place in (spec, *steps.values()):
        folder = place.get("workdir")
        if not isinstance(folder, str) or not folder or folder.startswith(TREE):
            continue
        if folder not in shipped:
            shipped[folder] = ship(client, Path(folder).expanduser())
        place["workdir"] = shipped[folder].tree
    return shipped


def _parts(
    files: dict[BlobId, Path], listings: dict[BlobId, bytes]
) -> Iterator[pb.BlobPart]:
    for blob, path in files.items():
        with path.open("rb") as file:
            first: str = blob
            data = file.read(PART_BYTES)
            while data or first:
                yield pb.BlobPart(blob=first, data=data)
                first = ""
                data = file.read(PART_BYTES)
    for blob, data in listings.items():
        for at in range(0, len(data), PART_BYTES):
            part = data[at : at + PART_BYTES]
            yield pb.BlobPart(blob="" if at else blob, data=part)


# Outputs.


class Taken(msgspec.Struct, frozen=True):
    """What was written for one task."""

    task: str
    folder: str
    files: int
    bytes: int
    checkpoint: bool = False  # not its outputs: there are none yet


def take_outputs(reply: pb.OutputsReply, client: Client, to: Path) -> list[Taken]:
    """Write what tasks have left below a folder; those of several in folders each.

    The node may be somebody else's. Whatever it says, nothing is written outside.
    """
    names = _folder_names([kept.task for kept in reply.tasks])
    to.mkdir(parents=True, exist_ok=True)
    root = to.resolve()  # A link to it is the user's own.
    taken: list[Taken] = []
    for kept, name in zip(reply.tasks, names, strict=True):
        tree = trees.decode(kept.tree)
        if isinstance(tree, str):
            raise ShoalError("the node sent no tree", because=one_line(tree))
        entries = [_moved(e, name) for e in _placed(tree, list(kept.patterns))]
        with beneath.folder(root, [name] if name else [], make=True):
            pass
        _write_all(client, root, entries)
        size, checkpoint = tree.size(), kept.checkpoint
        folder = str(to / name) if name else str(to)
        taken.append(Taken(kept.task, folder, len(entries), size, checkpoint))
    return taken


def _folder_names(tasks: list[str]) -> list[str]:
    """Return a folder for each of several tasks; raise if their names are none."""
    names = [task.partition(".")[2] for task in tasks]
    bad = [task for task in tasks if not is_key(task) or len(task) > ID_LENGTH_MAX]
    if len(tasks) > 1:
        pairs = zip(tasks, names, strict=True)
        bad += [task for task, name in pairs if not name or not is_key(name)]
    if bad or len({name.casefold() for name in names}) < len(names):
        which = one_line(bad[0][:80]) if bad else "two that are the same"
        raise ShoalError(
            "the node names tasks that there cannot be",
            because=f"it names '{which}'",
            hint="nothing was written; do not trust this node",
        )
    return names if len(names) > 1 else [""] * len(names)


def _placed(tree: trees.Tree, patterns: list[str]) -> list[trees.Entry]:
    """Return where everything goes: if one folder is kept, its contents, not itself.

    A link that stayed below the work directory may lead out of that folder. Such ones
    are left out.
    """
    prefix = ""
    if len(patterns) == 1 and patterns[0].endswith("/"):
        prefix = patterns[0].removeprefix("./")
    entries = [
        trees.Entry(entry.path[len(prefix) :], entry.kind, entry.to)
        for entry in tree.entries
        if entry.path.startswith(prefix)
    ]
    if len(entries) < len(tree.entries) or any(not entry.path for entry in entries):
        return list(tree.entries)
    kinds = {entry.path: entry for entry in entries}
    return [
        entry
        for entry in entries
        if entry.kind != "link" or trees.inside(entry.path, entry.to, kinds)
    ]


def _moved(entry: trees.Entry, folder: str) -> trees.Entry:
    path = f"{folder}/{entry.path}" if folder else entry.path
    return trees.Entry(path, entry.kind, entry.to)


def _write_all(client: Client, folder: Path, entries: list[trees.Entry]) -> None:
    places: dict[str, list[trees.Entry]] = {}
    for entry in entries:
        match entry.kind:
            case "file" | "program":
                places.setdefault(entry.to, []).append(entry)
            case "folder":
                with beneath.folder(folder, entry.path.split("/"), make=True):
                    pass
            case "link":
                pass  # Links come last.
    if places:
        _write_files(client, folder, places)
    for entry in entries:
        if entry.kind == "link":
            _link(folder, entry)


def _write_files(
    client: Client, folder: Path, places: dict[str, list[trees.Entry]]
) -> None:
    for blob, parts in _blobs(client.get_blobs(list(places))):
        rest = places.pop(blob, None)
        if rest is None:
            raise ShoalError("the node sent a file that nobody asked for")
        _write_one(folder, rest[0], blob, parts)
        for other in rest[1:]:
            with beneath.opened(folder, rest[0].path) as source:
                _copy_one(folder, other, source)
    if places:
        missing = one_line(next(iter(places.values()))[0].path[:200])
        raise ShoalError(
            f"{len(places)} files did not come",
            because=f"'{missing}' is one of them",
            hint="try again: the node may have forgotten them",
        )


def _blobs(parts: Iterator[pb.BlobPart]) -> Iterator[tuple[str, Iterator[bytes]]]:
    """Cut a stream of parts into blobs; each must be used up before the next."""
    current = ""

    def blob_of(part: pb.BlobPart) -> str:
        nonlocal current
        current = part.blob or current
        return current

    for blob, some in itertools.groupby(parts, blob_of):
        yield blob, (part.data for part in some)


def _write_one(
    folder: Path, entry: trees.Entry, blob: str, parts: Iterable[bytes]
) -> None:
    most = size_of(blob) or 0

    def fill(descriptor: int) -> None:
        hasher = Hasher()
        for data in parts:
            hasher.update(data)
            if hasher.size > most:
                break  # It is not what it should be, and may never end.
            beneath.write_all(descriptor, data)
        if hasher.size > most or hasher.name() != blob:
            raise ShoalError(
                f"'{one_line(entry.path[:200])}' did not come as it was",
                because="its bytes are not those of its name",
                hint="try again; if it stays so, the node's disk is damaged",
            )

    beneath.write(folder, entry.path, fill, _mode(entry))


def _copy_one(folder: Path, entry: trees.Entry, source: int) -> None:
    def fill(descriptor: int) -> None:
        while data := os.read(source, PART_BYTES):
            beneath.write_all(descriptor, data)

    beneath.write(folder, entry.path, fill, _mode(entry))


def _link(folder: Path, entry: trees.Entry) -> None:
    names = entry.path.split("/")
    with beneath.folder(folder, names[:-1], make=True) as parent:
        try:
            os.symlink(entry.to, names[-1], dir_fd=parent)
        except FileExistsError:
            return  # What the user has there stays.


def _mode(entry: trees.Entry) -> int:
    is_program = entry.kind == "program"
    return beneath.PROGRAM_MODE if is_program else beneath.FILE_MODE
