"""Communication between the tasks of a job: short messages, and files by content.

A task is addressed by its place in the job, such as `aggregate.0`. Messages may get
lost, and senders repeat the ones that matter. A file is named by the hash of its
content, and is fetched from the task that has put it.

`TaskExchange` goes over the socket of a task to its worker, and from there over the
links of the shoal; the task itself needs no network. `FolderExchange` joins processes
of one machine by a folder, without any node.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import itertools
import os
import time
from collections import deque
from pathlib import Path
from typing import Final, Protocol, final

import msgspec

from shoal import task_client
from shoal.errors import ShoalError

POLL_S: Final = 0.01
MAIL_BYTES_MAX: Final = 32_768
"""The most that the post of a shoal takes."""

TIMEOUT_S: Final = 10.0
GET_S: Final = 600.0


class TaskLetter(msgspec.Struct, frozen=True):
    """A message, and who sent it."""

    sender: str
    data: bytes


@final
class ExchangeError(ShoalError):
    """Another task cannot be reached, or does not have what it was asked for."""


class Exchange(Protocol):
    """One task's connection to the others. Thread-safe."""

    name: str  # of this task, as others address it

    def send(self, to: str, data: bytes) -> None:
        """Send a message; whether it arrives is not known."""
        ...

    def receive(self, timeout_s: float) -> TaskLetter | None:
        """Return the next message, or None if none comes in time."""
        ...

    def put(self, data: bytes) -> str:
        """Keep a file for others to fetch; return its name."""
        ...

    def get(self, file: str, holder: str) -> bytes:
        """Fetch a file that `holder` has put; raise `ExchangeError` if it cannot."""
        ...

    def forget(self, file: str) -> None:
        """Drop a file that was put here."""
        ...

    def has_ended(self, name: str) -> bool:
        """Whether a task is known to have ended for good."""
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
        assert len(data) <= MAIL_BYTES_MAX
        inbox = self._folder / "mail" / to
        if not inbox.is_dir():
            return  # It has not come yet.
        self._sent += 1
        stamp = f"{time.monotonic_ns():020d}-{os.getpid()}-{self._sent}"
        draft = self._folder / "mail" / f".{stamp}"
        draft.write_bytes(self.name.encode() + b"\0" + data)
        draft.rename(inbox / stamp)

    def receive(self, timeout_s: float) -> TaskLetter | None:
        """Look for messages again and again until the time is up."""
        until = time.monotonic() + timeout_s
        while True:
            for path in sorted(self._inbox.iterdir()):
                sender, _, data = path.read_bytes().partition(b"\0")
                path.unlink()
                return TaskLetter(sender.decode(), data)
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

    def forget(self, file: str) -> None:
        """Do nothing: others may have put the same, and the folder is temporary."""

    def has_ended(self, name: str) -> bool:
        """Return False: a folder cannot tell."""
        return False


@final
class TaskExchange:
    """Joins tasks of one job, by the sockets that their workers give them."""

    def __init__(self, name: str, folder: Path) -> None:
        """Use `folder`, below the work directory, for files on their way."""
        self.name = name
        self._folder = folder
        self._folder.mkdir(parents=True, exist_ok=True)
        self._files = itertools.count()
        self._inbox: deque[TaskLetter] = deque()
        self._ended: set[str] = set()

    def send(self, to: str, data: bytes) -> None:
        """Give a message to the worker, which repeats it until it is taken.

        If the worker does not take it now, it is lost: repeat what matters.
        """
        assert len(data) <= MAIL_BYTES_MAX
        text = base64.b64encode(data).decode()
        with contextlib.suppress(ShoalError):
            task_client.ask({"call": "send", "to": to, "data": text}, TIMEOUT_S)

    def receive(self, timeout_s: float) -> TaskLetter | None:
        """Ask the worker for messages; it answers when one comes."""
        if self._inbox:
            return self._inbox.popleft()
        try:
            answer = task_client.ask(
                {"call": "receive", "wait_s": timeout_s}, timeout_s + TIMEOUT_S
            )
        except ShoalError:
            time.sleep(min(timeout_s, TIMEOUT_S))
            return None
        found = msgspec.convert(answer, _Received)
        self._ended.update(found.ended)
        self._inbox.extend(
            TaskLetter(each["from"], base64.b64decode(each["data"]))
            for each in found.mail
        )
        return self._inbox.popleft() if self._inbox else None

    def put(self, data: bytes) -> str:
        """Give a file to the worker; its name includes the node."""
        path = self._folder / f"put-{next(self._files)}"
        path.write_bytes(data)
        try:
            answer = task_client.ask({"call": "put", "path": _below(path)})
        finally:
            path.unlink(missing_ok=True)
        return f"{answer['blob']}@{answer['node']}"

    def get(self, file: str, holder: str) -> bytes:
        """Let the worker fetch a file from the node in its name."""
        blob, _, node = file.partition("@")
        path = self._folder / f"got-{next(self._files)}"
        call: dict[str, object] = {
            "call": "get",
            "blob": blob,
            "path": _below(path),
            "nodes": [node],
        }
        try:
            task_client.ask(call, GET_S)
            data = path.read_bytes()
        except (ShoalError, OSError) as error:
            raise ExchangeError(
                f"a file of {holder} cannot be fetched", because=str(error)
            ) from error
        finally:
            path.unlink(missing_ok=True)
        self.forget(file)
        return data

    def forget(self, file: str) -> None:
        """Let the worker remove a file."""
        with contextlib.suppress(ShoalError):
            task_client.forget(file.partition("@")[0])

    def has_ended(self, name: str) -> bool:
        """Whether the scheduler said that a task has ended for good."""
        return name in self._ended


class _Received(msgspec.Struct):
    """What a worker answers to `receive`."""

    mail: list[dict[str, str]]
    ended: list[str]


def _below(path: Path) -> str:
    """Return a path as seen from the work directory, in which tasks begin."""
    return str(path.relative_to(Path.cwd()))
