"""What a scheduler gives with an assignment, and what it never does."""

from collections.abc import Mapping

import pytest

from shoal.core.artifacts.provisions import NOTHING, Provisions
from shoal.core.dispatch.run_states import TaskRun
from shoal.core.durability.journal import Submitted
from shoal.core.scheduling.job_book import JobBook
from shoal.model.ids import (
    Attempt,
    GroupId,
    JobId,
    LeaseId,
    NodeId,
    OwnerId,
    TaskId,
)
from shoal.model.job import Group, Job, Task, Work
from shoal.sim.node import trust

S, W = NodeId("s"), NodeId("w")
RUN = TaskRun(
    task=TaskId("j.g.0"), attempt=Attempt(S, 1, 1), worker=W, lease=LeaseId("w/1/1")
)


def sealed(
    to: NodeId,
    purpose: Attempt | JobId,
    names: tuple[str, ...],
    _job: JobId,
    _before: Mapping[str, bytes],
) -> dict[str, bytes]:
    return {name: f"{name} to {to} for {purpose}".encode() for name in names}


def provisions(task: Task, owner: str) -> Provisions:
    """Return the provisions of a scheduler of ann, which has a job of this owner."""
    book = JobBook()
    group = Group(id=task.group, tasks=(task,))
    book.submit(
        Submitted(Job(id=task.job, owner=OwnerId(owner), groups=(group,)), 0.0), 0.0
    )
    return Provisions(book, trust.grant(S, ("scheduler",), OwnerId("ann")), sealed)


def task_with(*secrets: str) -> Task:
    work = Work(secrets=secrets)
    return Task(id=RUN.task, job=JobId("j"), group=GroupId("j.g"), work=work)


@pytest.mark.parametrize(
    ("owner", "given"), [("ann", {"KEY": b"KEY to w for s:1.1"}), ("bob", {})]
)
def test_only_jobs_of_the_nodes_own_owner_get_its_secrets(
    owner: str, given: dict[str, bytes]
) -> None:
    task = task_with("KEY")

    assert provisions(task, owner).of(RUN, task).secrets == given


def test_a_task_without_secrets_and_checkpoints_takes_nothing_along() -> None:
    task = task_with()

    assert provisions(task, "ann").of(RUN, task) is NOTHING
