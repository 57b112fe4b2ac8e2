"""The journal of one node on a disk that can be slow and that forgets in a crash.

This is where the simulator keeps the promise of `core.events`: effects are performed
strictly in order, and nothing that was returned after a durable record leaves the
node before that record is safe. Records that are written while an earlier sync runs
share the next one, as in a real group commit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Final, final

from shoal.core.barrier import Barrier
from shoal.core.events import Effect, Record
from shoal.core.journal import Entry
from shoal.sim.agenda import Agenda

SYNC_S: Final = (0.0005, 0.004)
SLOW_SYNC_S: Final = (0.2, 2.5)

Perform = Callable[[Effect], None]
Safe = Callable[[Sequence[Entry]], None]


@final
class Disk:
    """Entries in the order written; the first `safe` of them survive a crash."""

    def __init__(
        self, agenda: Agenda, rng: Random, perform: Perform, safe: Safe
    ) -> None:
        self.slow = False
        self.entries: list[Entry] = []
        self.safe = 0
        self._agenda = agenda
        self._rng = rng
        self._perform = perform
        self._on_safe = safe
        self._barrier = Barrier()
        self._syncing = False
        self._life = 0  # rises with every crash: syncs of an earlier life are void

    def submit(self, effects: list[Effect]) -> None:
        """Perform `effects` after all earlier ones, each when it may leave."""
        for effect in effects:
            if type(effect) is Record:
                self._write(effect)
            elif not self._barrier.holds(effect):
                self._perform(effect)

    def crash(self) -> None:
        """Lose every effect that waits, and a tail of what was not synced.

        Some of the tail may have reached the disk all the same. The entry after that
        is torn, which reading the journal takes for its end.
        """
        kept = self._rng.randint(self.safe, len(self.entries))
        del self.entries[kept:]
        self._life += 1
        self._syncing = False
        self._barrier = Barrier(kept)
        self._declare_safe(kept)

    def compact(self, entries: list[Entry]) -> None:
        """Replace the journal of a node that is down by one that says the same."""
        self.entries = entries
        self.safe = len(entries)
        self._barrier = Barrier(self.safe)

    def _write(self, record: Record) -> None:
        self.entries.append(record.entry)
        if record.durable:
            self._barrier.rise(len(self.entries), record.entry)
            if not self._syncing:
                self._sync()

    def _sync(self) -> None:
        self._syncing = True
        delay_s = self._rng.uniform(*(SLOW_SYNC_S if self.slow else SYNC_S))
        self._agenda.after(delay_s, self._synced, self._life, len(self.entries))

    def _synced(self, life: int, count: int) -> None:
        if life != self._life:
            return
        self._syncing = False
        self._declare_safe(count)
        for effect in self._barrier.synced(count):
            self._perform(effect)
            if life != self._life:
                return  # Performing it brought the node down.
        if self._barrier.up and not self._syncing:
            self._sync()

    def _declare_safe(self, count: int) -> None:
        fresh = self.entries[self.safe : count]
        self.safe = count
        if fresh:
            self._on_safe(fresh)
