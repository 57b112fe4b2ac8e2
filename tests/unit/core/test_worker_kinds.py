"""A worker that lends itself to recipes takes nothing else, whatever is claimed."""

from random import Random

import pytest
from tests.fake_keys import ROOT, SHOAL, granted, verify

from shoal.core import events
from shoal.core.leasing.owner_rules import OwnerRules
from shoal.core.leasing.worker import Worker
from shoal.core.membership.members import Members
from shoal.core.membership.roster import Roster
from shoal.model.ids import Attempt, GroupId, JobId, NodeId, RequestId, TaskId
from shoal.model.job import Scalar, Task, Work
from shoal.model.resources import Capacity, Profile
from shoal.protocol import messages as m

SENDER = NodeId("s1")


def taken(work: Work, **params: Scalar) -> list[events.Effect]:
    """Return what a worker for recipes does when it is assigned a task."""
    roster = Roster(Members(SHOAL, ROOT, verify), 0.0)
    roster.meet(SENDER, granted("s1", expires_wall_s=1e9), 0.0)
    rules = OwnerRules(drivers=("recipe",))
    worker = Worker(
        NodeId("w"),
        Capacity(cpu_milli=4_000),
        roster,
        rules=rules,
        epoch=1,
        rng=Random(1),
    )
    worker.handle(events.Booted(), 0.0)
    request = RequestId("r1")
    demand = m.Demand(
        request=request,
        profile=Profile(cpu_milli=1_000),
        count=1,
        rank=m.Rank(0, 1.0, SENDER, request),
        driver="recipe",
    )
    [offered] = worker.handle(events.MessageReceived(SENDER, demand), 0.0)
    assert isinstance(offered, events.Send)
    assert isinstance(offered.message, m.Offer)
    [lease] = offered.message.leases
    commit = m.Commit(request=request, leases=(lease,), lease_s=60.0)
    worker.handle(events.MessageReceived(SENDER, commit), 0.0)
    task = Task(
        id=TaskId("j.g.0"), job=JobId("j"), group=GroupId("g"), work=work, params=params
    )
    attempt = Attempt(SENDER, 1, 1)
    assignment = m.Assignment(lease=lease, attempt=attempt, task=task)
    return worker.handle(events.MessageReceived(SENDER, assignment), 0.0)


def test_a_recipe_runs() -> None:
    effects = taken(Work(driver="recipe", recipe="echo"), rounds=3, program="gpt")

    assert any(isinstance(effect, events.StartTask) for effect in effects)


@pytest.mark.parametrize(
    "work",
    [
        Work(driver="process", argv=("sh", "-c", "id")),
        Work(driver="process", recipe="echo"),
        Work(driver="recipe", argv=("sh", "-c", "id")),
        Work(driver="recipe", recipe="echo", argv=("sh", "-c", "id")),
        Work(driver="recipe", recipe="echo", setup=("sh", "-c", "id")),
        Work(driver="recipe", recipe="echo", env={"PYTHONPATH": "/tmp/x"}),
        Work(driver="recipe", recipe="echo", workdir="blob:1"),
        Work(driver="recipe", recipe="echo", image="busybox"),
    ],
)
def test_code_that_calls_itself_a_recipe_is_refused(work: Work) -> None:
    [effect] = taken(work)

    assert isinstance(effect, events.Send)
    assert isinstance(effect.message, m.Refusal)


def test_a_program_in_a_file_is_no_recipe() -> None:
    [effect] = taken(Work(driver="recipe", recipe="train"), program="/srv/mine.py")

    assert isinstance(effect, events.Send)
    assert isinstance(effect.message, m.Refusal)
