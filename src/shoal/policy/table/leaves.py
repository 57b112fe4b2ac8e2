"""Leaf switches: which workers sit under one, for gangs that stay together.

A worker's leaf is what its owner declared as the label `leaf`. Without that, workers
that are as near to this node as only its own network is share one leaf, and any other
has a leaf to itself: nothing says whether two distant workers are together.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Collection

    from shoal.model.ids import NodeId
    from shoal.policy.table.rows import WorkerRow
    from shoal.policy.table.task_shapes import TaskShape
    from shoal.policy.table.worker_table import WorkerTable

LABEL: Final = "leaf"
LOCAL: Final = "local network"
LOCAL_US: Final = 500
"""A round trip within one network takes no longer."""


def leaf_of(row: WorkerRow) -> str:
    """Return the leaf of a worker."""
    for key, value in row.capacity.labels:
        if key == LABEL:
            return f"{LABEL} {value}"
    return LOCAL if row.path_cost_us <= LOCAL_US else f"alone {row.node}"


def leaves(table: WorkerTable) -> dict[str, list[NodeId]]:
    """Return the workers of each leaf; leaves and workers are in order."""
    found: dict[str, list[NodeId]] = {}
    for index in table.grid.order().tolist():
        row = table.row(index)
        found.setdefault(leaf_of(row), []).append(row.node)
    return dict(sorted(found.items()))


def snuggest(
    shape: TaskShape, count: int, table: WorkerTable, exclude: Collection[NodeId] = ()
) -> list[NodeId]:
    """Return the workers of the leaf with room for `count` tasks and least beyond.

    No workers if no leaf has room. Large leaves stay free for large gangs.
    """
    best: tuple[int, list[NodeId]] | None = None
    for nodes in leaves(table).values():
        slots = 0
        for node in nodes:
            view = table.view(node)
            assert view is not None
            if node not in exclude and view.fits(shape):
                slots += view.ledger.use_up(shape.profile, 2 * count)
        if slots >= count and (best is None or slots < best[0]):
            best = (slots, nodes)
    return [] if best is None else best[1]


def elsewhere(table: WorkerTable, nodes: Collection[NodeId]) -> list[NodeId]:
    """Return all workers but those under the leaves of `nodes`."""
    kept = dict.fromkeys(nodes)
    return [
        node
        for others in leaves(table).values()
        if not any(other in kept for other in others)
        for node in others
    ]
