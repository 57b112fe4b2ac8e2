"""A worker that answers calls of functions with whatever it likes."""

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

from shoal.drivers import Promises, RunOrder, Stream, Watcher
from shoal.drivers.python import LaneDesk, LaneEnd, LaneLine
from shoal.drivers.supervisor.visit_line import VisitLine
from shoal.errors import ShoalError
from shoal.model.ids import Attempt
from shoal.protocol import call_items
from shoal.protocol.messages import Outcome

Answers = Callable[[int], list[bytes]]
"""What is said to a call of this number, in items."""


class HostileLine:
    """Plays the interpreter."""

    def __init__(self, answers: Answers) -> None:
        self.end: LaneEnd | None = None
        self._answers = answers

    def write(self, items: Sequence[bytes]) -> None:
        """Answer each call at once."""
        assert self.end is not None
        for data in items:
            kind, number = call_items.head(data)
            if kind == call_items.CALL:
                self.end.said(self._answers(number))

    def pause(self, *, paused: bool) -> None:
        """Never mind."""

    def close(self) -> None:
        """Never mind."""


class HostileDriver:
    """Runs nothing; a real node has it in place of the driver of lanes."""

    name = "python"
    not_isolated: tuple[str, ...] = ()
    promises = Promises()

    def __init__(self, folder: Path, answers: Answers, desk: LaneDesk) -> None:
        self._desk = desk
        self._folder = folder
        self._answers = answers
        self._ended: dict[Attempt, asyncio.Event] = {}

    async def open(self) -> None:
        """Be ready."""

    def prepare(self, attempt: Attempt) -> Path:
        """Have one folder for all."""
        return self._folder

    def kept(self, attempt: Attempt, stream: Stream) -> Path:
        """Keep nothing."""
        return self._folder / stream

    async def run(self, order: RunOrder, watcher: Watcher) -> Outcome:
        """Come up as an interpreter does, and answer."""
        line = HostileLine(self._answers)
        line.end = self._desk.came(order, cast("LaneLine", cast("Any", line)))
        line.end.said([call_items.item(call_items.READY, 0)])
        ended = self._ended[order.attempt] = asyncio.Event()
        await ended.wait()
        line.end.ended()
        return Outcome("exited", exit_code=0)

    def stop(self, attempt: Attempt, grace_s: float) -> None:
        """Go."""
        self._ended[attempt].set()

    def visits(self, attempt: Attempt) -> VisitLine:
        """Let nobody in."""
        raise ShoalError("nobody may")

    async def clear(self, attempt: Attempt) -> None:
        """Have nothing to kill."""

    async def discard(self, *attempts: Attempt) -> None:
        """Keep nothing."""

    async def close(self) -> None:
        """Be gone."""
