"""A scheduler can say why a task is where it is."""

from collections.abc import Mapping
from random import Random
from unittest.mock import Mock

import msgspec
import pytest
from tests.unit.core.builders import job, place, running

from shoal.core.durability.journal import Submitted
from shoal.core.events import Booted, JobSubmitted, MessageReceived
from shoal.core.membership.roster import Roster
from shoal.core.scheduling import explanations
from shoal.core.scheduling.policy_lookup import PolicyLookup
from shoal.core.scheduling.scheduler import Scheduler
from shoal.model.caches import mark_of, marks_of
from shoal.model.ids import NodeId, OwnerId, TaskId
from shoal.model.job import Job, Work
from shoal.model.resources import Capacity, GpuNeed, Profile
from shoal.policy.custom import Assignment
from shoal.policy.explanation import explain
from shoal.policy.registry import Registry
from shoal.policy.table.task_shapes import TaskShape
from shoal.policy.worker_view import WorkerView
from shoal.protocol.messages import Demand, Inventory, Load, Refusal
from shoal.sim.node import trust

S, W = NodeId("s"), NodeId("w")
replace = msgspec.structs.replace


def _scheduler(policies: PolicyLookup | None = None) -> Scheduler:
    roster = Roster(trust.members(), trust.WALL_AT_START_S)
    grant = trust.grant(S, ("scheduler",), OwnerId("ann"))
    roster.meet(S, grant, 0.0)
    scheduler = Scheduler(S, roster, grant=grant, rng=Random(1), policies=policies)
    scheduler.handle(Booted(), 0.0)
    inventory = Inventory(
        epoch=1,
        seq=1,
        capacity=Capacity(cpu_milli=4_000),
        load=Load(cpu_milli=4_000),
        drivers=("process",),
    )
    scheduler.handle(MessageReceived(W, inventory), 0.0)
    return scheduler


def _needing(profile: Profile, made: Job) -> Job:
    groups = tuple(
        replace(
            group,
            tasks=tuple(replace(task, profiles=(profile,)) for task in group.tasks),
        )
        for group in made.groups
    )
    return replace(made, groups=groups)


def test_an_unknown_task_has_no_explanation() -> None:
    assert _scheduler().explain(TaskId("j.g.0")) is None


def test_a_waiting_task_names_what_each_worker_lacks_in_numbers() -> None:
    scheduler = _scheduler()
    made = _needing(Profile(cpu_milli=1_000, gpu=GpuNeed()), job())
    scheduler.handle(JobSubmitted(1, made), 0.0)

    found = scheduler.explain(TaskId("j.g.0"))

    assert found is not None
    assert found.state == "waiting"
    assert found.placement is not None
    assert found.placement.fitting == 0
    [rejected] = found.placement.rejected
    assert (rejected.node, rejected.reason) == (W, "has no GPU")


def test_a_blocked_task_names_the_group_it_needs() -> None:
    scheduler = _scheduler()
    made = job(groups={"a": (2, ()), "b": (1, ("a",))})
    scheduler.handle(JobSubmitted(1, made), 0.0)

    found = scheduler.explain(TaskId("j.b.0"))

    assert found is not None
    assert found.why == ("it needs j.a, of which 2 tasks have not ended",)


def test_a_refusal_is_kept_in_the_words_of_the_worker() -> None:
    scheduler = _scheduler()
    made = _needing(Profile(cpu_milli=1_000), job())
    effects = scheduler.handle(JobSubmitted(1, made), 0.0)
    [demand] = [m for e in effects if isinstance(m := getattr(e, "message", 0), Demand)]
    no = Refusal(request=demand.request, reason="the owner is using the machine")
    scheduler.handle(MessageReceived(W, no), 0.1)

    found = scheduler.explain(TaskId("j.g.0"))

    assert found is not None
    assert found.refused == ((W, "the owner is using the machine"),)


def test_what_a_policy_says_of_waiting_tasks_is_told_until_it_places_them() -> None:
    class Whims:
        says: Assignment | None = None

        def assign(
            self, workers: Mapping[str, WorkerView], task: TaskShape
        ) -> Assignment:
            if self.says is None:
                raise ValueError("no mood")
            return self.says

    whims = Whims()
    scheduler = _scheduler(PolicyLookup(Registry({"whims": lambda: whims}), "whims"))
    made = _needing(Profile(cpu_milli=1_000), job())
    scheduler.handle(JobSubmitted(1, made), 0.0)
    waits = scheduler.explain(TaskId("j.g.0"))
    whims.says = Assignment(W)
    scheduler.handle(
        JobSubmitted(2, _needing(Profile(cpu_milli=1_000), job("k"))), 60.0
    )
    goes = scheduler.explain(TaskId("j.g.0"))

    assert waits is not None
    assert waits.why == ("policy whims broke a promise: it raised ValueError: no mood",)
    assert goes is not None
    assert goes.why == ("1 slot is being negotiated for its group",)


