from random import Random

import msgspec
import pytest

from shoal.model.caches import marks_of
from shoal.model.ids import GroupId, JobId, NodeId, TaskId
from shoal.model.job import Task, Work
from shoal.model.resources import GIB, Capacity, Device, GpuNeed, Profile
from shoal.policy.interface import GangNeed
from shoal.policy.planning import plan
from shoal.policy.registry import Registry
from shoal.policy.table.worker_table import WorkerTable, WorkerView

A, B, C = NodeId("a"), NodeId("b"), NodeId("c")


def task_of(*profiles: Profile) -> Task:
    return Task(
        id=TaskId("j.main.0"),
        job=JobId("j"),
        group=GroupId("j.main"),
        profiles=profiles,
    )


def table_of(**cpus: int) -> WorkerTable:
    """Workers with so many free of 8 CPUs; `c` has a GPU as well."""
    table = WorkerTable()
    for name, cpu in cpus.items():
        gpus = (Device(id="0", memory_bytes=8 * GIB),) if name == "c" else ()
        capacity = Capacity(cpu_milli=8_000, memory_bytes=8 * GIB, devices=gpus)
        view = WorkerView.idle(NodeId(name), capacity)
        table.put(view)
        if cpu < 8:
            table.take(NodeId(name), Profile(cpu_milli=(8 - cpu) * 1_000))
    return table


def test_workers_with_room_come_first_then_those_that_will_have_some() -> None:
    table = table_of(a=1, b=8)
    policy = Registry({}).make("simple")

    found = plan(task_of(Profile(cpu_milli=4_000)), 3, table, policy, Random(0))

    assert [(p.node, p.when, p.slots) for p in found.prospects] == [
        (B, "now", 2),
        (A, "later", 0),
    ]
    assert found.room == 2
    assert found.prospects[1].why == "1 of 8 CPUs free, 4 needed"


def test_what_no_worker_has_is_never_and_something_helps() -> None:
    table = table_of(a=8, b=8)
    policy = Registry({}).make("simple")

    found = plan(
        task_of(Profile(cpu_milli=1_000, gpu=GpuNeed(count=2))),
        1,
        table,
        policy,
        Random(0),
    )

    assert {p.when for p in found.prospects} == {"never"}
    assert found.room == 0
    assert found.helps


def test_the_first_wish_that_fits_is_planned() -> None:
    table = table_of(a=8, c=8)
    policy = Registry({}).make("simple")
    many = Profile(cpu_milli=1_000, gpu=GpuNeed(count=2))
    one = Profile(cpu_milli=1_000, gpu=GpuNeed(count=1))

    found = plan(task_of(many, one), 1, table, policy, Random(0))

    assert [(p.node, p.when) for p in found.prospects] == [(C, "now"), (A, "never")]


def test_a_plan_takes_nothing() -> None:
    table = table_of(a=8, b=8)
    before = [table.view(node) for node in table.nodes()]

    plan(
        task_of(Profile(cpu_milli=4_000)),
        4,
        table,
        Registry({}).make("balanced"),
        Random(0),
    )

    assert [table.view(node) for node in table.nodes()] == before


def test_a_plan_says_where_the_code_is_and_begins_there() -> None:
    table = table_of(a=8, b=8)
    view = table.view(B)
    assert view is not None
    work = Work(workdir="tree:abc-1", image="i")
    table.put(msgspec.structs.replace(view, warm=marks_of(work)[:1]))
    task = msgspec.structs.replace(task_of(Profile(cpu_milli=4_000)), work=work)

    found = plan(task, 1, table, Registry({}).make("balanced"), Random(0))

    assert [(p.node, p.why) for p in found.prospects] == [(B, "code cached"), (A, "")]


def test_leases_that_are_kept_are_room_and_come_first() -> None:
    table = table_of(a=8, b=0)
    task = task_of(Profile(cpu_milli=4_000))
    policy = Registry({}).make("balanced")

    found = plan(task, 4, table, policy, Random(0), idle=[{B: 1}])

    assert [(p.node, p.when, p.slots) for p in found.prospects] == [
        (B, "now", 1),
        (A, "now", 2),
    ]
    assert found.room == 3


@pytest.mark.parametrize("name", Registry({}).names())
def test_tasks_that_want_a_node_each_get_one_each(name: str) -> None:
    table = table_of(a=8, b=8)
    task = msgspec.structs.replace(task_of(Profile(cpu_milli=1_000)), alone=True)
    policy = Registry({}).make(name)

    found = plan(task, 3, table, policy, Random(0), gang=GangNeed(3))

    assert sorted(found.chosen) == [A, B]
    assert found.room == 2
