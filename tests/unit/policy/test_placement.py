"""Placing tasks on workers, and saying why not."""

from random import Random

import msgspec
import pytest
from tests.unit.policy.pools import gpus, needs, table_of, worker

from shoal.model.ids import NodeId
from shoal.model.resources import GIB, Capacity, Profile
from shoal.policy.explanation import INSTALL, explain
from shoal.policy.placement import place
from shoal.policy.ranking.rankings import Balanced
from shoal.policy.table import shortlist
from shoal.policy.table.shortlist import SHORTLISTS_MIN
from shoal.policy.table.task_shapes import TaskShape
from shoal.policy.worker_view import WorkerView

A, B = NodeId("a"), NodeId("b")
BALANCED = Balanced()


def test_one_worker_takes_several_tasks_while_it_has_room() -> None:
    table = table_of(worker("a", cpus=4))

    placed = place(needs(cpus=1), 9, table, BALANCED, Random(1))

    assert placed.nodes == [A, A, A, A]


def test_giving_all_bookings_back_leaves_the_table_as_it_was() -> None:
    table = table_of(worker("a", cpus=4), worker("b", cpus=2))
    before = [table.view(node) for node in table.nodes()]

    placed = place(needs(cpus=1), 5, table, BALANCED, Random(1))
    for taken in placed.takens:
        table.give(taken)

    assert [table.view(node) for node in table.nodes()] == before


def test_no_worker_gets_more_than_allowed() -> None:
    table = table_of(worker("a"), worker("b"))

    placed = place(needs(cpus=1), 5, table, BALANCED, Random(1), at_most=2)

    assert placed.nodes == [A, B, A, B]


def test_excluded_workers_are_not_chosen_and_come_back_later() -> None:
    table = table_of(worker("a"), worker("b"))

    first = place(needs(cpus=1), 1, table, BALANCED, Random(1), exclude=[A])
    second = place(needs(cpus=1), 1, table, BALANCED, Random(1))

    assert first.nodes == [B]
    assert second.nodes == [A]


def test_shares_of_two_devices_need_room_on_both() -> None:
    table = table_of(worker("a", devices=gpus(2)))
    table.take(A, needs(count=1, milli=700))
    halves = needs(count=2, milli=500)

    assert place(halves, 1, table, BALANCED, Random(1)).nodes == []
    assert not table.row(0).fits(table.need(TaskShape(halves)))
    assert place(needs(count=2, milli=300), 1, table, BALANCED, Random(1)).nodes == [A]


def test_a_worker_that_is_too_far_away_is_not_chosen() -> None:
    table = table_of(worker("a", path_cost_us=80_000))

    assert not place(needs(), 1, table, BALANCED, Random(1), rtt_max_us=50_000).takens
    assert place(needs(), 1, table, BALANCED, Random(1)).nodes == [A]


def test_shapes_that_were_not_used_for_long_are_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(shortlist, "ROWS_KEPT_MAX", 2 * SHORTLISTS_MIN)
    table = table_of(worker("a"), worker("b"))
    shapes = [TaskShape(Profile(disk_bytes=disk)) for disk in range(SHORTLISTS_MIN)]
    made = [table.shortlist(shape, BALANCED) for shape in shapes]

    table.shortlist(shapes[0], BALANCED)
    table.shortlist(TaskShape(Profile(disk_bytes=1_000)), BALANCED)

    assert table.shortlist(shapes[0], BALANCED) is made[0]
    assert table.shortlist(shapes[1], BALANCED) is not made[1]


def test_an_explanation_counts_reasons_and_names_workers() -> None:
    table = table_of(worker("a", cpus=2), worker("b", cpus=2), worker("c", cpus=8))

    answer = explain(needs(cpus=4), table)

    assert answer.fitting == 1
    assert [(each.node, each.reason) for each in answer.rejected] == [
        ("a", "has 2 CPUs, 4 needed"),
        ("b", "has 2 CPUs, 4 needed"),
    ]
    assert answer.summary == (("has 2 CPUs, 4 needed", 2),)
    assert answer.helps == ()


