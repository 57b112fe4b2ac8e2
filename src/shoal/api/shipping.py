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
from shoal.blobs.hashing import Hasher, name_of_bytes
from shoal.errors import ShoalError
from shoal.model.ids import BlobId
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
    """Write what tasks have left below a folder; those of several in folders each."""
    taken: list[Taken] = []
    for kept in reply.tasks:
        folder = to
        if len(reply.tasks) > 1:
            folder = to / kept.task.partition(".")[2]
        tree = trees.decode(kept.tree)
        if isinstance(tree, str):
            raise ShoalError("the node sent no tree", because=tree)
        entries = _placed(tree, list(kept.patterns))
        _write_all(client, folder, entries)
        size, checkpoint = tree.size(), kept.checkpoint
        taken.append(Taken(kept.task, str(folder), len(entries), size, checkpoint))
    return taken


def _placed(tree: trees.Tree, patterns: list[str]) -> list[trees.Entry]:
    """Return where everything goes: if one folder is kept, its contents, not itself."""
    prefix = ""
    if len(patterns) == 1 and patterns[0].endswith("/"):
        prefix = patterns[0].removeprefix("./")
    entries = [
        trees.Entry(entry.path[len(prefix) :], entry.kind, entry.to)
        for entry in tree.entries
        if entry.path.startswith(prefix)
    ]
    return entries if len(entries) == len(tree.entries) else list(tree.entries)


def _write_all(client: Client, folder: Path, entries: list[trees.Entry]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
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
    for blob, parts in _blobs(client.get_blobs(places)):
        rest = places[blob]
        _write_one(folder, rest[0], blob, parts)
        for other in rest[1:]:
            with beneath.opened(folder, rest[0].path) as source:
                _copy_one(folder, other, source)
    for entry in entries:
        if entry.kind == "link":
            _link(folder, entry)


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
    def fill(descriptor: int) -> None:
        hasher = Hasher()
        for data in parts:
            hasher.update(data)
            beneath.write_all(descriptor, data)
        if hasher.name() != blob:
            raise ShoalError(
                f"{entry.path} did not come as it was",
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
