"""Notes on disk of the tasks being handled, to be read after a crash.

A note survives the death of the process, but is not synced: after a power loss nobody
can say what the node died of. It stands while a task is being started and while its
results are collected, each for a short time at most. That is four writes for each task,
so the file is mapped: what is stored there is the kernel's, and takes no call.
"""

from __future__ import annotations

import asyncio
import mmap
import os
from typing import TYPE_CHECKING, Final, final

import msgspec

from shoal.core.durability.crash_suspects import CrashSuspects, Memory, Subject
from shoal.core.events import MessageReceived
from shoal.model.ids import Attempt
from shoal.runtime.membership.shoal_membership import write_private
from shoal.runtime.monitoring.change_signal import ChangeSignal

if TYPE_CHECKING:
    from collections.abc import Callable

    from shoal.core.durability.crash_suspects import SetAside, Stage
    from shoal.core.events import Event
    from shoal.model.ids import JobId, NodeId, TaskId
    from shoal.runtime.home import Home

GRACE_S: Final = 2.0
"""What the node survives for so long after a start or an end, it survives."""

NOTES_MAX: Final = 64
NOTE_BYTES: Final = 1_024
FILE_BYTES: Final = NOTES_MAX * NOTE_BYTES

_NOTES: Final = msgspec.json.Decoder(Subject)
_MEMORIES: Final = msgspec.json.Decoder(Memory)
_EMPTY: Final = b" " * (NOTE_BYTES - 1) + b"\n"


@final
class CrashNotes:
    """The tasks being handled now, and the jobs that killed the node."""

    def __init__(self, home: Home) -> None:
        """Read the notes of earlier runs."""
        self._memory = home.path / "suspects.json"
        path = home.path / "handling"
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        left = _subjects(os.pread(file, FILE_BYTES, 0))
        self._suspicion = CrashSuspects(self._remembered(), left)
        if left:
            self._remember()
        self._notes = _mapped(file)
        self._free = list(range(NOTES_MAX))[::-1]
        self._slots: dict[Subject, int] = {}
        self._news = ChangeSignal()
        self._dying = False

    @property
    def set_aside_now(self) -> list[SetAside]:
        """The jobs set aside after the last crash."""
        return self._suspicion.set_aside_now

    def refusal(self, scheduler: NodeId, job: JobId) -> str:
        """Return why a job is not handled here; empty if it is."""
        return self._suspicion.refusal(scheduler, job)

    async def begin(self, subject: Subject) -> None:
        """Note that a task is being handled, once it is its turn."""
        while not self._suspicion.may_begin(subject):
            await self._news.wait()
        self._suspicion.began(subject)
        if subject not in self._slots and self._free:
            data = msgspec.json.encode(subject)
            if len(data) < NOTE_BYTES:
                self._slots[subject] = slot = self._free.pop()
                self._write(slot, data.ljust(NOTE_BYTES - 1) + b"\n")

    def end(self, subject: Subject) -> None:
        """Note that the node survived handling it."""
        if self._dying:
            return  # What ends now ends with the node.
        slot = self._slots.pop(subject, None)
        if slot is not None:
            self._free.append(slot)
            self._write(slot, _EMPTY)
        if self._suspicion.passed(subject):
            self._remember()
            self._news.tell()

    def blame(self, subject: Subject | None) -> None:
        """Blame one task, or none, for the node's end."""
        if self._dying:
            return
        self._dying = True
        for slot in self._slots.values():
            self._write(slot, _EMPTY)
        if subject is not None:
            self._write(0, msgspec.json.encode(subject)[: NOTE_BYTES - 1] + b"\n")

    def close(self) -> None:
        """Close the file and keep its content."""
        self._dying = True
        if self._notes is not None:
            self._notes.close()
            self._notes = None

    def _write(self, slot: int, data: bytes) -> None:
        assert len(data) <= NOTE_BYTES
        if self._notes is not None:
            at = slot * NOTE_BYTES
            self._notes[at : at + len(data)] = data

    def _remembered(self) -> Memory:
        try:
            return _MEMORIES.decode(self._memory.read_bytes())
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
            return Memory()

    def _remember(self) -> None:
        try:
            write_private(self._memory, msgspec.json.encode(self._suspicion.memory))
        except OSError:
            return


@final
class Window:
    """Marks the stages in which one attempt is being handled."""

    def __init__(self, handling: CrashNotes, scheduler: NodeId, task: TaskId) -> None:
        self._handling = handling
        self._scheduler = scheduler
        self._task = task
        self._open: Subject | None = None
        self._timer: asyncio.TimerHandle | None = None

    async def open(self, stage: Stage) -> None:
        """Begin a stage; it ends by itself after a short time."""
        self.close()
        subject = Subject(self._scheduler, self._task, stage)
        await self._handling.begin(subject)
        self._open = subject
        self._timer = asyncio.get_running_loop().call_later(GRACE_S, self.close)

    def close(self) -> None:
        """End the open stage, if there is one."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._open is not None:
            subject, self._open = self._open, None
            self._handling.end(subject)


def subject_of(
    event: Event, task_of: Callable[[Attempt], TaskId | None]
) -> Subject | None:
    """Return the task that a fact is about, if it is about one."""
    attempt = getattr(event, "attempt", None)
    if isinstance(event, MessageReceived):
        attempt = getattr(event.message, "attempt", None)
    if not isinstance(attempt, Attempt):
        return None
    task = task_of(attempt)
    if task is None and isinstance(event, MessageReceived):
        task = getattr(getattr(event.message, "task", None), "id", None)
    return None if task is None else Subject(attempt.scheduler, task)


def _mapped(file: int) -> mmap.mmap | None:
    """Empty a file and map it; None if the disk has no room, and nothing is noted.

    A full disk is no reason to run nothing. All of the room is taken now: to store into
    a page that the disk has no room for would kill the process.
    """
    try:
        os.ftruncate(file, 0)
        os.posix_fallocate(file, 0, FILE_BYTES)
        return mmap.mmap(file, FILE_BYTES)
    except OSError:
        return None
    finally:
        os.close(file)


def _subjects(data: bytes) -> list[Subject]:
    found: list[Subject] = []
    for line in data.split(b"\n"):
        try:
            found.append(_NOTES.decode(line.strip(b" \0")))
        except (msgspec.MsgspecError, UnicodeDecodeError):
            continue
    return found
