"""Which workers are near each other in the network."""

from __future__ import annotations

from shoal.model.ids import NodeId
from shoal.model.resources import Capacity
from shoal.policy.table import domains
from shoal.policy.table.worker_table import WorkerTable, WorkerView


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


def test_elsewhere_is_everybody_under_other_leaves() -> None:
    made = table(("a", 1, "x", 1), ("b", 1, "x", 1), ("c", 1, "y", 1), ("d", 1, "", 1))

    assert domains.elsewhere(made, [NodeId("b")]) == ["c", "d"]
