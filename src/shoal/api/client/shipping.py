"""The client's side of artifacts: upload folders, and download outputs.

Only blobs that the node lacks are sent. Downloads come from a node that may not be
trusted: each blob is verified by its name, which is a hash, and written so that no link
in the user's folder is followed and nothing lands outside it.
"""

from __future__ import annotations

import functools
import itertools
import os
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast

import msgspec

from shoal.api import shoal_pb2 as pb
from shoal.api.client.environment_files import read_project, read_requirements
from shoal.blobs import packing, safe_paths, trees
from shoal.errors import ShoalError
from shoal.model.caches import digest_of
from shoal.model.ids import BlobId
from shoal.model.spec.environments import from_words
from shoal.model.text.bounds import ID_LENGTH_MAX
from shoal.model.text.grammar import is_key, is_name
from shoal.model.text.texts import one_line
from shoal.model.units import parse_size
from shoal.protocol.blob_hashing import Hasher, name_of_bytes, size_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from shoal.api.client.client import Client

PART_BYTES: Final = 1 << 20
TREE: Final = "tree:"
LIMIT_VARIABLE: Final = "SHOAL_WORKDIR_MAX"


READING: Final = "reading the workdir"
UPLOADING: Final = "uploading"


def unheard(done: int, total: int) -> None:
    """Take how many bytes of how many have moved, and tell nobody."""


def unheard_step(step: str, done: int, total: int) -> None:
    """Take the same of a step, and tell nobody."""


class Shipped(msgspec.Struct, frozen=True):
    """The tree of an uploaded folder, and how much was sent."""

    tree: str
    files: int
    sent_files: int
    sent_bytes: int
    notes: tuple[str, ...] = ()


def ship(
    client: Client,
    folder: Path,
    outputs: Iterable[str] = (),
    moved: Callable[[str, int, int], None] = unheard_step,
) -> Shipped:
    """Upload a folder, except ignored files and outputs of earlier runs.

    `moved` is told the step, and how many bytes of how many have been read or have
    left. Returns its tree and counts.
    """
    reading = packing.Naming(functools.partial(moved, READING))
    packed = packing.pack_workdir(
        folder, reading.name, _bytes_max(), outputs, reading.expect
    )
    return _sent(client, folder, packed, moved)


def ship_paths(client: Client, folder: Path, patterns: Iterable[str]) -> Shipped:
    """Upload those files of a folder that patterns name, whatever else there is.

    The notes say what was named and cannot travel.
    """
    name = packing.Naming(functools.partial(unheard_step, READING)).name
    packed = packing.pack_outputs(folder, patterns, name, _bytes_max())
    return _sent(client, folder, packed, unheard_step)


def _bytes_max() -> int:
    limit = os.environ.get(LIMIT_VARIABLE)
    return parse_size(limit) if limit else packing.WORKDIR_BYTES_MAX


def _sent(
    client: Client,
    folder: Path,
    packed: packing.Packed,
    moved: Callable[[str, int, int], None],
) -> Shipped:
    paths: dict[BlobId, Path] = {}
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
        total = sum(size_of(blob) or 0 for blob in missing)
        sent = functools.partial(moved, UPLOADING)
        sent_bytes = client.put_blobs(_counted(parts, total, sent)).bytes
    return Shipped(
        tree=TREE + name,
        files=len(paths),
        sent_files=len(missing),
        sent_bytes=sent_bytes,
        notes=packed.notes,
    )


def ship_all(
    client: Client,
    spec: dict[str, object],
    moved: Callable[[str, int, int], None] = unheard_step,
) -> dict[str, Shipped]:
    """Upload every `workdir` of a spec and replace it, in place, by its tree.

    `moved` is told the step, and how many bytes of how many are done. Returns what was
    sent, by folder. Folders are relative to the current directory.
    """
    shipped: dict[str, Shipped] = {}
    steps = cast("dict[str, dict[str, object]]", spec.get("steps") or {})
    outputs = _outputs_by_folder(spec, steps)
    for place in (spec, *steps.values()):
        folder = place.get("workdir")
        if not isinstance(folder, str) or not folder or folder.startswith(TREE):
            continue
        if folder not in shipped:
            path = Path(folder).expanduser()
            shipped[folder] = ship(client, path, outputs.get(folder, ()), moved)
        place["workdir"] = shipped[folder].tree
    for place in (spec, *steps.values()):
        if (python := place.get("python")) is not None:
            place["python"] = _ship_environment(client, python)
    return shipped


