"""Network domains: which workers are near each other.

A worker is at a site, in a pod of leaves and under a leaf switch. Its owner declares
them by the labels `site`, `pod` and `leaf`. A site or pod that is not declared tells
nothing apart. A leaf that is not declared is measured: workers that are near each other
by round trips and bandwidth share one (`core/proximity`). Until that is known, workers
that are as near to this node as only its own network is share one, and any other has a
leaf to itself.

How narrow the network above a leaf is, its owner declares by the label
`oversubscription`: the bandwidth of all workers under it by that of its uplinks. It is
1 where everybody can talk at full speed to everybody. If it is not declared, it is what
was measured, for a leaf that was measured itself, and 4 for any other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Collection

    from shoal.model.ids import NodeId
    from shoal.policy.table.rows import WorkerRow
    from shoal.policy.table.worker_table import WorkerTable

LEVELS: Final = 3
"""Site, pod and leaf."""

LOCAL: Final = "local network"
LOCAL_US: Final = 500
"""A round trip within one network takes no longer."""

OVERSUBSCRIPTION: Final = "oversubscription"
NARROW: Final = 4.0
"""How oversubscribed a leaf is, if nobody says so."""

NARROWEST: Final = 1_000.0

DomainPath: TypeAlias = tuple[str, ...]
"""The names of a worker's domains, the widest first."""


def path_of(row: WorkerRow) -> DomainPath:
    """Return the site, pod and leaf of a worker."""
    site = pod = leaf = ""
    for key, value in row.capacity.labels:
        if key == "leaf":
            leaf = f"leaf {value}"
        elif key == "pod":
            pod = value
        elif key == "site":
            site = value
    if not leaf:
        leaf = row.site or (
            LOCAL if row.path_cost_us <= LOCAL_US else f"alone {row.node}"
        )
    return site, pod, leaf


def oversubscription_of(row: WorkerRow) -> float:
    """Return how much narrower the network is above a worker's leaf than below."""
    ratio = row.narrow if row.site else 0.0
    for key, value in row.capacity.labels:
        if key == OVERSUBSCRIPTION:
            try:
                ratio = float(value)
            except ValueError:
                return NARROW
            break
        if key == "leaf":
            ratio = 0.0  # What was measured is not of this leaf.
    # Whoever declares nonsense gets what is assumed of all.
    return ratio if 0 < ratio <= NARROWEST else NARROW


def leaves(table: WorkerTable) -> dict[DomainPath, list[NodeId]]:
    """Return the workers of each leaf; leaves and workers are in order."""
    found: dict[DomainPath, list[NodeId]] = {}
    for index in table.grid.order().tolist():
        row = table.row(index)
        found.setdefault(path_of(row), []).append(row.node)
    return dict(sorted(found.items()))


def elsewhere(table: WorkerTable, nodes: Collection[NodeId]) -> list[NodeId]:
    """Return all workers but those under the leaves of `nodes`."""
    kept = dict.fromkeys(nodes)
    return [
        node
        for others in leaves(table).values()
        if not any(other in kept for other in others)
        for node in others
    ]
