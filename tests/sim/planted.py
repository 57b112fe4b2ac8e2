"""Eighteen bugs, planted one by one: a simulator that finds none of them finds nothing.

Each replaces one small method from outside, so that no trace of it is in the code
itself. Every bug must be found within SEEDS_MAX seeds that are clean without it.

Run: python tests/sim/planted.py
"""

import multiprocessing
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, NamedTuple

import click
import msgspec

from shoal.core import dispatch
from shoal.core.bindings import Bindings
from shoal.core.dispatch import Dispatcher
from shoal.core.events import Answer, Effect, Record, StartTask
from shoal.core.gossip import Gossip
from shoal.core.jobs import Run, TaskRecord
from shoal.core.journal import Finished, Incarnated
from shoal.core.leases import Lease, LeaseBook
from shoal.core.lessor import Lessor
from shoal.core.membership import Admission, Members
from shoal.core.negotiation import Negotiator, Round
from shoal.core.orders import Orders
from shoal.core.scheduler import Scheduler
from shoal.core.seniority import Seniority
from shoal.core.verdicts import Verdict, judge
from shoal.core.worker import Worker
from shoal.model.ids import Attempt, LeaseId, NodeId, OwnerId, TaskId
from shoal.model.job import Job
from shoal.model.resources import Allocation, Profile
from shoal.protocol.messages import (
    Assignment,
    Cancel,
    Demand,
    Outcome,
    Renew,
    Report,
    Revocation,
    Rumour,
)
from shoal.sim.disk import Disk
from shoal.sim.seeds import run_seed

SEEDS_MAX: Final = 2_000


class Bug(NamedTuple):
    """What is wrong, and the method of the class that is replaced to make it so."""

    name: str
    owner: Any
    method: str
    replacement: Callable[..., Any]


class Finding(NamedTuple):
    """The first seed that finds a bug, and by which promise; none if none does."""

    bug: str
    seed: int | None
    promise: str
    spent_s: float


_on_report = Dispatcher.on_report
_on_assignment = Worker._on_assignment
_on_cancel = Worker._on_cancel
_end = Lessor.end
_on_renew = Lessor.on_renew
_revoke = Members.revoke


def result_not_deduplicated(
    self: Dispatcher, peer: NodeId, report: Report, now: float
) -> list[Effect]:
    """Write down every report of a success, known or not."""
    known = report.attempt in self._book.runs
    effects = _on_report(self, peer, report, now)
    task = _task_of(self, report)
    if known or task is None or report.outcome.exit_code != 0:
        return effects
    return [Record(Finished(task, "done", report.attempt, report.outcome)), *effects]


def _task_of(dispatcher: Dispatcher, report: Report) -> TaskId | None:
    for id_, record in dispatcher._book.tasks.items():
        if record.outcome == report.outcome and record.state == "done":
            return id_
    return None


def lost_dispatch_not_retried(
    self: Orders, attempt: Attempt, now: float
) -> list[Effect]:
    """Send an assignment once and hope."""
    return []


def duplicate_dispatch_run_twice(
    self: Worker, peer: NodeId, assignment: Assignment, now: float
) -> list[Effect]:
    """Start whatever is assigned, running or not."""
    run = self._runs.get(assignment.attempt)
    lease = self._book.get(run.lease) if run else None
    if lease is None:
        return _on_assignment(self, peer, assignment, now)
    start = StartTask(assignment.attempt, lease.id, assignment.task, lease.allocation)
    return [start]


def device_freed_before_the_kill(
    self: Lessor,
    lease: Lease,
    verdict: Outcome,
    now: float,
    grace_s: float | None = None,
) -> list[Effect]:
    """Give the room back when the stop begins, not when it is done."""
    effects = _end(self, lease, verdict, now, grace_s)
    if lease.running is not None and not self._book.earmarked(lease):
        self._book.ledger.give(lease.taken)
        lease.taken = Allocation()
    return effects


def acknowledged_before_fsync(self: Disk, effects: list[Effect]) -> None:
    """Let answers to clients pass the barrier."""
    for effect in effects:
        if type(effect) is Record:
            self._write(effect)
        elif isinstance(effect, Answer) or not self._barrier.holds(effect):
            self._perform(effect)


def generation_not_persisted(self: Scheduler) -> Effect:
    """Write down a generation that is not the one in use."""
    return Record(Incarnated(self._book.generation - 1))


def gang_committed_in_part(self: Negotiator, round_: Round) -> bool:
    """Take a gang for committed when its first lease is."""
    return True


def offer_kept_after_withdrawal(
    self: Negotiator, peer: NodeId, leases: tuple[LeaseId, ...], now: float
) -> list[Effect]:
    """Count on leases that the worker has withdrawn."""
    return []


def renewal_by_a_stranger_accepted(
    self: Lessor, peer: NodeId, renew: Renew, now: float
) -> list[Effect]:
    """Extend any lease whose id is known, whoever says so."""
    for id_ in renew.leases:
        lease = self._book.get(id_)
        if lease is not None and lease.state == "committed":
            self._extend(lease, renew.lease_s, now)
    return _on_renew(self, peer, renew, now)


def preempted_task_counted_as_failed(
    job: Job,
    record: TaskRecord,
    run: Run,
    outcome: Outcome,
    *,
    failures: int | None = None,
    ran_s: float = 0.0,
) -> Verdict:
    """Take a preemption for an exit that is worth another try."""
    verdict = judge(job, record, run, outcome, failures=failures, ran_s=ran_s)
    if outcome.kind == "preempted" and verdict.do == "again":
        return msgspec.structs.replace(verdict, counts="failure")
    return verdict


