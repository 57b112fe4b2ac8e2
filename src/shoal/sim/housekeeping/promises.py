"""Check promises about ended jobs and drained workers: K1 to K4, and D1.

- K1: what a job names for its end is called at least once, after its end is on disk,
  and never again once that is on disk, too.
- K2: a removal that was acknowledged is on disk, before any file goes; what was removed
  never comes back; and a scheduler keeps no more ended jobs than its rule says.
- K3: usage that is on disk is never lost, and never counted twice.
- K4: what work took, once it is on disk, is never forgotten or taken for less.
- D1: a worker that drains starts nothing that it was not assigned before, and nothing
  at all in a later life, until it is told to go on.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

import msgspec

from shoal.core.durability.journal import (
    DrainSet,
    EndCalled,
    Entry,
    NeedsKept,
    Removed,
    UsageAdded,
)
from shoal.core.events import Answer, DrainRequested, Effect, Event
from shoal.core.housekeeping.events import DropJob
from shoal.core.housekeeping.past_needs import PastNeeds
from shoal.core.housekeeping.usage_ledger import UsageLedger
from shoal.core.peer import Peer
from shoal.model.ids import Attempt, JobId, NodeId
from shoal.sim.checkers.journals import Journals
from shoal.sim.checkers.violations import Violations
from shoal.sim.node.driver import SimProcess
from shoal.sim.node.host import SimHost


class _Drained(msgspec.Struct, frozen=True):
    """A worker that was told to drain, and what it had been assigned by then."""

    life: int
    assigned: frozenset[Attempt]


@final
class HousePromises:
    """Compares journals with what is called, deleted, counted and started."""

    def __init__(self, violations: Violations, journals: Journals) -> None:
        self._violations = violations
        self._journals = journals
        self._called: dict[tuple[NodeId, JobId], None] = {}
        self._over: dict[tuple[NodeId, JobId], None] = {}  # `EndCalled` is on disk
        self._removed: dict[tuple[NodeId, JobId], None] = {}
        self._usage: dict[NodeId, int] = {}  # CPU time on disk
        self._needs: dict[NodeId, dict[str, int]] = {}  # memory that work took
        self._drains: dict[NodeId, bool] = {}  # by what is on disk
        self._drained: dict[NodeId, _Drained] = {}

    def safe(self, host: SimHost, entries: Sequence[Entry]) -> None:
        """Note what is on disk now."""
        for entry in entries:
            match entry:
                case EndCalled():
                    self._over[host.id, entry.job] = None
                case Removed():
                    self._removed.update(
                        dict.fromkeys((host.id, job) for job in entry.jobs)
                    )
                case UsageAdded():
                    added = sum(row.cpu_milli_s for row in entry.rows)
                    self._usage[host.id] = self._usage.get(host.id, 0) + added
                case NeedsKept():
                    known = self._needs.setdefault(host.id, {})
                    for row in entry.rows:
                        most = max(row.memory_bytes, known.get(row.kind, 0))
                        known[row.kind] = most
                case DrainSet():
                    self._drains[host.id] = entry.on
                case _:
                    pass

    def booted(self, host: SimHost) -> None:
        """Check what a new life knows of earlier ones."""
        machine = host.machine
        if not isinstance(machine, Peer):
            return
        ledger = machine.find(UsageLedger)
        known = 0 if ledger is None else sum(row.cpu_milli_s for row in ledger.rows)
        if known != (kept := self._usage.get(host.id, 0)):
            what = f"{host.id} counts {known} milliseconds of CPU, not {kept}"
            self._violations.report("K3", what)
        needs = machine.find(PastNeeds)
        seen = {} if needs is None else {r.kind: r.memory_bytes for r in needs.rows}
        if seen != (kept_needs := self._needs.get(host.id, {})):
            what = f"{host.id} has seen {seen} of memory, not {kept_needs}"
            self._violations.report("K4", what)
        for job in machine.scheduler.book.jobs if machine.scheduler else ():
            if (host.id, job) in self._removed:
                self._violations.report("K2", f"{job} comes back on {host.id}")

    # K1: calls at the end of jobs.

    def called(self, host: SimHost, job: JobId) -> None:
        """Check a call at the end of a job, as it is made."""
        self._called[host.id, job] = None
        truth = self._journals.truth(host.id)
        if job not in truth.jobs or not truth.ended(job):
            self._violations.report("K1", f"{job} is called for, and has not ended")
        if (host.id, job) in self._over:
            self._violations.report("K1", f"{job} is called for once more")

    def is_over(self, node: NodeId, job: JobId) -> bool:
        """Whether a job was called for, as its node has on disk, or removed."""
        return (node, job) in self._over or (node, job) in self._removed

    def not_called(self, job: JobId) -> None:
        """Report a job that has ended, and is not called for."""
        self._violations.report("K1", f"{job} is not called for")

    # K2: removals.

    def answered(self, host: SimHost, answer: Answer) -> None:
        """Check an answer to a user who wants a job removed."""
        if not answer.refused and (host.id, answer.job) not in self._removed:
            what = f"{host.id} says that {answer.job} is removed; it is not on disk"
            self._violations.report("K2", what)

    def dropped(self, host: SimHost, effect: DropJob) -> None:
        """Check that files go only after their job."""
        if (host.id, effect.job.id) not in self._removed:
            what = f"{host.id} deletes files of {effect.job.id}, which is still there"
            self._violations.report("K2", what)

    def check_rule(self, host: SimHost) -> None:
        """Check that a scheduler has no more ended jobs than it keeps."""
        machine, rule = host.machine, host.spec.keep
        if not isinstance(machine, Peer) or machine.scheduler is None:
            return
        count = len(machine.scheduler.book.ended)
        if rule.jobs is not None and count > rule.jobs:
            self._violations.report("K2", f"{host.id} keeps {count} ended jobs")

    # D1: drains.

    def drained(self, host: SimHost, event: Event, _effects: list[Effect]) -> None:
        """Note that a worker was told to drain, or to go on."""
        machine = host.machine
        if not isinstance(event, DrainRequested):
            self._drained.pop(host.id, None)
        elif isinstance(machine, Peer) and (worker := machine.worker) is not None:
            lines = [each.attempt for lease in worker.leases for each in lease.line]
            assigned = frozenset((*worker.running, *lines))
            self._drained[host.id] = _Drained(host.life, assigned)

    def started(self, host: SimHost, process: SimProcess) -> None:
        """Check that a worker that drains starts nothing new."""
        told, attempt = self._drained.get(host.id), process.start.attempt
        if told is None:
            return
        if told.life == host.life:
            is_allowed = attempt in told.assigned
        else:
            is_allowed = not self._drains.get(host.id, False)
        if not is_allowed:
            self._violations.report("D1", f"{host.id} drains, and starts {attempt}")
