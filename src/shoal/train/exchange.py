"""Communication between the tasks of a job: short messages, and files by content.

A task is addressed by its place in the job, such as `aggregate.0`. Messages may get
lost, and senders repeat the ones that matter. A file is named by the hash of its
content, and is fetched from the task that has put it. Every byte that another node had
to send for this task is counted, by what it was.

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
import shutil
import threading
import time
from collections import Counter, deque
from pathlib import Path
from typing import Final, Literal, Protocol, final

import msgspec

from shoal import task_client
from shoal.errors import ShoalError

POLL_S: Final = 0.01
AGAIN_S: Final = 0.5
MAIL_BYTES_MAX: Final = 32_768
"""The most that the post of a shoal takes."""

CALLS_AT_ONCE: Final = 5
"""A worker hears eight connections of a task at a time; the others are for messages
that come in, metrics and checkpoints."""

TRIES: Final = 5
TIMEOUT_S: Final = 10.0
GET_S: Final = 600.0
LOST_S: Final = 3.0
"""How long to wait for a node that is gone. Whoever needs its file asks again, and by
then may know of another that has it."""

Kind = Literal[
    "contributions",
    "updates",
    "weights",
    "checkpoints",
    "inner",
    "outputs",
    "control",
]
"""What bytes are for: deltas of workers, outcomes of syncs, weights for newcomers,
the state for keepers, what loops keep, results, and messages."""


class TaskLetter(msgspec.Struct, frozen=True):
    """A message, and who sent it."""

    sender: str
    data: bytes


@final
class ExchangeError(ShoalError):
    """Another task cannot be reached, or does not have what it was asked for."""


class TaskMailbox(Protocol):
    """One task's messages to and from the others. Thread-safe."""

    name: str  # of this task, as others address it

    def send(self, to: str, data: bytes) -> None:
        """Send a message; whether it arrives is not known."""
        ...

    def receive(self, timeout_s: float) -> TaskLetter | None:
        """Return the next message, or None if none comes in time."""
        ...

    def has_ended(self, name: str) -> bool:
        """Whether a task is known to have ended for good."""
        ...


class Exchange(TaskMailbox, Protocol):
    """One task's messages and files to and from the others. Thread-safe."""

    node: str  # that this task runs on, once it has put a file; empty without nodes
    traffic: Counter[str]  # bytes by kind: files that came in, messages that went out

    def draft(self) -> Path:
        """Return where to write a file that is to be put, or got."""
        ...

    def put(self, path: Path) -> str:
        """Take a file over, for others to fetch; return its name."""
        ...

    def get(self, file: str, holder: str, kind: Kind) -> Path:
        """Fetch a file that `holder` has put, for the caller to remove.

        Raise `ExchangeError` if it cannot be had.
        """
        ...

    def forget(self, file: str) -> None:
        """Drop a file that was put here."""
        ...


@final
class FolderExchange:
    """Joins processes that see the same folder.

    What is fetched counts as sent, as if each process were on a node of its own.
    """

    def __init__(self, folder: Path, name: str) -> None:
        self.name = name
        self.node = ""
        self.traffic: Counter[str] = Counter()
        self._folder = folder
        self._inbox = folder / "mail" / name
        self._inbox.mkdir(parents=True, exist_ok=True)
        (folder / "files").mkdir(exist_ok=True)
        self._own = folder / "drafts" / name
        self._own.mkdir(parents=True, exist_ok=True)
        self._numbers = itertools.count()

    def send(self, to: str, data: bytes) -> None:
        """Write a message into the folder of its receiver."""
        assert len(data) <= MAIL_BYTES_MAX
        inbox = self._folder / "mail" / to
        if not inbox.is_dir():
            return  # It has not come yet.
        self.traffic["control"] += len(data)
        stamp = f"{time.monotonic_ns():020d}-{os.getpid()}-{next(self._numbers)}"
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

    def draft(self) -> Path:
        """Return a path in the exchange folder, for a file that is moved later."""
        return self._own / f"{os.getpid()}-{next(self._numbers)}"

    def put(self, path: Path) -> str:
        """Move a file into the exchange folder, under the hash of its content."""
        with path.open("rb") as file:
            name = hashlib.file_digest(file, "sha256").hexdigest()
        path.replace(self._folder / "files" / name)
        return name

    def get(self, file: str, holder: str, kind: Kind) -> Path:
        """Copy a file."""
        path = self.draft()
        try:
            shutil.copyfile(self._folder / "files" / file, path)
        except OSError as error:
            raise ExchangeError(
                f"{holder} has no file {file[:12]}", because=error.strerror or ""
            ) from error
        self.traffic[kind] += path.stat().st_size
        return path

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
        self.traffic: Counter[str] = Counter()
        self._folder = folder
        self._folder.mkdir(parents=True, exist_ok=True)
        self._numbers = itertools.count()
        self.node = ""
        self._calls = threading.BoundedSemaphore(CALLS_AT_ONCE)
        self._inbox: deque[TaskLetter] = deque()
        self._ended: set[str] = set()

    def send(self, to: str, data: bytes) -> None:
        """Give a message to the worker, which repeats it until it is taken.

        If the worker does not take it now, it is lost: repeat what matters.
        """
        assert len(data) <= MAIL_BYTES_MAX
        self.traffic["control"] += len(data)
        text = base64.b64encode(data).decode()
        with contextlib.suppress(ShoalError):
            self._ask({"call": "send", "to": to, "data": text}, TIMEOUT_S)

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

    def draft(self) -> Path:
        """Name a file below the work directory, where the worker reads it."""
        return self._folder / str(next(self._numbers))

    def put(self, path: Path) -> str:
        """Give a file to the worker; its name includes the node."""
        try:
            answer = self._ask({"call": "put", "path": _below(path)}, tries=TRIES)
        finally:
            path.unlink(missing_ok=True)
        self.node = str(answer["node"])
        return f"{answer['blob']}@{self.node}"

    def get(self, file: str, holder: str, kind: Kind) -> Path:
        """Let the worker fetch a file from the node in its name."""
        blob, _, node = file.partition("@")
        path = self.draft()
        call: dict[str, object] = {
            "call": "get",
            "blob": blob,
            "path": _below(path),
            "nodes": [node],
            "lost_s": LOST_S,
        }
        try:
            if not self.node:
                self._find_node()
            self._ask(call, GET_S)
            size = path.stat().st_size
        except (ShoalError, OSError) as error:
            path.unlink(missing_ok=True)
            raise ExchangeError(
                f"a file of {holder} cannot be fetched", because=str(error)
            ) from error
        if node != self.node:
            self.traffic[kind] += size
        self.forget(file)  # It stays with who has put it.
        return path

    def _ask(
        self,
        call: dict[str, object],
        timeout_s: float | None = None,
        *,
        tries: int = 1,
    ) -> dict[str, object]:
        """Ask the worker, with no more calls at once than it hears."""
        for left in reversed(range(tries)):
            try:
                with self._calls:
                    return task_client.ask(call, timeout_s)
            except ShoalError:
                if not left:
                    raise
            time.sleep(AGAIN_S)  # It may be busy for a moment.
        raise AssertionError("it was tried once at least")

    def _find_node(self) -> None:
        """Ask the worker for its name, which it tells with a file."""
        path = self.draft()
        path.write_bytes(b"")
        self.forget(self.put(path))

    def forget(self, file: str) -> None:
        """Let the worker remove a file."""
        with contextlib.suppress(ShoalError):
            self._ask({"call": "forget", "blob": file.partition("@")[0]}, TIMEOUT_S)

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
