"""What a node must remember of kept jobs through a crash.

Logs of jobs that others schedule, which of their files are here, the terms that it
promised, and which jobs are over or went to another scheduler; of these two it
remembers the latest `OVER_MAX`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar, final

import msgspec

from shoal.core.durability.journal import (
    Ceded,
    Entry,
    JobKept,
    KeptOver,
    Led,
    TreeHad,
    Vowed,
    decode,
)
from shoal.core.succession.belongings import trees_of
from shoal.model.ids import BlobId, JobId, NodeId

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from shoal.core.artifacts.events import TreeKind

OVER_MAX: Final = 1_000

T = TypeVar("T")


class TermLog(msgspec.Struct):
    """The log of one term; of its first `whole` entries all files are here."""

    entries: list[bytes] = []
    trees: list[dict[BlobId, TreeKind]] = []  # that each of them names
    whole: int = 0

    def add(self, entries: Iterable[bytes]) -> None:
        """Add entries at the end."""
        for entry in entries:
            self.entries.append(entry)
            self.trees.append(trees_of(decode(entry)))

    def look(self, held: dict[BlobId, None]) -> None:
        """See how far all files are here."""
        while self.whole < len(self.trees):
            if any(tree not in held for tree in self.trees[self.whole]):
                break
            self.whole += 1


class KeptLog(msgspec.Struct, kw_only=True):
    """The log of a job of another scheduler, and what of the next one has come."""

    term: int = 0
    leader: NodeId = NodeId("")
    members: tuple[NodeId, ...] = ()
    log: TermLog = msgspec.field(default_factory=TermLog)
    next_term: int = 0  # beyond `term` while the log of a new leader is incomplete
    next_base: int = 0
    next_log: TermLog = msgspec.field(default_factory=TermLog)
    held: dict[BlobId, None] = {}  # trees of it that are here
    forward: bool = False  # this node is to schedule it alone
    heard_at: float = 0.0

    @property
    def latest(self) -> int:
        """The highest term of a leader that was heard."""
        return max(self.term, self.next_term)

    def have(self, term: int) -> int:
        """Return how many entries of a term's log are here."""
        return len(self._of(term).entries)

    def lacking(self, term: int) -> int:
        """Return how many of these count for nothing yet, as files are missing."""
        log = self._of(term)
        return len(log.entries) - log.whole

    def missing(self) -> Iterator[tuple[BlobId, TreeKind]]:
        """Go through the trees that are not here, those of the first entries first."""
        for log in (self.log, self.next_log):
            for named in log.trees[log.whole :]:
                yield from (each for each in named.items() if each[0] not in self.held)

    @property
    def named(self) -> dict[BlobId, TreeKind]:
        """The trees of it that are here."""
        every = (*self.log.trees, *self.next_log.trees)
        return {t: kind for each in every for t, kind in each.items() if t in self.held}

    def take(self, entry: JobKept) -> None:
        """Add entries; a new log counts once it is whole."""
        self.leader, self.members = entry.leader, entry.members
        self.forward = entry.forward
        if entry.term == self.term:
            self.log.add(entry.entries)
            self.log.look(self.held)
            return
        if entry.term != self.next_term:
            self.next_term, self.next_log = entry.term, TermLog()
        self.next_base = entry.base
        self.next_log.add(entry.entries)
        self._look()

    def hold(self, tree: BlobId) -> None:
        """Note that a tree is here with all its files."""
        self.held[tree] = None
        self.log.look(self.held)
        self._look()

    def _look(self) -> None:
        self.next_log.look(self.held)
        if self.next_term and self.next_log.whole >= self.next_base:
            self.term, self.log = self.next_term, self.next_log
            self.next_term, self.next_log = 0, TermLog()

    def _of(self, term: int) -> TermLog:
        if term == self.term:
            return self.log
        return self.next_log if term == self.next_term else TermLog()


@final
class KeptJobs:
    """Logs, promises and ends; every change is a journal entry."""

    def __init__(self, journal: Iterable[Entry] = ()) -> None:
        """Replay the entries of earlier lives; others than its own are left out."""
        self.logs: dict[JobId, KeptLog] = {}
        self.vows: dict[JobId, Vowed] = {}
        self.over: dict[JobId, NodeId] = {}  # and who scheduled it to its end
        self.ceded: dict[JobId, Ceded] = {}
        for entry in journal:
            self.take(entry)

    def take(self, entry: Entry) -> None:
        """Note what an entry says."""
        match entry:
            case JobKept():
                self.logs.setdefault(entry.job, KeptLog()).take(entry)
            case TreeHad():
                if (log := self.logs.get(entry.job)) is not None:
                    log.hold(entry.tree)
            case Vowed():
                self.vows[entry.job] = entry
            case Led():
                self._forget(entry.job)
                self.ceded.pop(entry.job, None)
                if entry.alone:  # What is still said of its way here is old.
                    _remember(self.over, entry.job, NodeId(""))
            case Ceded():
                _remember(self.ceded, entry.job, entry)
            case KeptOver():
                self._forget(entry.job)
                _remember(self.over, entry.job, entry.at)
            case _:
                pass

    def entries(self) -> list[Entry]:
        """Return entries that say the same in a compacted journal."""
        found: list[Entry] = [*self.ceded.values()]
        for job, log in self.logs.items():
            whole, about = tuple(log.log.entries), (log.leader, log.members)
            is_forward = log.forward
            found.append(JobKept(job, log.term, *about, 0, 0, whole, is_forward))
            found += [TreeHad(job, tree) for tree in log.held]
            if log.next_term:
                new, base = tuple(log.next_log.entries), log.next_base
                kept = JobKept(job, log.next_term, *about, base, 0, new, is_forward)
                found.append(kept)
        found += self.vows.values()
        return found + [KeptOver(job, at) for job, at in self.over.items()]

    def _forget(self, job: JobId) -> None:
        self.logs.pop(job, None)
        self.vows.pop(job, None)


def _remember(table: dict[JobId, T], job: JobId, value: T) -> None:
    table.pop(job, None)
    table[job] = value
    if len(table) > OVER_MAX:
        del table[next(iter(table))]
