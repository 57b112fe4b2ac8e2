"""What the end of an attempt means for its task: an end, another try, or doubt.

Plain functions. A *failure* is the task's own: it counts against the retries that its
job allows. A *crash* is the loss of a worker that the task may have caused; a few of
them in a row end it. A preemption counts as neither. Failures are counted anew when a
new checkpoint of the task is kept (`JobBook.renew`), and crashes when an attempt ran
for long: what gets on may last for days, and lose a worker now and then. For a job that
runs at most once, nothing that may have started is ever tried again: its end is failed,
or unknown.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal

import msgspec

if TYPE_CHECKING:
    from shoal.core.dispatch.run_states import TaskRun
    from shoal.core.records.records import TaskRecord
    from shoal.model.job import Job
    from shoal.protocol.messages import Outcome

CRASHES_MAX: Final = 5
"""Crashes, with no long attempt between them, after which a task has failed."""

CRASH_SPAN_S: Final = 600.0
"""An attempt that ran this long before its worker was lost is not to blame."""

FAILED_STARTS_MAX: Final = 5


class Verdict(msgspec.Struct, frozen=True):
    """What to do with the task, and what to count the attempt as."""

    do: Literal["done", "failed", "unknown", "again"]
    reason: str = ""
    counts: Literal["nothing", "failure", "crash"] = "nothing"
    soon: bool = False  # nothing of it ran: try again sooner


def judge(
    job: Job,
    record: TaskRecord,
    run: TaskRun,
    outcome: Outcome,
    *,
    failures: int | None = None,
    ran_s: float = 0.0,
) -> Verdict:
    """Say what follows from the report of an attempt that ran for `ran_s`.

    `failures` count against its retries; by default they are the task's own.
    """
    failed = record.failures if failures is None else failures
    match outcome.kind:
        case "exited" | "timed-out":
            return judge_answer(job, failed, outcome)
        case "not-started":
            if run.queued:
                return Verdict("again", "called back from where it waited in line")
            return judge_not_started(failed, outcome.reason)
        case "preempted":
            return _judge_preempted(job, outcome.reason)
        case "cancelled" | "lost":
            why = outcome.reason
            return judge_lost(job, record, run, why, over=True, ran_s=ran_s)


def judge_answer(job: Job, failures: int, outcome: Outcome) -> Verdict:
    """Say what follows from an end of the task's own doing."""
    if outcome.kind == "timed-out":
        return _judge_failure(job, failures, "timed-out", outcome.reason)
    return _judge_exit(job, failures, outcome)


def judge_lost(
    job: Job,
    record: TaskRecord,
    run: TaskRun,
    reason: str,
    *,
    over: bool,
    ran_s: float = 0.0,
) -> Verdict:
    """Say what follows when an attempt was lost with its worker.

    `over` says whether it is certain that nothing of it is still running. What its
    worker had preempted before is no loss: only its last output is.
    """
    if run.preempted is not None:
        return _judge_preempted(job, run.preempted)
    if job.at_most_once:
        doubt = "whether it finished" if over else "whether it still runs"
        return Verdict("unknown", f"{reason}; nobody knows {doubt}")
    if ran_s > CRASH_SPAN_S:
        return Verdict("again", reason)
    crashes = record.crashes + (not run.blamed)
    if crashes >= CRASHES_MAX:
        return Verdict("failed", f"lost {crashes} workers, the last: {reason}", "crash")
    if "worker-lost" not in job.retry.on:
        return Verdict("failed", f"{reason}; retry.on has no worker-lost")
    return Verdict("again", reason, "crash")


def judge_not_started(failures: int, reason: str) -> Verdict:
    """Say what follows when a worker could not start an attempt."""
    tries = failures + 1
    if tries >= FAILED_STARTS_MAX:
        return Verdict("failed", f"not started {tries} times: {reason}", "failure")
    return Verdict("again", reason, "failure", soon=True)


def judge_refused(
    job: Job,
    record: TaskRecord,
    run: TaskRun,
    reason: str,
    *,
    failures: int,
    ran_s: float,
) -> Verdict:
    """Say what follows when a worker refuses an attempt that was to run next."""
    match reason:
        case "lease-unknown":
            why = "the worker no longer knows of it"
            return judge_lost(job, record, run, why, over=True, ran_s=ran_s)
        case "lease-ended":
            return Verdict("again", "the lease ended before it started")
        case _:
            return judge_not_started(failures, reason)


def judge_waiting(reason: str, *, doubt: bool) -> Verdict:
    """Say what follows for an attempt that was queued at a lease that ended.

    In `doubt` whether it had started, it counts as a crash: it may have caused one.
    """
    return Verdict("again", reason, "crash" if doubt else "nothing")


def _judge_preempted(job: Job, reason: str) -> Verdict:
    if job.at_most_once:
        return Verdict("failed", f"preempted after it started: {reason}")
    return Verdict("again", f"preempted: {reason}")


def _judge_exit(job: Job, failures: int, outcome: Outcome) -> Verdict:
    code = outcome.exit_code
    if code == 0:
        return Verdict("done")
    said = f": {outcome.reason}" if outcome.reason else ""
    return _judge_failure(job, failures, f"exit:{code}", f"exit code {code}{said}")


def _judge_failure(job: Job, failures: int, rule: str, reason: str) -> Verdict:
    if rule not in job.retry.on and "failed" not in job.retry.on:
        return Verdict("failed", reason)
    if failures >= job.retry.max:
        reason = f"{reason}, {failures + 1} times" if failures else reason
        return Verdict("failed", reason, "failure")
    return Verdict("again", reason, "failure")
