"""Which workers are near each other in the network."""

from __future__ import annotations

from shoal.model.ids import NodeId
from shoal.model.resources import Capacity, Profile
from shoal.policy.table import domains
from shoal.policy.table.task_shapes import TaskShape
from shoal.policy.table.worker_table import WorkerTable, WorkerView

ONE_CPU = TaskShape(Profile(cpu_milli=1_000))


def table(*workers: tuple[str, int, str, int]) -> WorkerTable:
    """Make workers of: name, cpus, leaf (empty: not declared), path cost in us."""
    made = WorkerTable()
    for name, cpus, leaf, cost in workers:
        labels = (("leaf", leaf),) if leaf else ()
        capacity = Capacity(cpu_milli=1_000 * cpus, labels=labels)
        made.put(WorkerView.idle(NodeId(name), capacity, path_cost_us=cost))
    return made


def test_leaves_are_declared_or_measured() -> None:
    made = table(
        ("a", 1, "rack7", 90_000),
        ("b", 1, "rack7", 1),
        ("near1", 1, "", 0),
        ("near2", 1, "", 499),
        ("far1", 1, "", 501),
        ("far2", 1, "", 501),
    )

    assert domains.leaves(made) == {
        ("", "", "alone far1"): ["far1"],
        ("", "", "alone far2"): ["far2"],
        ("", "", "leaf rack7"): ["a", "b"],
        ("", "", "local network"): ["near1", "near2"],
    }


def test_a_gang_goes_where_it_fits_most_snugly() -> None:
    made = table(("a", 4, "x", 1), ("b", 4, "x", 1), ("c", 2, "y", 1), ("d", 1, "y", 1))

    assert domains.snuggest(ONE_CPU, 3, made) == ["c", "d"]
    assert domains.snuggest(ONE_CPU, 4, made) == ["a", "b"]
    assert domains.snuggest(ONE_CPU, 3, made, [NodeId("c")]) == ["a", "b"]
    assert domains.snuggest(ONE_CPU, 9, made) == []


def test_what_is_taken_is_no_room() -> None:
    made = table(("a", 4, "x", 1), ("c", 3, "y", 1))
    made.take(NodeId("c"), ONE_CPU.profile)

    assert domains.snuggest(ONE_CPU, 3, made) == ["a"]


def test_elsewhere_is_everybody_under_other_leaves() -> None:
    made = table(("a", 1, "x", 1), ("b", 1, "x", 1), ("c", 1, "y", 1), ("d", 1, "", 1))

    assert domains.elsewhere(made, [NodeId("b")]) == ["c", "d"]
