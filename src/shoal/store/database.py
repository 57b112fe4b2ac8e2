"""Open, lock, check and migrate the SQLite file of a journal.

SQLite holds the lock, not a lock file of ours: the lock ends with the process that
holds it, even after a crash, and no child process inherits it. A `.pid` file next to
the journal only names the holder for error messages.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from shoal.errors import StoreError, StoreFault
from shoal.store.rows import EMPTY

APPLICATION_ID: Final = 0x73686F61  # "shoa", in the header of the file
BYTES_MAX: Final = 1 << 36
"""Size limit of a journal; beyond it, writes fail as if the disk were full."""

WAL_BYTES_KEPT: Final = 16 << 20

_OF_THE_DISK: Final = (
    "SQLITE_IOERR",
    "SQLITE_READONLY",
    "SQLITE_CANTOPEN",
    "SQLITE_PERM",
    "SQLITE_AUTH",
)

Step = tuple[str | tuple[str, tuple[object, ...]], ...]

_TABLE: Final = (
    "(seq INTEGER PRIMARY KEY, kind TEXT NOT NULL,"
    " checksum BLOB NOT NULL, payload BLOB NOT NULL)"
)
_BASE: Final = "(seq INTEGER, checksum BLOB, first INTEGER, last INTEGER, digest BLOB)"

STEPS: Final[tuple[Step, ...]] = (
    (
        f"PRAGMA application_id = {APPLICATION_ID}",
        f"CREATE TABLE entries {_TABLE}",
        f"CREATE TABLE snapshot {_TABLE}",
        f"CREATE TABLE base {_BASE}",
        ("INSERT INTO base VALUES (?, ?, ?, ?, ?)", EMPTY),
        "CREATE TABLE tail (seq INTEGER, checksum BLOB)",
        ("INSERT INTO tail VALUES (?, ?)", (EMPTY.seq, EMPTY.checksum)),
    ),
)
"""Step n turns a file of version n into one of version n + 1. Never edit a step."""


def connect(
    path: Path, *, bytes_max: int = BYTES_MAX, steps: Sequence[Step] = STEPS
) -> sqlite3.Connection:
    """Open the file exclusively, creating or migrating it as needed.

    Raises `StoreError` and leaves the file untouched if it is in use, written by a
    newer shoal, or not a journal.
    """
    _create(path)
    connection = sqlite3.connect(
        path, timeout=0.0, isolation_level=None, check_same_thread=False
    )
    try:
        connection.execute("PRAGMA locking_mode = EXCLUSIVE")
        version = _version(connection, path, len(steps))
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA secure_delete = OFF")
        # The writer checkpoints itself, so that it sees disk errors.
        connection.execute("PRAGMA wal_autocheckpoint = 0")
        connection.execute(f"PRAGMA journal_size_limit = {WAL_BYTES_KEPT}")
        [page_bytes] = connection.execute("PRAGMA page_size").fetchone()
        connection.execute(f"PRAGMA max_page_count = {bytes_max // page_bytes}")
        _migrate(connection, version, steps)
        # A crash may have left data only in the page cache: force it to disk.
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        _pid_file(path).write_text(f"{os.getpid()}\n", encoding="ascii")
    except (sqlite3.Error, OSError) as error:
        connection.close()
        raise explained(error, path) from error
    except StoreError:
        connection.close()
        raise
    return connection


def disconnect(connection: sqlite3.Connection, path: Path) -> None:
    """Close the file, so that another process may open it."""
    with suppress(OSError):  # The file only names the lock holder.
        _pid_file(path).unlink(missing_ok=True)
    connection.close()


def explained(error: sqlite3.Error | OSError, path: Path) -> StoreError:
    """Turn an SQLite or system error into a `StoreError` with a hint for the user."""
    name = getattr(error, "sqlite_errorname", "") or type(error).__name__
    because = f"{error} ({name})"
    if name.startswith("SQLITE_BUSY"):
        return _in_use(path)
    kind, hint = _meaning(name, isinstance(error, OSError))
    return StoreError(
        f"the journal {path} cannot be used", kind=kind, because=because, hint=hint
    )


def _meaning(name: str, of_system: bool) -> tuple[StoreFault, str]:
    if name == "SQLITE_FULL":
        return "disk", "make room on the disk, then start the node again"
    if of_system or name.startswith(_OF_THE_DISK):
        return "disk", "look at the disk and its rights, then start the node again"
    if name == "SQLITE_NOTADB":
        return (
            "foreign",
            "put the right file there, or begin by `shoal up --journal new`",
        )
    return "damaged", "put a copy in its place, or begin by `shoal up --journal new`"


def _create(path: Path) -> None:
    """Create the file if missing, readable by its owner only, and sync its folder."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        os.close(os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600))
        folder = os.open(path.parent, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    except OSError as error:
        raise explained(error, path) from error


def _version(connection: sqlite3.Connection, path: Path, newest: int) -> int:
    [version] = connection.execute("PRAGMA user_version").fetchone()
    [application] = connection.execute("PRAGMA application_id").fetchone()
    [tables] = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    if application != APPLICATION_ID and (version or tables):
        raise StoreError(
            f"{path} is no journal of shoal",
            kind="foreign",
            because=f"it is a database of application {application:#x}",
            hint="put the right file there, or begin by `shoal up --journal new`",
        )
    if version > newest:
        raise StoreError(
            f"the journal {path} is of version {version}",
            kind="newer",
            because=f"this shoal knows versions up to {newest}",
            hint="start the shoal that wrote it, or a newer one",
        )
    return int(version)


def _migrate(
    connection: sqlite3.Connection, version: int, steps: Sequence[Step]
) -> None:
    """Apply all missing migration steps in one transaction."""
    if version == len(steps):
        return
    connection.execute("BEGIN EXCLUSIVE")
    for step in steps[version:]:
        for statement in step:
            if isinstance(statement, str):
                connection.execute(statement)
            else:
                connection.execute(*statement)
    connection.execute(f"PRAGMA user_version = {len(steps)}")
    connection.execute("COMMIT")


def _in_use(path: Path) -> StoreError:
    holder = _holder(path)
    who = f"process {holder}" if holder else "another program"
    return StoreError(
        f"the journal {path} is in use",
        kind="in-use",
        because=f"{who} has it open",
        hint="stop that one first, or give this node a folder of its own",
    )


def _holder(path: Path) -> int | None:
    """Return the pid in the pid file if that process exists."""
    try:
        pid = int(_pid_file(path).read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return None
    except PermissionError:
        pass  # The process exists and belongs to another user.
    return pid


def _pid_file(path: Path) -> Path:
    return path.with_name(f"{path.name}.pid")