def test_a_gang_beyond_the_quota_is_told_so_in_numbers() -> None:
    scheduler = _scheduler()
    grant = trust.grant(S, ("scheduler",), OwnerId("ann"), quota_cpu_milli=2_000)
    gang = job(groups={"g": (3, ())}, gang_min=3)
    scheduler.handle(JobSubmitted(1, gang, grant=grant), 0.0)

    found = scheduler.explain(TaskId("j.g.0"))

    assert found is not None
    assert found.why == (
        (
            "quota of ann: 2 CPUs, 0 in use, 3 more wanted; "
            "ask for less, or an admin for a larger quota"
        ),
    )


def test_a_waiting_task_says_how_many_workers_have_its_code() -> None:
    scheduler = _scheduler()
    made = _needing(Profile(cpu_milli=9_000), job())
    [group] = made.groups
    work = Work(workdir="tree:abc-1")
    tasks = tuple(replace(task, work=work) for task in group.tasks)
    made = replace(made, groups=(replace(group, tasks=tasks),))
    scheduler.handle(JobSubmitted(1, made), 0.0)

    def cached(seq: int, marks: tuple[str, ...]) -> tuple[str, ...]:
        inventory = Inventory(
            epoch=1, seq=seq, capacity=Capacity(), load=Load(), warm=marks
        )
        scheduler.handle(MessageReceived(W, inventory), 0.0)
        found = scheduler.explain(TaskId("j.g.0"))
        assert found is not None
        assert not any("cached" in why for why in found.why), "it is no reason to wait"
        return found.cached

    assert cached(2, ()) == ("its code is cached on 0 of 1 workers",)
    assert cached(3, marks_of(work)) == ("its code is cached on 1 of 1 workers",)


def test_only_a_group_that_waits_can_be_hopeless() -> None:
    scheduler = _scheduler()
    made = _needing(Profile(cpu_milli=8_000), job(groups={"a": (1, ()), "b": (1, ())}))
    scheduler.handle(JobSubmitted(1, made), 0.0)

    assert [told[:2] for told in scheduler.hopeless(made)] == ["a:", "b:"]
    running(scheduler.book, "j.a.0", 1)
    assert [told[:2] for told in scheduler.hopeless(made)] == ["b:"]


def test_jobs_that_ask_for_the_same_are_looked_at_once_until_a_worker_changes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looked = Mock(wraps=explain)
    monkeypatch.setattr(explanations, "explain", looked)
    scheduler = _scheduler()
    small, large = Profile(cpu_milli=4_000), Profile(cpu_milli=8_000)

    assert scheduler.hopeless(_needing(small, job())) == []
    assert looked.call_count == 0, "what fits needs no explanation"
    said = [scheduler.hopeless(_needing(large, job())) for _ in range(9)]
    assert all(each == said[0] != [] for each in said)
    assert looked.call_count == 1
    grown = Inventory(
        epoch=1,
        seq=2,
        capacity=Capacity(cpu_milli=8_000),
        load=Load(),
        drivers=("process",),
    )
    scheduler.handle(MessageReceived(W, grown), 0.0)
    assert scheduler.hopeless(_needing(large, job())) == []


def test_a_second_wish_that_some_worker_can_meet_is_hope_enough() -> None:
    scheduler = _scheduler()
    made = _needing(Profile(cpu_milli=8_000), job())
    wishes = (Profile(cpu_milli=8_000), Profile(cpu_milli=2_000))
    [group] = made.groups
    tasks = tuple(replace(task, profiles=wishes) for task in group.tasks)

    assert scheduler.hopeless(made) != []
    made = replace(made, groups=(replace(group, tasks=tasks),))
    assert scheduler.hopeless(made) == []


def test_a_gang_that_talks_over_uplinks_says_who_else_does() -> None:
    scheduler = _scheduler()
    for name in ("x", "y"):
        labels = (("leaf", name), ("oversubscription", "4"))
        inventory = Inventory(
            epoch=1,
            seq=1,
            capacity=Capacity(cpu_milli=4_000, labels=labels),
            load=Load(cpu_milli=4_000),
            drivers=("process",),
            gangs=(mark_of("j.g"), mark_of("others.g")),
        )
        scheduler.handle(MessageReceived(NodeId(name), inventory), 0.0)
    book = scheduler.book
    book.submit(Submitted(job(groups={"g": (2, ())}, gang_min=2), 0.0), 0.0)
    book.assign((place("j.g.0", 1, "x"), place("j.g.1", 2, "y")), 0.0)

    found = scheduler.explain(TaskId("j.g.0"))

    assert found is not None
    assert (
        "its gang talks over uplinks that carry 1 other gang; by estimate it takes "
        "3.3 times as long as in one place"
    ) in found.why
