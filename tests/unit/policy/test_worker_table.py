"""The table of workers: reports, bookings, and rows that are used again."""

from random import Random

import msgspec
from tests.unit.policy.pools import capacity, gpus, needs, table_of, worker

from shoal.model.ids import NodeId
from shoal.model.resources import GIB, Capacity, Device, DeviceShare
from shoal.policy.placement import place
from shoal.policy.ranking.rankings import Simple
from shoal.policy.table.task_shapes import KINDS_MAX

A = NodeId("a")


def test_a_worker_comes_back_as_it_was_put() -> None:
    view = worker("a", devices=gpus(2), path_cost_us=300)

    table = table_of(view)

    assert table.view(A) == view
    assert A in table
    assert len(table) == 1


def test_nodes_are_sorted() -> None:
    table = table_of(worker("c"), worker("a"), worker("b"))

    assert table.nodes() == ["a", "b", "c"]


def test_a_removed_worker_is_gone_and_its_row_is_used_again() -> None:
    table = table_of(worker("a"), worker("b"))
    assert table.nodes() == ["a", "b"]

    table.remove(A)
    table.remove(A)
    assert table.nodes() == ["b"]
    table.put(worker("c"))

    assert table.nodes() == ["b", "c"]
    assert table.view(A) is None
    assert len(table.grid.rows) == 2


def test_a_booking_takes_the_devices_that_the_worker_would_choose() -> None:
    table = table_of(worker("a", devices=gpus(2)))

    first = table.take(A, needs(cpus=1, count=1, milli=250))
    second = table.take(A, needs(count=1, milli=500))

    assert first.allocation.shares == (DeviceShare("0", 250, 20 * GIB),)
    assert second.allocation.shares == (DeviceShare("0", 500, 40 * GIB),)
    view = table.view(A)
    assert view is not None
    assert view.gpu_milli == (250, 1000)
    assert view.gpu_memory == (20 * GIB, 80 * GIB)
    assert view.cpu_milli == 15_000
    assert view.active == 2


def test_a_booking_passes_over_a_device_that_has_a_share_and_no_memory() -> None:
    table = table_of(worker("a", devices=gpus(3)))
    table.set_load(
        A, gpu_milli=(500, 500, 1000), gpu_memory=(0, 40 * GIB, 80 * GIB), active=2
    )

    taken = table.take(A, needs(count=1, milli=250))

    assert taken.allocation.shares == (DeviceShare("1", 250, 20 * GIB),)


def test_giving_back_a_booking_restores_the_worker_once() -> None:
    before = worker("a", devices=gpus(2))
    table = table_of(before)
    taken = table.take(A, needs(cpus=4, count=1))
    table.take(A, needs(cpus=2))

    table.give(taken)
    table.give(taken)

    assert table.view(A) == msgspec.structs.replace(before, cpu_milli=14_000, active=1)


def test_a_report_replaces_the_bookings_before_it() -> None:
    table = table_of(worker("a"))
    taken = table.take(A, needs(cpus=4))

    table.set_load(A, cpu_milli=12_000, active=1)
    table.give(taken)

    view = table.view(A)
    assert view is not None
    assert view.cpu_milli == 12_000
    assert view.active == 1


def test_a_room_counts_as_free_for_the_moment_though_a_report_says_it_is_taken() -> (
    None
):
    table = table_of(worker("a", devices=gpus(1)))
    taken = table.take(A, needs(cpus=1, count=1))
    table.set_load(A, cpu_milli=15_000, gpu_milli=(0,), gpu_memory=(0,), active=1)
    reported = table.view(A)

    with table.freed([taken, taken]):
        within = table.view(A)

    assert within is not None
    assert (within.cpu_milli, within.gpu_milli) == (16_000, (1_000,))
    assert table.view(A) == reported


def test_a_report_cannot_claim_more_than_the_capacity() -> None:
    table = table_of(worker("a", cpus=2, devices=gpus(2)))

    table.set_load(
        A,
        cpu_milli=9_000,
        gpu_milli=(5_000,),
        gpu_memory=(1 << 50, 5, 5),
        draining=True,
    )

    view = table.view(A)
    assert view is not None
    assert view.cpu_milli == 2_000
    assert view.gpu_milli == (1000, 0)
    assert view.gpu_memory == (80 * GIB, 5)
    assert view.draining


def test_news_of_an_unknown_worker_is_ignored() -> None:
    table = table_of(worker("a"))
    taken = table.take(A, needs(cpus=1))

    table.set_load(NodeId("x"), cpu_milli=1)
    table.set_path_cost(NodeId("x"), 5)
    table.remove(A)
    table.give(taken)

    assert table.nodes() == []


def test_the_path_cost_can_change_alone() -> None:
    table = table_of(worker("a"))

    table.set_path_cost(A, 800)

    view = table.view(A)
    assert view is not None
    assert view.path_cost_us == 800


def test_devices_of_the_same_id_count_as_one() -> None:
    twins = (Device("0", "nvidia", "T4", GIB), Device("0", "nvidia", "T4", 2 * GIB))

    table = table_of(worker("a", devices=twins))

    view = table.view(A)
    assert view is not None
    assert view.capacity.devices == (Device("0", "nvidia", "T4", 2 * GIB),)


def test_kinds_of_devices_that_are_gone_are_forgotten() -> None:
    large = needs(count=1, gib=80)
    table = table_of(worker("b", devices=gpus(1, gib=8)), worker("a", devices=gpus(2)))
    simple = Simple()
    before = place(large, 1, table, simple, Random(1))

    for size in range(KINDS_MAX + 2):
        table.put(worker("b", devices=(Device("0", "nvidia", "T4", size),)))
    after = place(large, 2, table, simple, Random(1))

    assert len(table._kinds) < 10
    assert before.nodes == after.nodes == [A]


def test_a_view_tells_what_a_policy_wants_to_know() -> None:
    view = worker("a", devices=gpus(2))

    assert view.id == "a"
    assert view.free_gpus == 2
    assert view.fits(needs(count=2))
    assert not view.fits(needs(count=3))
    assert view.pick_gpus(needs(count=1)) == ("0",)
    assert view.pick_gpus(needs(count=3)) == ()


def test_capacity_without_anything_fits_only_nothing() -> None:
    view = table_of(worker("a", cpus=0)).view(A)

    assert view is not None
    assert view.capacity == capacity(cpus=0)
    assert view.fits(needs())
    assert not view.fits(needs(cpus=1))
    assert Capacity().devices == ()
