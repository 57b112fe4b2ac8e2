"""Of what a node died: twice in a row the same, and nothing that was only near."""

from shoal.core.durability.crash_suspects import (
    SUSPECTS_MAX,
    CrashSuspects,
    Memory,
    Subject,
)
from shoal.model.ids import JobId, NodeId, TaskId

OTTER = NodeId("otter")


def subject(task: str, stage: str = "start") -> Subject:
    return Subject(OTTER, TaskId(task), "end" if stage == "end" else "start")


def test_a_job_that_two_deaths_in_a_row_had_in_common_is_set_aside() -> None:
    first = CrashSuspects(Memory(), [subject("a.main.0"), subject("b.main.0")])
    second = CrashSuspects(first.memory, [subject("b.main.0")])

    assert first.set_aside_now == []
    assert [each.job for each in second.set_aside_now] == ["b"]
    assert "shoal retry b" in second.refusal(OTTER, JobId("b"))
    assert second.refusal(NodeId("heron"), JobId("b")) == ""
    assert second.refusal(OTTER, JobId("a")) == ""


def test_what_was_set_aside_stays_so_and_is_told_once() -> None:
    suspicion = CrashSuspects(Memory(), [subject("b.main.0")])
    suspicion = CrashSuspects(suspicion.memory, [subject("b.main.0")])
    later = CrashSuspects(suspicion.memory, [])

    assert later.refusal(OTTER, JobId("b"))
    assert later.set_aside_now == []


def test_suspects_are_handled_one_at_a_time_and_others_at_any_time() -> None:
    one, two = subject("a.main.0"), subject("b.main.0")
    suspicion = CrashSuspects(Memory(), [one, two])
    suspicion.began(one)

    assert suspicion.may_begin(one)
    assert not suspicion.may_begin(two)
    assert suspicion.may_begin(subject("c.main.0"))

    assert suspicion.passed(one)
    assert suspicion.may_begin(two)
    assert not suspicion.passed(subject("c.main.0"))


def test_what_the_node_survived_in_between_is_not_to_blame() -> None:
    suspicion = CrashSuspects(Memory(), [subject("a.main.0")])
    suspicion.began(subject("a.main.0"))
    suspicion.passed(subject("a.main.0"))
    later = CrashSuspects(suspicion.memory, [subject("a.main.0")])

    assert later.set_aside_now == []


def test_a_task_that_starts_well_may_still_be_the_end_of_the_node_at_its_end() -> None:
    start, end = subject("a.main.0"), subject("a.main.0", "end")
    suspicion = CrashSuspects(Memory(), [end])
    suspicion.began(start)
    suspicion.passed(start)
    later = CrashSuspects(suspicion.memory, [end])

    assert [each.job for each in later.set_aside_now] == ["a"]


def test_no_number_of_deaths_fills_the_memory() -> None:
    suspicion = CrashSuspects(Memory(), [])
    for number in range(20):
        left = [subject(f"j{number}.main.{index}") for index in range(64)]
        suspicion = CrashSuspects(suspicion.memory, left)

    assert len(suspicion.memory.suspects) == SUSPECTS_MAX
