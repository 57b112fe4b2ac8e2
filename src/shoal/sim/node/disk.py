"""Simulate one node's journal on a disk that may be slow and loses data in crashes.

This implements the promise of `core.events`: effects are performed strictly in order,
and effects after a durable record leave the node only once that record is safe.
Records written during a sync share the next one, as in a real group commit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Final, final

from shoal.core.durability.barrier import Barrier
from shoal.core.durability.journal import Entry
from shoal.core.events import Effect, Record
from shoal.sim.agenda import Agenda

SYNC_S: Final = (0.0005, 0.004)
SLOW_SYNC_S: Final = (0.2, 2.5)

Perform = Callable[[Effect], None]
Safe = Callable[[Sequence[Entry]], None]


@final
class Disk:
    """Entries in written order; the first `safe` of them survive a crash."""

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
        self._life = 0  # rises with each crash and voids earlier syncs

    def submit(self, effects: list[Effect]) -> None:
        """Perform `effects` in order, each once its records are safe."""
        for effect in effects:
            if type(effect) is Record:
                self._write(effect)
            elif not self._barrier.holds(effect):
                self._perform(effect)

    def crash(self) -> None:
        """Drop all waiting effects, and lose the unsynced end of the journal.

        Some unsynced entries may have reached the disk. The next entry is torn, which
        replay takes for the end of the journal.
        """
        kept = self._rng.randint(self.safe, len(self.entries))
        del self.entries[kept:]
        self._life += 1
        self._syncing = False
        self._barrier = Barrier(kept)
        self._declare_safe(kept)

    def compact(self, entries: list[Entry]) -> None:
        """Replace a stopped node's journal by an equivalent one."""
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
                return  # The effect crashed the node.
        if self._barrier.up and not self._syncing:
            self._sync()

    def _declare_safe(self, count: int) -> None:
        fresh = self.entries[self.safe : count]
        self.safe = count
        if fresh:
            self._on_safe(fresh)
