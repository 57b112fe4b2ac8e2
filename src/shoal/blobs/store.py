"""The blob store on disk: bounded, least recently used blobs go first.

    ab/NAME           the bytes of a blob, whole
    ab/NAME.leaves    the hashes of its pieces, if there are several
    new/NAME          a blob that is being fetched; also after a crash
    new/RANDOM        a blob whose name is not known yet

What is read is verified, here or by the reader: a file that a crash or a bad disk
has changed is dropped, and fetched again. So writing needs no `fsync`; only what
somebody was promised is synced, by `sync`. What is held is never dropped. A blob in
part counts as if it was whole, and is the first to go when no fetch goes on with it.

All methods block, and may be called in any thread.
"""

from __future__ import annotations

import contextlib
import math
import os
import secrets
import threading
import time
from collections import OrderedDict
from pathlib import Path
from typing import TYPE_CHECKING, Final, final

from shoal.blobs import file_systems
from shoal.blobs.partials import Partials
from shoal.errors import ShoalError
from shoal.model.ids import BlobId
from shoal.protocol.blob_hashing import (
    HASH_BYTES,
    Hasher,
    counts,
    name_of_bytes,
    name_of_leaves,
    node_of,
    piece_hash,
    size_of,
)
from shoal.protocol.limits import PIECE_BYTES_MAX

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

PARTIAL_KEPT_S: Final = 3_600.0
"""A partly fetched blob that no fetch goes on with is dropped after this long."""

PARTIAL_SHARE: Final = 2
"""Of one peer, such a part of all the room may be under way at a time, or one blob."""

READ_BYTES: Final = 16 * PIECE_BYTES_MAX
PROVED_BYTES_MAX: Final = 16 << 20
"""Hashes that stay in memory, so that they need not be proved for every piece."""

GROW_BYTES: Final = 1 << 20
"""What a draft gets at a time that is larger than it was said to be."""

SYNCED_SINGLY_MAX: Final = 64
"""More blobs than these are synced by one call for the whole file system."""

LEAVES: Final = ".leaves"
NEW: Final = "new"


