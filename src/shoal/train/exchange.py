"""How the tasks of one job reach each other: short messages, and files by content.

Whoever is addressed is named by its place in the job, such as `aggregate.0`. A message
may get lost, and whoever matters repeats it. A file is named by the hash of what is in
it, and is fetched from whoever has put it.

`FolderExchange` joins processes of one machine by a folder, without any node.
"""

from __future__ import annotations

import hashlib
import os
import time
from pathlib import Path
from typing import Final, Protocol, final

import msgspec

from shoal.errors import ShoalError

POLL_S: Final = 0.01
MESSAGE_BYTES_MAX: Final = 65_536


class Mail(msgspec.Struct, frozen=True):
    """A message, and who sent it."""

    sender: str
    data: bytes


@final
class ExchangeError(ShoalError):
    """Another task cannot be reached, or does not have what it was asked for."""


class Exchange(Protocol):
    """The way of one task to the others. All of it may be called by any thread."""

    name: str  # of this task, as others address it

    def send(self, to: str, data: bytes) -> None:
        """Send a message; whether it arrives is not known."""
        ...

    def receive(self, timeout_s: float) -> Mail | None:
        """Return the next message, or None if none comes in time."""
        ...

    def put(self, data: bytes) -> str:
        """Keep a file for others to fetch; return its name."""
        ...

    def get(self, file: str, holder: str) -> bytes:
        """Fetch a file that `holder` has put; raise `ExchangeError` if it cannot."""
        ...


@final
class FolderExchange:
    """Joins processes that see the same folder."""

    def __init__(self, folder: Path, name: str) -> None:
        self.name = name
        self.bytes_put = 0
        self._folder = folder
        self._inbox = folder / "mail" / name
        self._inbox.mkdir(parents=True, exist_ok=True)
        (folder / "files").mkdir(exist_ok=True)
        self._sent = 0

    def send(self, to: str, data: bytes) -> None:
        """Write a message into the folder of its receiver."""
        assert len(data) <= MESSAGE_BYTES_MAX
        inbox = self._folder / "mail" / to
        if not inbox.is_dir():
            return  # It has not come yet.
        self._sent += 1
        stamp = f"{time.monotonic_ns():020d}-{os.getpid()}-{self._sent}"
        draft = self._folder / "mail" / f".{stamp}"
        draft.write_bytes(self.name.encode() + b"\0" + data)
        draft.rename(inbox / stamp)

    def receive(self, timeout_s: float) -> Mail | None:
        """Look for messages again and again until the time is up."""
        until = time.monotonic() + timeout_s
        while True:
            for path in sorted(self._inbox.iterdir()):
                sender, _, data = path.read_bytes().partition(b"\0")
                path.unlink()
                return Mail(sender.decode(), data)
            if time.monotonic() >= until:
                return None
            time.sleep(POLL_S)

    def put(self, data: bytes) -> str:
        """Write a file, unless it is there."""
        name = hashlib.sha256(data).hexdigest()
        path = self._folder / "files" / name
        if not path.exists():
            draft = path.with_name(f".{name}-{os.getpid()}-{time.monotonic_ns()}")
            draft.write_bytes(data)
            draft.rename(path)
        self.bytes_put += len(data)
        return name

    def get(self, file: str, holder: str) -> bytes:
        """Read a file."""
        try:
            return (self._folder / "files" / file).read_bytes()
        except OSError as error:
            raise ExchangeError(
                f"{holder} has no file {file[:12]}", because=error.strerror or ""
            ) from error
