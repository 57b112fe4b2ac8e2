"""Who is served when many wait."""

from random import Random
from typing import TypeVar

import msgspec
import pytest
from tests.fake_keys import ROOT, SHOAL, granted, verify
from tests.unit.core.builders import SCHEDULER, job

from shoal.core import events
from shoal.core.durability.journal import Submitted
from shoal.core.membership.members import Members
from shoal.core.membership.roster import Roster
from shoal.core.scheduling import matcher as matching
from shoal.core.scheduling.scheduler import Scheduler
from shoal.model.ids import JobId, LeaseId, NodeId
from shoal.model.job import Job
from shoal.model.resources import Capacity, Profile
from shoal.protocol import messages as m
from shoal.protocol.message import Message

W = NodeId("w")
LEASE = LeaseId("w/1/1")
Told = TypeVar("Told", bound=Message)


def needing(id_: str, *profiles: Profile) -> Job:
    made = job(id_)
    [group] = made.groups
    task = msgspec.structs.replace(group.tasks[0], profiles=profiles)
    group = msgspec.structs.replace(group, tasks=(task,))
    return msgspec.structs.replace(made, groups=(group,))


def scheduler_with_a_small_worker() -> Scheduler:
    roster = Roster(Members(SHOAL, ROOT, verify), 0.0)
    roster.meet(SCHEDULER, granted(SCHEDULER), 0.0)
    scheduler = Scheduler(SCHEDULER, roster, rng=Random(1))
    scheduler.handle(events.Booted(), 0.0)
    scheduler.handle(events.MessageReceived(W, inventory(1)), 0.0)
    return scheduler


def inventory(seq: int, leaf: str = "a", free: int = 500) -> m.Inventory:
    return m.Inventory(
        epoch=1,
        seq=seq,
        capacity=Capacity(cpu_milli=500, labels=(("leaf", leaf),)),
        load=m.Load(cpu_milli=free),
        drivers=("process",),
    )


def demands(effects: list[events.Effect]) -> list[Profile]:
    return [
        effect.message.profile
        for effect in effects
        if isinstance(effect, events.Send) and isinstance(effect.message, m.Demand)
    ]


def test_what_fits_is_served_though_very_many_that_do_not_are_ahead_of_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(matching, "SERVED_MAX", 4)  # So that few are very many.
    scheduler = scheduler_with_a_small_worker()
    small = Profile(cpu_milli=100)
    for n in range(6):
        too_large = needing(f"j{n}", Profile(cpu_milli=1_000 + n))
        scheduler.book.submit(Submitted(too_large, 0.0), 0.0)
        scheduler._queue.note(too_large.groups[0].id)

    submitted = events.JobSubmitted(1, needing("small", small))
    first = scheduler.handle(submitted, 1.0)
    second = scheduler.handle(events.MessageReceived(W, inventory(2)), 1.1)

    assert demands(first + second) == [small]


def test_another_second_choice_is_tried_though_the_first_is_the_same() -> None:
    scheduler = scheduler_with_a_small_worker()
    large, small = Profile(cpu_milli=9_000), Profile(cpu_milli=100)
    in_vain = needing("a", large, Profile(cpu_milli=8_000))

    scheduler.handle(events.JobSubmitted(1, in_vain), 1.0)
    effects = scheduler.handle(events.JobSubmitted(2, needing("b", large, small)), 2.0)

    assert demands(effects) == [small]


def say(scheduler: Scheduler, message: m.AnyMessage, now: float) -> list[events.Effect]:
    return scheduler.handle(events.MessageReceived(W, message), now)


def commit_asked_for(scheduler: Scheduler, job_: Job) -> m.Commit:
    """Submit a job, and have its one slot offered; return what commits it."""
    asked = scheduler.handle(events.JobSubmitted(1, job_), 1.0)
    [demand] = sent(asked, m.Demand)
    offer = m.Offer(request=demand.request, leases=(LEASE,), valid_for_s=6.0)
    [commit] = sent(say(scheduler, offer, 1.1), m.Commit)
    return commit


def sent(effects: list[events.Effect], kind: type[Told]) -> list[Told]:
    messages = [e.message for e in effects if isinstance(e, events.Send)]
    return [message for message in messages if isinstance(message, kind)]


def test_a_lease_goes_straight_to_the_group_that_it_was_won_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scheduler = scheduler_with_a_small_worker()
    commit = commit_asked_for(scheduler, needing("a", Profile(cpu_milli=100)))
    monkeypatch.setattr(matching, "SERVED_MAX", 0)  # A pass would serve nobody.

    committed = m.Committed(request=commit.request, leases=commit.leases)
    [assignment] = sent(say(scheduler, committed, 1.2), m.Assignment)

    assert (assignment.task.id, assignment.lease) == ("a.g.0", LEASE)


def test_a_lease_that_its_group_no_longer_wants_goes_to_the_next_that_waits() -> None:
    scheduler = scheduler_with_a_small_worker()
    wanted = Profile(cpu_milli=500)
    commit = commit_asked_for(scheduler, needing("a", wanted))
    scheduler.handle(events.JobSubmitted(2, needing("b", wanted)), 1.2)
    scheduler.handle(events.CancelRequested(3, JobId("a")), 1.3)

    committed = m.Committed(request=commit.request, leases=commit.leases)
    [assignment] = sent(say(scheduler, committed, 1.4), m.Assignment)

    assert (assignment.task.id, assignment.lease) == ("b.g.0", LEASE)


def test_a_gang_that_must_stay_under_one_leaf_displaces_nobody_elsewhere() -> None:
    scheduler = scheduler_with_a_small_worker()
    full = inventory(1, leaf="b", free=0)
    scheduler.handle(events.MessageReceived(NodeId("w2"), full), 0.5)
    gang = job("j", groups={"g": (3, ())}, gang_min=1, preempt=True)
    gang = msgspec.structs.replace(gang, same_leaf="require")
    [group] = gang.groups
    tasks = [
        msgspec.structs.replace(task, profiles=(Profile(cpu_milli=500),))
        for task in group.tasks
    ]
    group = msgspec.structs.replace(group, tasks=tuple(tasks))
    gang = msgspec.structs.replace(gang, groups=(group,))
    commit = commit_asked_for(scheduler, gang)

    committed = m.Committed(request=commit.request, leases=commit.leases)
    effects = say(scheduler, committed, 1.2)

    assert len(sent(effects, m.Assignment)) == 1
    assert NodeId("w2") not in [
        effect.peer
        for effect in effects
        if isinstance(effect, events.Send) and isinstance(effect.message, m.Demand)
    ]
