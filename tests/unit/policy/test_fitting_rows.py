"""Rows to draw from: always those that fit, each with the same chance."""

from collections import Counter
from random import Random

import pytest

from shoal.model.ids import NodeId
from shoal.model.resources import Capacity, Profile
from shoal.policy.table.task_shapes import TaskShape
from shoal.policy.table.worker_table import TakenRoom, WorkerTable, WorkerView

ONE_CPU = TaskShape(Profile(cpu_milli=1_000))


def table_of(count: int, order: Random | None = None) -> WorkerTable:
    """Return a table of workers with 0 to 3 CPUs."""
    numbers = list(range(count))
    if order is not None:
        order.shuffle(numbers)
    table = WorkerTable()
    for number in numbers:
        capacity = Capacity(cpu_milli=1_000 * (number % 4))
        table.put(WorkerView.idle(NodeId(f"w{number:04}"), capacity, path_cost_us=9))
    return table


def names(table: WorkerTable, rows: list[int]) -> list[str]:
    return [table.row(row).node for row in rows]


def test_what_is_drawn_always_fits_however_the_table_changes() -> None:
    table, rng = table_of(200), Random(1)
    fitting = table.fitting(ONE_CPU)
    held: list[TakenRoom] = []
    for step in range(600):
        fitting.catch_up()
        full = {n for n in table.nodes() if not table.row(row_of(table, n)).cpu_milli}
        assert full.isdisjoint(names(table, fitting.draw(8, rng)))
        assert len(fitting.draw(200, rng)) == len(table) - len(full)
        if step % 50 == 49:
            table.remove(rng.choice(table.nodes()))
        elif held and rng.random() < 0.4:
            table.give(held.pop(rng.randrange(len(held))))
        elif drawn := fitting.draw(1, rng):
            fitting.catch_up()
            held.append(table.book(drawn[0], fitting.need))


def row_of(table: WorkerTable, node: NodeId) -> int:
    return table.indices([node])[0]


def test_the_same_rows_are_drawn_in_whatever_order_the_table_got_its_workers() -> None:
    one, other = table_of(400), table_of(400, Random(7))

    drawn = [
        names(table, table.fitting(ONE_CPU).draw(16, Random(3)))
        for table in (one, other)
    ]

    assert drawn[0] == drawn[1]


@pytest.mark.parametrize("count", [10, 30])
def test_every_row_has_the_same_chance(count: int) -> None:
    table, rng = table_of(400), Random(5)  # 300 of them fit
    fitting = table.fitting(ONE_CPU)

    draws = range(30_000 // count)
    counts = Counter(row for _ in draws for row in fitting.draw(count, rng))

    assert len(counts) == 300
    # Each is drawn 100 times, give or take five standard deviations.
    assert min(counts.values()) > 50
    assert max(counts.values()) < 150


def test_none_of_the_nodes_to_skip_is_drawn_and_no_row_twice() -> None:
    table, rng = table_of(400), Random(5)
    fitting = table.fitting(ONE_CPU)
    skip = {NodeId(f"w{number:04}") for number in range(20)}

    for count in (1, 10, 60, 300):
        drawn = names(table, fitting.draw(count, rng, skip))
        assert len(set(drawn)) == len(drawn) == min(count, 285)
        assert skip.isdisjoint(drawn)
