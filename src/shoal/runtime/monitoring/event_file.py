"""The latest events of a node on disk, so that they outlive it.

Events are lines of JSON, written a few at a time by a thread: what the last moment
before a crash brought may be missing, and the journal has what counts. Two files of at
most `FILE_BYTES_MAX` take turns.
"""

from __future__ import annotations

import asyncio
import json
import threading
import traceback
from collections import deque
from typing import TYPE_CHECKING, Final, cast, final

from shoal.model.ids import NodeId
from shoal.runtime.monitoring.logged_events import LoggedEvent, events_of

if TYPE_CHECKING:
    from pathlib import Path

    from shoal.runtime.monitoring.logged_events import KeptEvent

FILE_BYTES_MAX: Final = 4 << 20
PENDING_MAX: Final = 2_000
WRITE_S: Final = 0.5
"""How long events wait to be written together."""


@final
class EventFile:
    """Appends events to a file, and reads them back."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._older = path.with_suffix(".old")
        self._pending: deque[KeptEvent] = deque(maxlen=PENDING_MAX)
        self._writing: asyncio.Task[None] | None = None
        self._lock = threading.Lock()  # A write that was given up goes on.

    def read(self, most: int) -> list[LoggedEvent]:
        """Return the latest events that can be read, in order. Blocks."""
        lines: list[str] = []
        for path in (self._older, self._path):
            try:
                with path.open(encoding="utf-8", errors="replace") as file:
                    lines += file.read(2 * FILE_BYTES_MAX).splitlines()
            except OSError:
                continue
        found = (_event(line) for line in lines[-most:])
        return [event for event in found if event is not None]

    def add(self, event: KeptEvent) -> None:
        """Write an event soon."""
        self._pending.append(event)
        if self._writing is None or self._writing.done():
            self._writing = asyncio.get_running_loop().create_task(self._write_soon())

    async def close(self) -> None:
        """Write what is left."""
        if self._writing is not None:
            self._writing.cancel()
            await asyncio.gather(self._writing, return_exceptions=True)
        await asyncio.to_thread(self._write)

    async def _write_soon(self) -> None:
        while self._pending:
            await asyncio.sleep(WRITE_S)
            await asyncio.to_thread(self._write)

    def _write(self) -> None:
        """Write all pending events. A full disk loses them, and nothing else."""
        with self._lock:
            events = [self._pending.popleft() for _ in range(len(self._pending))]
            lines = [json.dumps(event) for kept in events for event in events_of(kept)]
            try:
                if self._path.exists() and self._path.stat().st_size > FILE_BYTES_MAX:
                    self._path.replace(self._older)
                with self._path.open("a", encoding="utf-8") as file:
                    file.writelines(f"{line}\n" for line in lines)
            except OSError as error:
                traceback.print_exception(error)  # to the node's log


def _event(line: str) -> LoggedEvent | None:
    try:
        number, at_s, what, text, job, task, node = cast("list[str]", json.loads(line))
        named = NodeId(node) if node else None
        return LoggedEvent(int(number), float(at_s), what, text, job, task, named)
    except (ValueError, TypeError):
        return None  # A crash cut it off.
