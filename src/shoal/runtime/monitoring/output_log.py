"""Output and metrics of the tasks of this node's jobs.

Output is one file per attempt and stream. Pieces carry their offsets, so a duplicate is
written to the same place. When a piece came is kept beside it (`output_times`), and so
is why an attempt's output may lack lines.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import time
from collections import OrderedDict
from typing import TYPE_CHECKING, Final, final

from shoal.protocol.messages import Checkpoint, Output, Progress, Staging
from shoal.runtime.monitoring.metric_log import STREAM, MetricLog
from shoal.runtime.monitoring.output_times import (
    OutputTime,
    OutputTimes,
    path_of,
    read_times,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from shoal.core.events import DoubtOutput
    from shoal.model.ids import Attempt, JobId, TaskId
    from shoal.model.job import Task
    from shoal.protocol.messages import AnyMessage

OPEN_FILES_MAX: Final = 128
OUTPUT_FILE_BYTES_MAX: Final = 1 << 30
FIGURES_MAX: Final = 10_000
PARTS: Final = 3  # of the name of an output file: generation, sequence, stream
DOUBT: Final = "doubt"  # instead of a stream: why output may be missing
LOOK_BYTES: Final = 1 << 20
LEFT_BYTES: Final = 64 << 20
"""What output leaves of a disk, for the journal: this much, or a sixteenth of it."""


@final
class OutputLog:
    """Output and metrics on disk, the latest of them in memory, and their followers."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._open: OrderedDict[Path, int] = OrderedDict()
        self._figures: OrderedDict[TaskId, Progress] = OrderedDict()
        self._times = OutputTimes()
        self.metrics = MetricLog(self._metric_files)
        self._followers: dict[asyncio.Event, frozenset[TaskId]] = {}
        self._moving: OrderedDict[TaskId, str] = OrderedDict()  # code, data, outputs
        self._trouble: OrderedDict[TaskId, str] = OrderedDict()  # what was not kept
        self._unlooked = LOOK_BYTES  # written since the last look at the disk
        self._room = True
        self._made: OrderedDict[TaskId, str] = OrderedDict()
        self._staged: OrderedDict[TaskId, tuple[Attempt, int]] = OrderedDict()

    def show(self, task: Task, message: AnyMessage) -> None:
        """Store output or metrics of a live attempt."""
        match message:
            case Output():
                self._write(task.id, message)
            case Progress():
                self._note(task.id, message)
            case Staging():
                self._note_staging(task.id, message)
            case Checkpoint():
                pass  # Those who follow the task look for it.
            case _:
                return
        for event, followed in self._followers.items():
            if task.id in followed:
                event.set()

    def path(self, task: TaskId, attempt: Attempt, stream: str) -> Path:
        """Return the output file of an attempt, whether it exists or not."""
        name = f"{attempt.generation}.{attempt.sequence}.{stream}"
        return self._root / _file_name(task) / name

    def attempts(self, task: TaskId) -> list[tuple[int, int, str]]:
        """Return generation, sequence and stream of the kept output, oldest first.

        `DOUBT` instead of a stream says that some may be missing. Reads the disk.
        """
        folder = self._root / _file_name(task)
        try:
            names = [path.name.split(".") for path in folder.iterdir()]
        except FileNotFoundError:
            return []
        found = [(int(p[0]), int(p[1]), p[2]) for p in names if len(p) == PARTS]
        return sorted(found)

    def doubt(self, effect: DoubtOutput) -> None:
        """Note why the output of an attempt may lack lines, or that it does not."""
        path = self.path(effect.task, effect.attempt, DOUBT)
        if not effect.reason:
            path.unlink(missing_ok=True)
            return
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.write_text(effect.reason)

    def doubted(self, task: TaskId, attempt: Attempt) -> str:
        """Return why output of an attempt may be missing. Reads the disk."""
        try:
            return self.path(task, attempt, DOUBT).read_text()
        except FileNotFoundError:
            return ""  # It was dispelled just now.

    def times(self, task: TaskId, attempt: Attempt, stream: str) -> list[OutputTime]:
        """Return when the pieces of some output came, by offset. Reads the disk."""
        return read_times(path_of(self.path(task, attempt, stream)))

    def fraction(self, task: TaskId) -> float | None:
        """Return how far a task last said that it is, from 0 to 1."""
        told = self._figures.get(task)
        return None if told is None else told.fraction

    def moving(self, task: TaskId) -> str:
        """Return which transfer a task waits for; empty if none."""
        return self._moving.get(task, "")

    def made(self, task: TaskId) -> str:
        """Return what was made for a task before it started, and how long it took."""
        return self._made.get(task, "")

    def trouble(self, task: TaskId) -> str:
        """Return why some output of a task is missing; empty if none is."""
        return self._trouble.get(task, "")

    def note_pull(self, task: TaskId, fetched: int, total: int) -> None:
        """Note how much of a task's outputs has been fetched."""
        self._move(task, "fetching its outputs: ", fetched, total)

    def follow(self, *tasks: TaskId) -> asyncio.Event:
        """Return an event that is set whenever there is news of one of these tasks."""
        event = asyncio.Event()
        self._followers[event] = frozenset(tasks)
        return event

    def unfollow(self, event: asyncio.Event) -> None:
        """Remove a follower."""
        self._followers.pop(event, None)

    async def sweep(self, known: Callable[[], Iterable[JobId]]) -> None:
        """Remove the output of the tasks of forgotten jobs.

        The known jobs are read after the disk; otherwise a task that starts in
        between would lose its output.
        """
        there = await asyncio.to_thread(_names, self._root)
        await asyncio.to_thread(_sweep, self._root, there, known())

    def size_of(self, job: JobId) -> int:
        """Return how many bytes are kept of the tasks of a job. Reads the disk."""
        return sum(
            path.stat().st_size
            for name in _names(self._root)
            if _job_of(name) == _file_name(job)
            for path in (self._root / name).iterdir()
        )

    async def remove(self, job: JobId) -> None:
        """Delete the kept output of the tasks of a job."""
        of_job = _file_name(job)
        for path in [
            path for path in self._open if _job_of(path.parent.name) == of_job
        ]:
            os.close(self._open.pop(path))
        for known in (self._figures, self._moving, self._trouble, self._staged):
            for task in [task for task in known if task.partition(".")[0] == job]:
                known.pop(task, None)
        await asyncio.to_thread(_remove, self._root, of_job)

    def close(self) -> None:
        """Close all files."""
        for descriptor in self._open.values():
            os.close(descriptor)
        self._open.clear()

    def _note_staging(self, task: TaskId, staging: Staging) -> None:
        order = (staging.attempt, staging.seq)
        if order > self._staged.get(task, (staging.attempt, -1)):
            self._staged[task] = order
            if len(self._staged) > FIGURES_MAX:
                self._staged.popitem(last=False)
            if staging.made:
                self._made[task] = staging.made
                if len(self._made) > FIGURES_MAX:
                    self._made.popitem(last=False)
            fetched, total = staging.fetched_bytes, staging.total_bytes
            self._move(task, "fetching ", fetched, total, staging.note)

    def _move(
        self, task: TaskId, what: str, fetched: int, total: int, note: str = ""
    ) -> None:
        self._moving.pop(task, None)
        if fetched >= total and not note:
            return
        sizes = f"{what}{fetched / 1e6:.0f} of {total / 1e6:.0f} MB"
        self._moving[task] = note or sizes
        if len(self._moving) > FIGURES_MAX:
            self._moving.popitem(last=False)

    def _note(self, task: TaskId, progress: Progress) -> None:
        known = self._figures.get(task)
        if known is not None and _order(progress) <= _order(known):
            return
        self._figures[task] = progress
        if len(self._figures) > FIGURES_MAX:
            self._figures.popitem(last=False)

    def _write(self, task: TaskId, output: Output) -> None:
        """Store a piece, or note why not.

        A task's output must not fill the disk: the journal needs room.
        """
        if output.offset + len(output.data) > OUTPUT_FILE_BYTES_MAX:
            self._cut(task, f"over {OUTPUT_FILE_BYTES_MAX >> 30} GiB")
        elif not self._has_room(len(output.data)):
            self._cut(task, "the disk of the node is full")
        else:
            path = self.path(task, output.attempt, output.stream)
            try:
                os.pwrite(self._descriptor(path), output.data, output.offset)
                if output.stream != STREAM:
                    self._times.note(path, output.offset, time.time())
            except OSError as error:
                self._cut(task, error.strerror or str(error))
            else:
                if output.stream == STREAM:
                    self.metrics.take(task, output.attempt, output.offset, output.data)

    def _metric_files(self, task: TaskId) -> list[tuple[int, int, Path]]:
        """Return the files of a task's metrics, by attempt. Looks at the disk."""
        folder = self._root / _file_name(task)
        return [
            (generation, sequence, folder / f"{generation}.{sequence}.{stream}")
            for generation, sequence, stream in self.attempts(task)
            if stream == STREAM
        ]

    def replace(
        self,
        task: TaskId,
        attempt: Attempt,
        stream: str,
        copy: Callable[[Callable[[bytes], object]], bool],
    ) -> None:
        """Replace the received pieces with what `copy` writes. Blocks."""
        path = self.path(task, attempt, stream)
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with os.fdopen(descriptor, "wb") as file:
                copy(file.write)
        except OSError as error:
            self._cut(task, error.strerror or str(error))

    def _cut(self, task: TaskId, why: str) -> None:
        self.note_trouble(task, f"its output is cut: {why}")

    def note_trouble(self, task: TaskId, what: str) -> None:
        """Note what went wrong with a task's output."""
        self._trouble[task] = what
        if len(self._trouble) > FIGURES_MAX:
            self._trouble.popitem(last=False)

    def _has_room(self, size: int) -> bool:
        """Check the disk after each MiB, and every time while it is full."""
        self._unlooked += size
        if self._unlooked >= LOOK_BYTES or not self._room:
            self._unlooked = 0
            try:
                disk = os.statvfs(self._root)
            except FileNotFoundError:
                return True  # Nothing was written yet.
            free, total = disk.f_bavail * disk.f_frsize, disk.f_blocks * disk.f_frsize
            self._room = free > min(LEFT_BYTES, total // 16)
        return self._room

    def _descriptor(self, path: Path) -> int:
        found = self._open.get(path)
        if found is None:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            found = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
            self._open[path] = found
            if len(self._open) > OPEN_FILES_MAX:
                os.close(self._open.popitem(last=False)[1])
        self._open.move_to_end(path)
        return found


def _order(progress: Progress) -> tuple[Attempt, int]:
    return progress.attempt, progress.seq


def _file_name(task: str) -> str:
    """Return a file name that is safe for any id."""
    return "".join(c if c.isalnum() or c in "._-" else f"%{ord(c):x}" for c in task)


def _names(root: Path) -> list[str]:
    return [path.name for path in root.iterdir()] if root.exists() else []


def _job_of(name: str) -> str:
    """Return the first part of a file name: that of the job."""
    return name.partition(".")[0]


def _sweep(root: Path, names: Iterable[str], known: Iterable[JobId]) -> None:
    jobs = set(map(_file_name, known))
    for name in names:
        if _job_of(name) not in jobs:
            shutil.rmtree(root / name, ignore_errors=True)


def _remove(root: Path, job: str) -> None:
    for name in _names(root):
        if _job_of(name) == job:
            shutil.rmtree(root / name, ignore_errors=True)