def _ship_environment(client: Client, given: object) -> object:
    """Upload the files of an environment; return how a worker is told of it."""
    if isinstance(given, str):
        given = msgspec.to_builtins(from_words((given,)))
    if not isinstance(given, dict):
        return given  # The node says what is wrong with it.
    python = cast("dict[str, object]", given)
    requirements, project = python.get("requirements"), python.get("uv")
    if isinstance(requirements, str) and requirements:
        files = read_requirements(Path(requirements).expanduser())
    elif isinstance(project, str) and project:
        files = read_project(Path(project).expanduser())
    else:
        return python
    named = {name: name_of_bytes(data) for name, data in files.items()}
    salt = client.missing_blobs(named.values()).salt
    entries = [trees.TreeEntry(name, "file", blob) for name, blob in named.items()]
    listing = trees.encode(trees.make(salt, entries))
    tree = name_of_bytes(listing)
    contents = {named[name]: data for name, data in files.items()}
    client.put_blobs(_parts({}, {**contents, tree: listing}))
    rest = {k: v for k, v in python.items() if k not in ("requirements", "uv")}
    return {**rest, "files": TREE + tree, "digest": digest_of(files)}


def _outputs_by_folder(
    spec: dict[str, object], steps: dict[str, dict[str, object]]
) -> dict[object, list[str]]:
    """Return what is made in each workdir: by the job, or by any step of it."""
    found: dict[object, list[str]] = {}
    for place in (spec, *steps.values()):
        folder = place.get("workdir") or spec.get("workdir")
        named = place.get("outputs") or spec.get("outputs") or ()
        texts = (named,) if isinstance(named, str) else cast("list[object]", named)
        found.setdefault(folder, []).extend(str(text) for text in texts)
    return found


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
        for at in range(0, len(data) or 1, PART_BYTES):
            part = data[at : at + PART_BYTES]
            yield pb.BlobPart(blob="" if at else blob, data=part)


def _counted(
    parts: Iterator[pb.BlobPart], total: int, moved: Callable[[int, int], None]
) -> Iterator[pb.BlobPart]:
    """Pass parts on, and tell how far they are."""
    done = 0
    for part in parts:
        yield part
        done += len(part.data)
        moved(min(done, total), total)


# Outputs.


class PulledOutputs(msgspec.Struct, frozen=True):
    """The files written for one task."""

    task: str
    folder: str
    files: int
    bytes: int
    checkpoint: bool = False  # a checkpoint, as there are no outputs yet


def take_outputs(
    reply: pb.OutputsReply,
    client: Client,
    to: Path,
    moved: Callable[[int, int], None] = unheard,
    *,
    as_left: bool = False,
) -> list[PulledOutputs]:
    """Download the outputs of tasks into a folder; one subfolder each if several.

    A point of a sweep has its subfolder in any case, whichever others left something.
    `as_left`: all of them go to the same folder, at the paths that the tasks used.

    `moved` is told how many bytes of how many have come.
    The node may be untrusted: whatever it sends, nothing is written outside `to`.
    """
    names = _folder_names(list(reply.tasks))
    names = [""] * len(names) if as_left else names
    to.mkdir(parents=True, exist_ok=True)
    root = to.resolve()  # If it is a link, the user made it.
    taken: list[PulledOutputs] = []
    for kept, name in zip(reply.tasks, names, strict=True):
        tree = trees.decode(kept.tree)
        if isinstance(tree, str):
            raise ShoalError("the node sent no tree", because=one_line(tree))
        placed = tree.entries if as_left else _placed(tree, list(kept.patterns))
        entries = [_moved(entry, name) for entry in placed]
        with safe_paths.folder(root, name.split("/") if name else [], make=True):
            pass
        _write_all(client, root, entries, moved)
        size, checkpoint = tree.size(), kept.checkpoint
        folder = str(to / name) if name else str(to)
        taken.append(PulledOutputs(kept.task, folder, len(entries), size, checkpoint))
    return taken


def _folder_names(outputs: list[pb.TaskOutputs]) -> list[str]:
    """Return a subfolder name per task; raise if what the node sent makes none."""
    names = [_folder_name(kept) for kept in outputs]
    bad = [kept.task for kept in outputs if not _is_task(kept.task)]
    if is_apart := len(outputs) > 1 or any(kept.folder for kept in outputs):
        bad += [n for n in names if trees.path_flaw(n) or not is_name(n)]
    if bad or len({name.casefold() for name in names}) < len(names):
        which = one_line(bad[0][:80]) if bad else "two that are the same"
        raise ShoalError(
            "the node sent invalid names of tasks",
            because=f"it names '{which}'",
            hint="nothing was written; do not trust this node",
        )
    return names if is_apart else [""] * len(names)


