"""The audit log on disk: append-only files that record who did what on this node.

The files are in `audit/`, mode 0600, each named after its first entry. Commands and the
node both write: the writer holds a lock and finds the end of the chain. A full disk
does not stop the node: entries that could not be written are counted, and the count is
written as soon as possible.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, final

import msgspec

from shoal.core.durability.audit_chain import (
    FIRST,
    LASTING,
    LINE_BYTES_MAX,
    AuditEntry,
    AuditThrottle,
    hash_of,
    line_of,
    read,
)

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Generator, Iterable, Iterator

    from shoal.protocol.messages import Grant, Revocation
    from shoal.runtime.home import Home

FILE_BYTES_MAX: Final = 4 << 20
FILES_MAX: Final = 16
"""64 MiB in all; the oldest file goes first."""

SOON_S: Final = 1.0
"""How long an entry may wait for the disk, if it changes no rights."""

SUFFIX: Final = ".jsonl"
_DIGITS: Final = 16


class _End(NamedTuple):
    """Where the chain ends on disk."""

    path: Path
    size: int
    n: int
    head: str


@final
class AuditLog:
    """Writes entries. It never raises: `trouble` says why it cannot write."""

    def __init__(
        self,
        home: Home,
        *,
        clock: Callable[[], float] = time.monotonic,
        say: Callable[[str], None] | None = None,
        file_bytes_max: int = FILE_BYTES_MAX,
        files_max: int = FILES_MAX,
    ) -> None:
        self.trouble = ""
        self.say: Callable[[str], None] = say or _say_nothing
        self._folder = home.audit
        self._clock = clock
        self._squeeze = AuditThrottle()
        self._file_bytes_max = file_bytes_max
        self._files_max = files_max
        self._end: _End | None = None
        self._lost = 0
        self._unsynced: Path | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timer: asyncio.TimerHandle | None = None

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Start to sync entries to disk periodically."""
        self._loop = loop

    def note(self, entry: AuditEntry) -> None:
        """Write an entry or count it; a change of rights is on disk on return."""
        self._note(entry)
        if self._loop is not None and self._timer is None:
            self._timer = self._loop.call_later(SOON_S, self._on_time, self._loop)

    def _note(self, entry: AuditEntry) -> None:
        now = self._clock()
        for held in self._squeeze.due(now):
            self._write(held)
        if (kept := self._squeeze.take(entry, now)) is not None:
            self._write(kept)
            if kept.what in LASTING:
                self.sync()

    def _on_time(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = None
        now = self._clock()
        for held in self._squeeze.due(now):
            self._write(held)
        loop.run_in_executor(None, self.sync)
        if (due := self._squeeze.next_deadline()) is not None:
            wait_s = max(SOON_S, due - now)
            self._timer = loop.call_later(wait_s, self._on_time, loop)

    def close(self) -> None:
        """Write all remaining counts."""
        self._loop = None
        if self._timer is not None:
            self._timer.cancel()
        for held in self._squeeze.rest():
            self._write(held)
        self.sync()

    def sync(self) -> None:
        """Sync written entries to disk."""
        if self._unsynced is None:
            return
        try:
            descriptor = os.open(self._unsynced, os.O_RDONLY | os.O_CLOEXEC)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
            self._unsynced = None
        except OSError as error:
            self._fail(error)

    def _write(self, entry: AuditEntry) -> None:
        try:
            with self._locked():
                if self._lost:
                    because = f"{self._lost} entries could not be written"
                    self._append(
                        AuditEntry(what="lost", because=because, count=self._lost)
                    )
                    self._lost = 0
                self._append(entry)
            self.trouble = ""
        except OSError as error:
            self._lost += entry.count
            self._fail(error)

    def _fail(self, error: OSError) -> None:
        because = error.strerror or str(error)
        if because != self.trouble:
            self.trouble = because
            self.say(f"the audit log cannot be written: {because}; the node goes on")

    @contextlib.contextmanager
    def _locked(self) -> Generator[None]:
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
        descriptor = os.open(self._folder / "lock", flags, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)

    def _append(self, entry: AuditEntry) -> None:
        end = self._found_end()
        if end is not None and end.size >= self._file_bytes_max:
            self._make_room()
        n, head = (0, FIRST) if end is None else (end.n, end.head)
        at_s = entry.at_s or time.time()
        whole = msgspec.structs.replace(entry, n=n + 1, at_s=at_s, prev=head)
        line = line_of(whole)
        assert len(line) <= LINE_BYTES_MAX
        is_new = end is None or end.size >= self._file_bytes_max
        path = self._path(n + 1) if end is None or is_new else end.path
        size = 0 if end is None or is_new else end.size
        _append(path, line, size)
        self._unsynced = path
        self._end = _End(path, size + len(line), n + 1, hash_of(line))

    def _found_end(self) -> _End | None:
        """Return where the chain ends; another process may have gone on with it."""
        known = self._end
        paths = files(self._folder)
        if not paths:
            return None
        if known is not None and known.path == paths[-1]:
            with contextlib.suppress(OSError):
                if known.path.stat().st_size == known.size:
                    return known
        return self._looked_up(paths)

    def _looked_up(self, paths: list[Path]) -> _End | None:
        """Read the last line; cut off one that a crash left unfinished."""
        for path in reversed(paths):
            size, line = _last_line(path)
            if path.stat().st_size > size:
                os.truncate(path, size)
            if not size:
                path.unlink()
            if (entry := read(line)) is not None:
                return _End(path, size, entry.n, hash_of(line))
            if line:  # No entry of ours, but whole: go on after it.
                n = max(int(each.stem) for each in paths)
                return _End(path, size, n + line.count(b"\n"), hash_of(line))
        return None

    def _make_room(self) -> None:
        for path in files(self._folder)[: -(self._files_max - 1) or None]:
            path.unlink(missing_ok=True)

    def _path(self, n: int) -> Path:
        return self._folder / f"{n:0{_DIGITS}}{SUFFIX}"


def note(home: Home, entry: AuditEntry) -> None:
    """Write one entry, for a command that asks no node."""
    AuditLog(home).note(entry)


def revoked(revocation: Revocation) -> AuditEntry:
    """Record a revocation: the node, and who revoked it."""
    because = f"up to serial {revocation.serial}"
    return AuditEntry(
        what="revoked",
        way="wire",
        node=revocation.signer,
        target=revocation.node,
        because=because,
    )


def let_in(grant: Grant, address: str, how: str) -> AuditEntry:
    """Record a new grant: for which node, and how it was admitted."""
    is_its_own = str(grant.owner) == str(grant.node)
    return AuditEntry(
        what="let-in",
        way="wire",
        node=grant.signer,
        address=address,
        target=grant.node,
        of="" if is_its_own else grant.owner,
        because=f"{how}, as {', '.join(grant.roles)}",
    )


def up(roles: Iterable[str], unconfined: Iterable[str]) -> AuditEntry:
    """Record that the node started, with its roles and missing confinement."""
    because = f"as {', '.join(roles)}"
    if weak := ", ".join(unconfined):
        because += f"; not confined: {weak}"
    return AuditEntry(what="up", way="command", uid=os.geteuid(), because=because)


def down() -> AuditEntry:
    """Record an orderly shutdown."""
    return AuditEntry(what="down", way="command")


def _say_nothing(text: str) -> None:
    """Do nothing."""


def files(folder: Path) -> list[Path]:
    """Return the files of an audit log, the oldest first."""
    names = [path for path in folder.glob(f"*{SUFFIX}") if path.stem.isdecimal()]
    return sorted(names, key=lambda path: int(path.stem))


def lines(home: Home) -> Iterator[bytes]:
    """Return the complete lines of an audit log, oldest first."""
    for path in files(home.audit):
        with contextlib.suppress(FileNotFoundError), path.open("rb") as file:
            for line in file:
                if line.endswith(b"\n"):
                    yield line


def _append(path: Path, line: bytes, size: int) -> None:
    """Append a line to a file, completely or not at all."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
    descriptor = os.open(path, flags, 0o600)
    try:
        if os.write(descriptor, line) != len(line):
            raise OSError(28, os.strerror(28))
    except OSError:
        os.ftruncate(descriptor, size)
        raise
    finally:
        os.close(descriptor)


def _last_line(path: Path) -> tuple[int, bytes]:
    """Return the length of a file's complete lines, and the last of them."""
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - 2 * LINE_BYTES_MAX))
        tail = file.read()
    whole = tail[: tail.rfind(b"\n") + 1]
    return size - len(tail) + len(whole), whole[whole.rstrip(b"\n").rfind(b"\n") + 1 :]
