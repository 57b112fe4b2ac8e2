"""Who is awaited, and who lacks something, one worker at a time.

An aggregator hears every worker every second, and decides after each message. If it
went through all workers then, a thousand of them would keep it busy with nothing else.
So its answers about each worker are kept here, and found anew for those of whom there
is news; for all of them only when what concerns all has changed, such as the open sync.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


class Judgement(msgspec.Struct, frozen=True):
    """What an aggregator asks about a worker."""

    takes_part: bool = False  # its contribution to the open sync is awaited or here
    is_missing: bool = False  # it is awaited
    cannot_follow: bool = False  # it needs all weights anew
    is_fresh: bool = False  # it lacks what other loops keep
    is_trained: bool = False  # it has what other loops lack


@final
class Attendance:
    """Names of workers by what is true of them, in no order."""

    def __init__(self, judge: Callable[[str], Judgement]) -> None:
        self.taking_part: dict[str, None] = {}
        self.missing: dict[str, None] = {}
        self.lacking: dict[str, None] = {}
        self.fresh: dict[str, None] = {}
        self.trained: dict[str, None] = {}
        self.version = 0  # rises when somebody comes, goes, or is no longer awaited
        self._judge = judge
        self._stale: dict[str, None] = {}
        self._common: tuple[object, ...] = ()

    def note(self, worker: str) -> None:
        """Note that there is news of a worker."""
        self._stale[worker] = None

    def refresh(self, workers: Iterable[str], common: tuple[object, ...]) -> None:
        """Bring all answers up to date; `common` is what concerns all workers."""
        stale: Iterable[str] = self._stale
        if common != self._common:
            self._common = common
            self.version += 1
            for table in self._tables():
                table.clear()
            stale = workers
        elif not self._stale:
            return
        for worker in stale:
            found = self._judge(worker)
            before = worker in self.taking_part, worker in self.missing
            if before != (found.takes_part, found.is_missing):
                self.version += 1
            answers = msgspec.structs.astuple(found)
            for table, is_in in zip(self._tables(), answers, strict=True):
                if is_in:
                    table[worker] = None
                else:
                    table.pop(worker, None)
        self._stale = {}

    def _tables(self) -> tuple[dict[str, None], ...]:
        """Return all tables, in the order of a judgement's answers."""
        return self.taking_part, self.missing, self.lacking, self.fresh, self.trained
