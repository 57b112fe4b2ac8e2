"""What the end of an attempt means for its task."""

import msgspec
import pytest
from tests.unit.core.builders import book_with, job, record, running

from shoal.core.dispatch.run_states import TaskRun
from shoal.core.dispatch.verdicts import (
    CRASH_SPAN_S,
    CRASHES_MAX,
    Verdict,
    judge,
    judge_lost,
    judge_waiting,
)
from shoal.core.records.records import TaskRecord
from shoal.model.job import Job, Retry
from shoal.protocol.messages import Outcome


def scene(**fields: object) -> tuple[Job, TaskRecord, TaskRun]:
    job_ = job(**fields)  # type: ignore[arg-type]  # Fields of a job, by name.
    book = book_with(job_)
    run = running(book, "j.g.0", 1)
    return job_, record(book), run


def test_exit_code_0_is_success() -> None:
    assert judge(*scene(), Outcome("exited", exit_code=0)) == Verdict("done")


@pytest.mark.parametrize("on", [("exit:3",), ("failed",)])
def test_a_failure_is_retried_if_the_job_says_so(on: tuple[str, ...]) -> None:
    verdict = judge(*scene(retry=Retry(on=on)), Outcome("exited", exit_code=3))

    assert verdict == Verdict("again", "exit code 3", "failure")


def test_a_failure_says_what_the_task_said() -> None:
    outcome = Outcome("exited", exit_code=1, reason="ValueError: bad")

    assert judge(*scene(), outcome).reason == "exit code 1: ValueError: bad"


def test_a_failure_of_another_kind_is_final() -> None:
    retry = Retry(on=("exit:4", "worker-lost"))

    assert judge(*scene(retry=retry), Outcome("exited", exit_code=3)).do == "failed"


def test_the_last_retry_is_the_last() -> None:
    job_, told, run = scene(retry=Retry(max=2, on=("failed",)))
    told.failures = 2

    verdict = judge(job_, told, run, Outcome("exited", exit_code=3))

    assert verdict.do == "failed"
    assert verdict.reason == "exit code 3, 3 times"


def test_to_run_out_of_time_is_a_failure() -> None:
    outcome = Outcome("timed-out", reason="too long")

    assert judge(*scene(), outcome).do == "failed"
    assert judge(*scene(retry=Retry(on=("failed",))), outcome).do == "again"


def test_preemption_counts_as_nothing() -> None:
    verdict = judge(*scene(retry=Retry(max=0, on=())), Outcome("preempted"))

    assert verdict.do == "again"
    assert verdict.counts == "nothing"


@pytest.mark.parametrize("over", [False, True])
def test_who_was_preempted_is_not_lost_with_its_worker(over: bool) -> None:
    job_, told, run = scene(retry=Retry(max=0, on=()))
    run.preempted = "priority"

    verdict = judge_lost(job_, told, run, "the worker was lost", over=over)

    assert verdict == Verdict("again", "preempted: priority")
    once = msgspec.structs.replace(job_, at_most_once=True)
    assert judge_lost(once, told, run, "gone", over=over).do == "failed"


def test_what_may_run_once_is_not_run_again_after_it_started() -> None:
    assert judge(*scene(at_most_once=True), Outcome("preempted")).do == "failed"
    assert judge(*scene(at_most_once=True), Outcome("lost")).do == "unknown"
    assert judge(*scene(at_most_once=True), Outcome("not-started")).do == "again"


def test_the_fifth_start_that_fails_is_the_last() -> None:
    job_, told, run = scene()
    told.failures = 4

    assert judge(job_, told, run, Outcome("not-started")).do == "failed"


def test_what_waited_in_line_counts_as_a_crash_only_if_it_may_have_started() -> None:
    assert judge_waiting("the lease ended", doubt=False).counts == "nothing"
    assert judge_waiting("the worker was lost", doubt=True).counts == "crash"


def test_the_fifth_crash_is_the_last() -> None:
    job_, told, run = scene()
    told.crashes = CRASHES_MAX - 1

    assert judge_lost(job_, told, run, "gone", over=False).do == "failed"


def test_a_crash_that_was_counted_is_not_counted_twice() -> None:
    job_, told, run = scene()
    told.crashes = CRASHES_MAX - 1
    run.move("lose", 1.0)
    run.move("blame", 1.0)

    assert judge_lost(job_, told, run, "gone", over=False).do == "again"


def test_an_attempt_that_ran_for_long_did_not_take_its_worker_down() -> None:
    job_, told, run = scene()
    told.crashes = CRASHES_MAX - 1
    long_s = CRASH_SPAN_S + 1

    lost = judge_lost(job_, told, run, "gone", over=True, ran_s=long_s)
    reported = judge(job_, told, run, Outcome("lost"), ran_s=long_s)

    assert (lost.do, lost.counts) == ("again", "nothing")
    assert (reported.do, reported.counts) == ("again", "nothing")


def test_losing_a_worker_is_final_if_the_job_says_so() -> None:
    verdict = judge_lost(*scene(retry=Retry(on=())), "gone", over=False)

    assert verdict.do == "failed"