def _is_task(task: str) -> bool:
    return is_key(task) and len(task) <= ID_LENGTH_MAX


def _folder_name(kept: pb.TaskOutputs) -> str:
    """Return where the outputs of one of several tasks go."""
    return kept.folder or kept.task.partition(".")[2]


def _placed(tree: trees.Tree, patterns: list[str]) -> list[trees.TreeEntry]:
    """Return entries at their destination; a single output folder is unwrapped.

    A link inside the work directory may point outside that folder; such links are
    dropped.
    """
    prefix = ""
    if len(patterns) == 1 and patterns[0].endswith("/"):
        prefix = patterns[0].removeprefix("./")
    entries = [
        trees.TreeEntry(entry.path[len(prefix) :], entry.kind, entry.to)
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


def _moved(entry: trees.TreeEntry, folder: str) -> trees.TreeEntry:
    path = f"{folder}/{entry.path}" if folder else entry.path
    return trees.TreeEntry(path, entry.kind, entry.to)


def _write_all(
    client: Client,
    folder: Path,
    entries: list[trees.TreeEntry],
    moved: Callable[[int, int], None],
) -> None:
    places: dict[str, list[trees.TreeEntry]] = {}
    for entry in entries:
        match entry.kind:
            case "file" | "program":
                places.setdefault(entry.to, []).append(entry)
            case "folder":
                with safe_paths.folder(folder, entry.path.split("/"), make=True):
                    pass
            case "link":
                pass  # Links come last.
    if places:
        _write_files(client, folder, places, moved)
    for entry in entries:
        if entry.kind == "link":
            safe_paths.link(folder, entry.path, entry.to)


def _write_files(
    client: Client,
    folder: Path,
    places: dict[str, list[trees.TreeEntry]],
    moved: Callable[[int, int], None],
) -> None:
    total = sum(size_of(blob) or 0 for blob in places)
    stream = _counted(client.get_blobs(list(places)), total, moved)
    for blob, parts in _blobs(stream):
        rest = places.pop(blob, None)
        if rest is None:
            raise ShoalError("the node sent a file that nobody asked for")
        _write_one(folder, rest[0], blob, parts)
        for other in rest[1:]:
            with safe_paths.opened(folder, rest[0].path) as source:
                _copy_one(folder, other, source)
    if places:
        missing = one_line(next(iter(places.values()))[0].path[:200])
        raise ShoalError(
            f"{len(places)} files did not arrive",
            because=f"'{missing}' is one of them",
            hint="try again: the node may have forgotten them",
        )


def _blobs(parts: Iterator[pb.BlobPart]) -> Iterator[tuple[str, Iterator[bytes]]]:
    """Group a stream of parts by blob; read each before taking the next."""
    current = ""

    def blob_of(part: pb.BlobPart) -> str:
        nonlocal current
        current = part.blob or current
        return current

    for blob, some in itertools.groupby(parts, blob_of):
        yield blob, (part.data for part in some)


def _write_one(
    folder: Path, entry: trees.TreeEntry, blob: str, parts: Iterable[bytes]
) -> None:
    most = size_of(blob) or 0

    def fill(descriptor: int) -> None:
        hasher = Hasher()
        for data in parts:
            hasher.update(data)
            if hasher.size > most:
                break  # Larger than its name says; may never end.
            safe_paths.write_all(descriptor, data)
        if hasher.size > most or hasher.name() != blob:
            raise ShoalError(
                f"'{one_line(entry.path[:200])}' arrived damaged",
                because="its bytes are not those of its name",
                hint="try again; if it stays so, the node's disk is damaged",
            )

    safe_paths.write(folder, entry.path, fill, _mode(entry))


def _copy_one(folder: Path, entry: trees.TreeEntry, source: int) -> None:
    def fill(descriptor: int) -> None:
        while data := os.read(source, PART_BYTES):
            safe_paths.write_all(descriptor, data)

    safe_paths.write(folder, entry.path, fill, _mode(entry))


def _mode(entry: trees.TreeEntry) -> int:
    is_program = entry.kind == "program"
    return safe_paths.PROGRAM_MODE if is_program else safe_paths.FILE_MODE