def quota_not_kept_by_the_worker(
    self: Lessor, demand: Demand, admission: Admission
) -> tuple[Demand, str]:
    """Leave it to each scheduler to keep the quota of its owner."""
    return demand, ""


def line_not_waited_in(
    self: Worker, peer: NodeId, assignment: Assignment, now: float
) -> list[Effect]:
    """Start what is sent ahead while the one before it still runs."""
    lease = self._book.of(peer, assignment.lease)
    effects = _on_assignment(self, peer, assignment, now)
    if lease is None or assignment not in lease.line:
        return effects
    lease.line.remove(assignment)
    return [*effects, *self._start(lease, assignment, now)]


def called_back_and_run(
    self: Worker, peer: NodeId, cancel: Cancel, now: float
) -> list[Effect]:
    """Say that what waits in line will not start, and leave it there."""
    lease = self._book.of(peer, cancel.lease)
    line = [] if lease is None else list(lease.line)
    effects = _on_cancel(self, peer, cancel, now)
    if lease is not None:
        lease.line = line
    return effects


def attempt_of_two_leases(self: Bindings, attempt: Attempt, lease: LeaseId) -> bool:
    """Start an attempt on every lease that it is sent under."""
    return True


def age_believed(
    self: Seniority, peer: NodeId, profile: Profile, claimed_s: float, now: float
) -> float:
    """Take whatever a scheduler says for its age."""
    return claimed_s


def leases_of_nothing_unbounded(self: LeaseBook, owner: OwnerId) -> str:
    """Give out leases as long as there is room for them."""
    return ""


def forged_rumour_believed(self: Gossip, rumour: Rumour, signature: bytes) -> bool:
    """Take every rumour for that of its worker."""
    return True


def revocation_forgotten(self: Members, revocation: Revocation) -> bool:
    """Cut off who is revoked, and let it in when it is back."""
    is_news = _revoke(self, revocation)
    self._revocations = {}
    return is_news


BUGS: Final = (
    Bug("result not de-duplicated", Dispatcher, "on_report", result_not_deduplicated),
    Bug("lost dispatch not retried", Orders, "_again", lost_dispatch_not_retried),
    Bug(
        "duplicate dispatch run twice",
        Worker,
        "_on_assignment",
        duplicate_dispatch_run_twice,
    ),
    Bug("device freed before the kill", Lessor, "end", device_freed_before_the_kill),
    Bug("acknowledged before fsync", Disk, "submit", acknowledged_before_fsync),
    Bug("generation not persisted", Scheduler, "_incarnate", generation_not_persisted),
    Bug(
        "gang committed in part",
        Negotiator,
        "_round_committed",
        gang_committed_in_part,
    ),
    Bug(
        "offer kept after withdrawal",
        Negotiator,
        "on_gone",
        offer_kept_after_withdrawal,
    ),
    Bug(
        "renewal by a stranger accepted",
        Lessor,
        "on_renew",
        renewal_by_a_stranger_accepted,
    ),
    Bug(
        "preempted task counted as failed",
        dispatch,
        "judge",
        preempted_task_counted_as_failed,
    ),
    Bug(
        "quota not kept by the worker",
        Lessor,
        "_within_quota",
        quota_not_kept_by_the_worker,
    ),
    Bug("line not waited in", Worker, "_on_assignment", line_not_waited_in),
    Bug("called back and run", Worker, "_on_cancel", called_back_and_run),
    Bug("attempt of two leases", Bindings, "admits", attempt_of_two_leases),
    Bug("age believed", Seniority, "believed", age_believed),
    Bug(
        "leases of nothing unbounded",
        LeaseBook,
        "_too_many",
        leases_of_nothing_unbounded,
    ),
    Bug("forged rumour believed", Gossip, "_is_genuine", forged_rumour_believed),
    Bug("revocation forgotten", Members, "revoke", revocation_forgotten),
)


@contextmanager
def planted(bug: Bug) -> Iterator[None]:
    """Have the bug in the code, for a while."""
    sound = getattr(bug.owner, bug.method)
    setattr(bug.owner, bug.method, bug.replacement)
    try:
        yield
    finally:
        setattr(bug.owner, bug.method, sound)


def find(bug: Bug, seeds_max: int = SEEDS_MAX) -> Finding:
    """Return the first seed that finds the bug, and which promise it breaks."""
    began = time.perf_counter()
    with planted(bug):
        for seed in range(seeds_max):
            outcome = run_seed(seed)
            if outcome.violations:
                spent_s = time.perf_counter() - began
                return Finding(bug.name, seed, outcome.violations[0].id, spent_s)
    return Finding(bug.name, None, "", time.perf_counter() - began)


def find_nth(number: int) -> Finding:
    """Find one of the bugs, by its number."""
    return find(BUGS[number])


def main() -> None:
    """Print for each bug the seed that found it; exit with 1 if one was not found."""
    missed = 0
    with multiprocessing.get_context("fork").Pool(2) as pool:
        for finding in pool.imap(find_nth, range(len(BUGS))):
            missed += finding.seed is None
            found = (
                f"not found in {SEEDS_MAX} seeds"
                if finding.seed is None
                else f"found by seed {finding.seed:<5} {finding.promise}"
            )
            click.echo(f"{finding.bug:<34} {found:<34} {finding.spent_s:6.1f} s")
    click.echo(f"{len(BUGS) - missed} of {len(BUGS)} planted bugs found")
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()
