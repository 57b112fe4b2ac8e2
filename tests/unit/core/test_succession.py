"""Which jobs can be kept, by whom, and what is said if they cannot."""

import pytest
from msgspec.structs import replace

from shoal.core.deadlines import DeadlineHeap
from shoal.core.membership.roster import Roster
from shoal.core.scheduling.job_book import JobBook
from shoal.core.succession.succession import Succession
from shoal.model.ids import GroupId, JobId, NodeId, OwnerId, TaskId
from shoal.model.job import Group, Job, Schedule, Task, Work
from shoal.sim.node import trust

ANN, BOB = OwnerId("ann"), OwnerId("bob")
ME, YOU, HER, OTHER, LENDER = map(NodeId, ("me", "you", "her", "other", "lender"))


def machine(*linked: NodeId, unasked: int = 0) -> Succession:
    roster = Roster(trust.members(), trust.WALL_AT_START_S)
    for node in (ME, YOU, HER):
        roster.meet(node, trust.grant(node, ("scheduler",), ANN), 0.0)
    roster.meet(OTHER, trust.grant(OTHER, ("scheduler",), BOB), 0.0)
    roster.meet(LENDER, trust.grant(LENDER, ("worker",), ANN), 0.0)
    book, heap = JobBook(), DeadlineHeap()
    made = Succession(ME, roster, book, heap, (), 0.0, unasked=unasked)
    for node in linked:
        made.on_linked(node, 0.0)
    return made


def job(work: Work | None = None, *, count: int = 1) -> Job:
    group = GroupId("j.main")
    tasks = tuple(
        Task(id=TaskId(f"j.main.{n}"), job=JobId("j"), group=group, work=work or Work())
        for n in range(count)
    )
    groups = (Group(id=group, tasks=tasks),)
    return Job(id=JobId("j"), owner=ANN, groups=groups, keepers=2)


def test_other_nodes_of_the_owner_that_take_jobs_keep_it_those_first_that_came() -> (
    None
):
    made = machine(OTHER, HER, LENDER, YOU)

    assert made.members_for(job(), 0.0) == (ME, HER, YOU)


def test_too_few_nodes_are_said_with_numbers() -> None:
    made = machine(OTHER, HER, LENDER)

    said = made.members_for(job(), 0.0)

    assert said == (
        "it wants 2 keepers, which are other nodes of ann that take jobs; 1 are linked "
        "to this one"
    )


def test_a_node_that_was_lost_keeps_nothing_new() -> None:
    made = machine(HER, YOU)
    made.on_lost(HER)

    assert isinstance(made.members_for(job(), 0.0), str)


@pytest.mark.parametrize(
    ("kept", "why"),
    [
        (job(Work(stdin="pipe")), "standard input"),
        (replace(job(), schedule=Schedule("0 3 * * *")), "schedule"),
        (replace(job(), owner=BOB), "only jobs of ann"),
        (replace(job(), keepers=3), "2 or 4 keepers, not 3"),
        (job(Work(argv=("x" * 100,)), count=3_000), "too large"),
    ],
)
def test_what_cannot_be_kept_is_refused_with_the_reason(kept: Job, why: str) -> None:
    said = machine(HER, YOU).members_for(kept, 0.0)

    assert isinstance(said, str)
    assert why in said


def test_a_job_that_says_nothing_is_kept_by_as_many_as_its_node_says() -> None:
    says_nothing = replace(job(), keepers=None)

    assert machine(HER, YOU).members_for(says_nothing, 0.0) == ()
    assert machine(HER, YOU, unasked=2).members_for(says_nothing, 0.0) == (ME, HER, YOU)
    refuses = replace(job(), keepers=0)
    assert machine(HER, YOU, unasked=2).members_for(refuses, 0.0) == ()


@pytest.mark.parametrize(
    "other",
    [
        job(Work(stdin="pipe")),
        job(Work(driver="python")),
        replace(job(), schedule=Schedule("0 3 * * *")),
        replace(job(), owner=BOB),
    ],
)
def test_nobody_keeps_unasked_what_belongs_to_its_node_and_nothing_is_refused(
    other: Job,
) -> None:
    made = machine(HER, YOU, unasked=2)

    assert made.members_for(replace(other, keepers=None), 0.0) == ()


def test_a_job_is_not_refused_because_nobody_is_there_to_keep_it_unasked() -> None:
    says_nothing = replace(job(), keepers=None)

    assert machine(HER, unasked=2).members_for(says_nothing, 0.0) == ()