def test_workers_of_one_kind_are_told_apart_by_what_is_free_there() -> None:
    table = table_of(*(worker(name, devices=gpus(4)) for name in "ab"))
    table.take(A, needs(count=2))
    table.take(B, needs(count=3))

    answer = explain(needs(count=3), table)

    assert [each.reason for each in answer.rejected] == [
        "2 of 4 GPUs free, 3 needed",
        "1 of 4 GPUs free, 3 needed",
    ]


def test_too_many_gpus_for_any_node_can_be_fewer_or_spread() -> None:
    table = table_of(*(worker(name, devices=gpus(2)) for name in "abcd"))

    answer = explain(needs(count=8, gib=8), table)

    assert answer.helps == (
        "--gpus 2",
        "nodes: 4 with gpu: 2",
        "wait for a node with 8 GPUs",
    )


def test_a_smaller_gpu_memory_or_any_model_may_help() -> None:
    table = table_of(
        worker("a", devices=gpus(1, gib=24)), worker("b", devices=gpus(1, gib=16))
    )

    assert explain(needs(count=1, gib=80), table).helps == ("--gpu-mem 24GB",)
    assert explain(needs(count=1, models=("T4",)), table).helps == ("any gpu model",)


def test_a_busy_worker_is_worth_waiting_for() -> None:
    table = table_of(worker("a", cpus=4), worker("b", cpus=4))
    table.take(A, needs(cpus=3))
    for _ in range(4):
        table.take(B, needs(cpus=1))

    answer = explain(needs(cpus=2), table)

    assert answer.helps == (
        "--cpus 1",
        "wait until tasks end on a worker that is large enough",
    )


def test_a_worker_that_left_is_no_help() -> None:
    table = table_of(worker("a", cpus=4), worker("b", cpus=2))
    table.remove(A)

    assert explain(needs(cpus=8), table).helps == ("--cpus 2",)
    assert explain(needs(), table, driver="container").helps == (
        "another driver than container: 1 worker",
    )


def test_a_draining_worker_is_not_worth_waiting_for() -> None:
    leaving = msgspec.structs.replace(worker("a", cpus=4), draining=True)

    assert explain(needs(cpus=2), table_of(leaving)).helps == ()


def test_each_condition_has_its_own_way_out() -> None:
    table = table_of(worker("a", path_cost_us=80_000))
    labels = (("region", "eu"),)

    assert explain(Profile(memory_bytes=65 * GIB), table).helps == ("--ram 64GB",)
    assert explain(Profile(disk_bytes=200 * GIB), table).helps == ("--disk 100GB",)
    assert explain(Profile(), table, rtt_max_us=9).helps == ("max_rtt: 80ms",)
    assert explain(Profile(), table, driver="container").helps == (
        "another driver than container: 1 worker",
    )
    assert explain(Profile(labels=labels), table).helps == (
        "without the label region=eu: 1 worker",
        "`shoal up --label region=eu` on a machine of that kind",
    )
    bare = WorkerView.idle(NodeId("b"), Capacity(lacks=("torch",)))
    assert explain(Profile(modules=("torch",)), table_of(bare)).helps == (
        f"{INSTALL} on the worker",
    )


def test_an_explanation_reads_as_text() -> None:
    table = table_of(worker("a", cpus=2), worker("b", cpus=2))

    assert str(explain(needs(cpus=4), table)) == (
        "0 of 2 workers could run it now\n"
        "     2  has 2 CPUs, 4 needed\n"
        "fixes:  --cpus 2"
    )


def test_nothing_helps_when_there_are_no_workers() -> None:
    answer = explain(needs(cpus=4), table_of())

    assert answer.helps == ()
    assert answer.rejected == ()