@final
class BlobStore:
    """The blobs of one node."""

    def __init__(self, root: Path, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.dropped = 0  # blobs whose bytes were not what they should be
        self.evicted = 0  # blobs that had to make room for others
        self._root, self._top = root, str(root)
        self._new = root / NEW
        self._lock = threading.RLock()
        self._sizes: OrderedDict[BlobId, int] = OrderedDict()  # least used first
        self._bytes = 0
        self._holders: dict[BlobId, set[str]] = {}
        self._held: dict[str, set[BlobId]] = {}
        self._proved: OrderedDict[BlobId, bytes] = OrderedDict()  # leaves, in memory
        self._proved_bytes = 0  # at most PROVED_BYTES_MAX, unless one is larger
        self._partials = Partials()
        self._synced: set[BlobId] = set()  # on disk for sure, since this life began
        self._removals = 0

    # What is here.

    def open(self) -> None:
        """Find what earlier lives left."""
        self._new.mkdir(mode=0o700, parents=True, exist_ok=True)
        found: list[tuple[float, BlobId, int]] = []
        for folder in self._root.iterdir():
            if len(folder.name) == 2:
                found += self._scan(folder)
        with self._lock:
            for _, blob, size in sorted(found):
                self._sizes[blob] = size
                self._bytes += size
        for path in self._new.iterdir():
            whole = size_of(path.name)
            if whole is None:
                path.unlink(missing_ok=True)
            else:
                touched = path.stat().st_mtime
                self._partials.add(path.name, whole, "", touched, busy=False)
        self.tend()

    def tend(self) -> None:
        """Drop partly fetched blobs that no fetch has gone on with for long."""
        with self._lock:
            for name in self._partials.left(time.time() - PARTIAL_KEPT_S):
                self._drop_partial(name)
            while self._bytes + self._partials.bytes > self.bytes_max:
                oldest = next(self._partials.left(math.inf), None)
                if oldest is None:
                    return
                self._drop_partial(oldest)

    def has(self, blob: BlobId) -> bool:
        """Whether a blob is here, as far as is known without reading it."""
        return blob in self._sizes

    def missing(self, blobs: Iterable[BlobId]) -> list[BlobId]:
        """Return the missing ones of some blobs, deduplicated."""
        with self._lock:
            return [b for b in dict.fromkeys(blobs) if b not in self._sizes]

    @property
    def used_bytes(self) -> int:
        """How much there is in all, with what is not whole yet."""
        return self._bytes + self._partials.bytes

    def __len__(self) -> int:
        return len(self._sizes)

    def _scan(self, folder: Path) -> Iterable[tuple[float, BlobId, int]]:
        leaves: dict[str, int] = {}
        whole: dict[str, os.stat_result] = {}
        for entry in os.scandir(folder):
            name, is_leaves, _ = entry.name.partition(LEAVES)
            if is_leaves:
                leaves[name] = entry.stat().st_size
            elif size_of(name) == entry.stat().st_size:
                whole[name] = entry.stat()
            else:
                Path(entry.path).unlink()
        for name, stat in whole.items():
            yield stat.st_mtime, BlobId(name), stat.st_size + leaves.get(name, 0)

    # Holding.

    def hold(self, holder: str, blobs: Iterable[BlobId]) -> None:
        """Keep blobs, here already or yet to come, until `holder` lets go of them."""
        with self._lock:
            held = self._held.setdefault(holder, set())
            for blob in blobs:
                held.add(blob)
                self._holders.setdefault(blob, set()).add(holder)

    def held(self, holder: str) -> tuple[int, int]:
        """Return how many blobs are held, and how many bytes they have."""
        with self._lock:
            blobs = self._held.get(holder, ())
            return len(blobs), sum(size_of(blob) or 0 for blob in blobs)

    def release(self, holder: str) -> None:
        """Release everything that `holder` held."""
        with self._lock:
            for blob in self._held.pop(holder, ()):
                self._let_go(holder, blob)

    def discard(self, holder: str) -> int:
        """Release what `holder` held, and drop what nobody else holds.

        Return how many bytes are free now.
        """
        with self._lock:
            blobs = list(self._held.get(holder, ()))
            self.release(holder)
            before = self._bytes
            for blob in blobs:
                if blob in self._sizes and blob not in self._holders:
                    self._drop(blob)
            return before - self._bytes

    def let_go(self, holder: str, blob: BlobId) -> None:
        """Let go of one blob, if `holder` held it."""
        with self._lock:
            held = self._held.get(holder, set())
            if blob in held:
                held.discard(blob)
                self._let_go(holder, blob)

    def _let_go(self, holder: str, blob: BlobId) -> None:
        holders = self._holders[blob]
        holders.discard(holder)
        if not holders:
            del self._holders[blob]

    def make_room(self, size: int) -> None:
        """Drop what was not used for the longest time, until `size` bytes fit.

        Partial blobs go first, if no fetch goes on with them.
        """
        with self._lock:
            most = self.bytes_max - size
            if self.used_bytes <= most:
                return
            for name in self._partials.left(math.inf):
                if self.used_bytes <= most:
                    return
                self._drop_partial(name)
            for blob in list(self._sizes):
                if self.used_bytes <= most:
                    return
                if blob not in self._holders:
                    self._drop(blob)
                    self.evicted += 1
            if self.used_bytes <= most:
                return
        raise ShoalError(
            f"the cache has no room for {size:,} bytes more",
            because=f"jobs that have not ended hold {self.used_bytes:,} of the "
            f"{self.bytes_max:,} bytes that it may have",
            hint="let some jobs end, or start the node with a larger --cache",
        )

    def _drop_partial(self, name: str) -> None:
        self._partials.drop(name)
        (self._new / name).unlink(missing_ok=True)

    # Reading. Everything read is verified.

    def read_piece(self, blob: BlobId, level: int, index: int) -> bytes | None:
        """Return one piece, or None if it is not here, or no longer what it was."""
        size = size_of(blob)
        if size is None or blob not in self._sizes or level >= len(counts(size)):
            return None
        try:
            leaves = self._leaves(blob, size)
            if level > 0:
                return node_of(size, leaves, level, index)
            if index >= counts(size)[0]:
                return None
            with self._path(blob).open("rb") as file:
                file.seek(index * PIECE_BYTES_MAX)
                data = file.read(PIECE_BYTES_MAX)
        except (OSError, _DamagedError):
            self.drop(blob)
            return None
        right = leaves[index * HASH_BYTES : (index + 1) * HASH_BYTES]
        if piece_hash(0, data) != right:
            self.dropped += 1
            self.drop(blob)
            return None
        self._touch(blob)
        return data

    def read(self, blob: BlobId) -> bytes | None:
        """Return a whole blob that is known to be small."""
        parts: list[bytes] = []
        return b"".join(parts) if self.copy(blob, parts.append) else None

    def read_at(self, blob: BlobId, offset: int, size: int) -> bytes | None:
        """Return some bytes as they are, for one who verifies; None if it is gone."""
        try:
            with self._path(blob).open("rb") as file:
                file.seek(offset)
                return file.read(size)
        except FileNotFoundError:
            self.drop(blob)
            return None

    def copy(self, blob: BlobId, write: Callable[[bytes], object]) -> bool:
        """Pass a whole blob on in parts; return False if it was not right.

        What was passed on is then worth nothing.
        """
        hasher = Hasher()
        try:
            file = os.open(self._text(blob), os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            self.drop(blob)
            return False
        try:
            at_once = min(READ_BYTES, (size_of(blob) or 0) + 1)
            while data := os.read(file, at_once):
                hasher.update(data)
                write(data)
            if hasher.name() != blob:
                self.dropped += 1
                self.drop(blob)
                return False
            self._touch(blob, file)
        finally:
            os.close(file)
        return True

    def _leaves(self, blob: BlobId, size: int) -> bytes:
        """Return the hashes of the pieces, proved by the name of the blob."""
        with self._lock:
            if (known := self._proved.get(blob)) is not None:
                self._proved.move_to_end(blob)
                return known
        if len(counts(size)) == 1:
            with self._path(blob).open("rb") as file:
                leaves = piece_hash(0, file.read(PIECE_BYTES_MAX))
        else:
            leaves = self._path(blob, LEAVES).read_bytes()
        if len(leaves) != counts(size)[0] * HASH_BYTES:
            raise _DamagedError
        if name_of_leaves(size, leaves) != blob:
            raise _DamagedError
        if len(counts(size)) > 1:
            self._remember(blob, leaves)
        return leaves

    def _remember(self, blob: BlobId, leaves: bytes) -> None:
        with self._lock:
            if blob not in self._proved:
                self._proved[blob] = leaves
                self._proved_bytes += len(leaves)
            while self._proved_bytes > PROVED_BYTES_MAX and len(self._proved) > 1:
                self._proved_bytes -= len(self._proved.popitem(last=False)[1])

    def _touch(self, blob: BlobId, file: int | None = None) -> None:
        """Note that a blob was used; `file` has it open, if anything does."""
        with self._lock:
            if blob in self._sizes:
                self._sizes.move_to_end(blob)
        with contextlib.suppress(OSError):
            os.utime(self._text(blob) if file is None else file)

    # Writing a blob whose bytes are at hand.

    def put(self, data: bytes) -> BlobId:
        """Keep bytes; return their name."""
        if self.has(name := name_of_bytes(data)):
            self._touch(name)
            return name
        draft = Draft(self, len(data))
        try:
            draft.write(data)
            return draft.finish()
        finally:
            draft.close()

    def put_file(self, descriptor: int, holder: str = "") -> BlobId:
        """Keep what can be read from an open file; return its name."""
        draft = Draft(self, os.fstat(descriptor).st_size)
        try:
            while data := os.read(descriptor, READ_BYTES):
                draft.write(data)
            return draft.finish(holder)
        finally:
            draft.close()

    def new_path(self, size: int) -> Path:
        """Return where a blob can be written whose name is not known yet."""
        name = secrets.token_hex(8)
        with self._lock:
            self.make_room(size)
            self._partials.add(name, size, "", time.time())
        return self._new / name

    def grow(self, path: Path, more: int) -> None:
        """Make room for a draft that is larger than it was said to be."""
        with self._lock:
            self.make_room(more)
            self._partials.grow(path.name, more)

    def forget(self, path: Path) -> None:
        """Remove a draft that is not finished."""
        with self._lock:
            self._drop_partial(path.name)

    def draft(self, size: int) -> Draft:
        """Begin a blob of about this size, whose bytes come in order."""
        return Draft(self, size)

    # Writing a blob whose name is known, in pieces that come in any order.

    def begin(self, blob: BlobId, whose: str = "") -> bool:
        """Make room for a blob; return whether some of it may be here already.

        Raises `ShoalError` if there is no room, or `whose` blobs take too much of it.
        """
        size = size_of(blob)
        assert size is not None
        path = self._new / blob
        with self._lock:
            self._refuse_greed(blob, size, whose)
            if blob in self._partials:
                self._partials.take_up(blob, whose, time.time())
            else:
                self.make_room(size)
                self._partials.add(blob, size, whose, time.time())
            was_here = path.exists()
            try:
                flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
                descriptor = os.open(path, flags, 0o600)
                try:
                    os.ftruncate(descriptor, size)
                finally:
                    os.close(descriptor)
            except OSError:
                self._drop_partial(blob)
                raise
        return was_here

    def _refuse_greed(self, blob: BlobId, size: int, whose: str) -> None:
        others = self._partials.bytes_of(whose, blob) if whose else 0
        most = self.bytes_max // PARTIAL_SHARE
        if others and others + size > most:
            raise ShoalError(
                f"{others:,} bytes of the same peer are under way already",
                because=f"one peer may have {most:,} bytes of this cache at a time",
                hint="wait until some of it is here",
            )

    def leave(self, blob: BlobId) -> None:
        """Note that no fetch goes on with a blob; what came of it stays for a while."""
        with self._lock:
            self._partials.leave(blob)

    def write(self, blob: BlobId, pieces: Iterable[tuple[int, bytes]]) -> None:
        """Write proved pieces of a blob that was begun."""
        with self._lock:
            self._partials.touch(blob, time.time())
        descriptor = os.open(self._new / blob, os.O_WRONLY | os.O_CLOEXEC)
        try:
            for index, data in pieces:
                os.pwrite(descriptor, data, index * PIECE_BYTES_MAX)
        finally:
            os.close(descriptor)

    def check(self, blob: BlobId, first: int, leaves: bytes) -> list[int]:
        """Return which pieces, from `first` on, an earlier life has written."""
        found: list[int] = []
        with (self._new / blob).open("rb") as file:
            file.seek(first * PIECE_BYTES_MAX)
            for place in range(len(leaves) // HASH_BYTES):
                data = file.read(PIECE_BYTES_MAX)
                right = leaves[place * HASH_BYTES : (place + 1) * HASH_BYTES]
                if piece_hash(0, data) == right:
                    found.append(first + place)
        return found

    def finish(self, blob: BlobId, leaves: bytes) -> None:
        """Take in a blob all of whose pieces were written."""
        self.settle(self._new / blob, blob, leaves)

    def abandon(self, blob: BlobId) -> None:
        """Forget what was fetched of a blob."""
        with self._lock:
            self._drop_partial(blob)

    # The end of both.

    def sync(self, blobs: Iterable[BlobId]) -> None:
        """Return when blobs are on disk: a promise of that is about to be made.

        Each is synced once in a life. Many are synced by one call for the whole file
        system: one call for each file makes a folder of 10,000 wait for seconds.
        """
        with self._lock:
            due = [blob for blob in dict.fromkeys(blobs) if blob not in self._synced]
            removals = self._removals
        if len(due) > SYNCED_SINGLY_MAX and file_systems.can_sync:
            for blob in due:
                os.stat(self._path(blob))  # noqa: PTH116 - Raises if it is gone.
            file_systems.sync(self._root)
        else:
            self._sync_singly(due)
        with self._lock:
            if removals == self._removals:  # Or one of them was removed and is back.
                self._synced.update(due)

    def _sync_singly(self, blobs: list[BlobId]) -> None:
        folders: dict[Path, None] = {}
        for blob in blobs:
            path = self._path(blob)
            _fsync(path)
            folders[path.parent] = None
            with contextlib.suppress(FileNotFoundError):
                _fsync(self._path(blob, LEAVES))
        for folder in folders:
            _fsync(folder)

    def drop(self, blob: BlobId) -> None:
        """Remove a blob even if it is held: it is of no use."""
        with self._lock:
            if blob in self._sizes:
                self._drop(blob)

    def _drop(self, blob: BlobId) -> None:
        self._bytes -= self._sizes.pop(blob)
        self._synced.discard(blob)
        self._removals += 1
        self._proved_bytes -= len(self._proved.pop(blob, b""))
        self._path(blob).unlink(missing_ok=True)
        self._path(blob, LEAVES).unlink(missing_ok=True)

    def settle(self, path: Path, blob: BlobId, leaves: bytes, holder: str = "") -> None:
        """Take a whole file in as a blob; for drafts."""
        size = size_of(blob)
        assert size is not None
        target = self._path(blob)
        extra = 0
        with self._lock:
            self._partials.drop(path.name)
            if holder:
                self.hold(holder, (blob,))
            if blob in self._sizes:
                self._sizes.move_to_end(blob)
                path.unlink(missing_ok=True)
                return
            target.parent.mkdir(mode=0o700, exist_ok=True)
            if len(counts(size)) > 1:
                extra = len(leaves)
                self._path(blob, LEAVES).write_bytes(leaves)
            path.replace(target)
            self._sizes[blob] = size + extra
            self._bytes += size + extra

    def _path(self, blob: BlobId, ending: str = "") -> Path:
        return self._root / blob[:2] / f"{blob}{ending}"

    def _text(self, blob: BlobId) -> str:
        """Return the path of a blob, faster: a tree has many thousands of them."""
        return f"{self._top}/{blob[:2]}/{blob}"


@final
class Draft:
    """A blob that is written from its beginning; `close` if it is not finished."""

    def __init__(self, store: BlobStore, size: int) -> None:
        self._store = store
        self._room = size
        self._path = store.new_path(size)
        self._hasher = Hasher()
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        self._file = open(os.open(self._path, flags, 0o600), "wb")  # noqa: PTH123, SIM115

    @property
    def size(self) -> int:
        """How many bytes were written."""
        return self._hasher.size

    def write(self, data: bytes) -> None:
        """Write what follows; raise `ShoalError` if there is no room for it."""
        self._hasher.update(data)
        if self._hasher.size > self._room:
            more = self._hasher.size + GROW_BYTES - self._room
            self._store.grow(self._path, more)
            self._room += more
        self._file.write(data)

    def finish(self, holder: str = "") -> BlobId:
        """Take the blob in; return its name. From now on `holder` holds it, if any."""
        self._file.close()
        leaves = self._hasher.leaves()
        blob = self._hasher.name()
        self._store.settle(self._path, blob, leaves, holder)
        return blob

    def close(self) -> None:
        """Forget what was written, if it was not finished."""
        self._file.close()
        self._store.forget(self._path)


class _DamagedError(Exception):
    """The hashes beside a blob are not its own."""


def _fsync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
