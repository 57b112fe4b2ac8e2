"""How often the busiest key of the DHT is asked, in a shoal of any size.

Nothing but the directory is simulated, so a million nodes are few enough. All nodes
have left their records. Then, for a span of time, some leave and others come in their
place, each with the keys of its capacity, and nodes that submit look for workers.
"""

from __future__ import annotations

from math import log
from random import Random
from typing import TYPE_CHECKING, Any, Final

from shoal.lab.scale.crowd import JOB_EVERY_S, SESSION_S, SUBMIT_SHARE
from shoal.lab.scale.directory import BranchedDirectory
from shoal.model.directory.capability import ANY, capability_keys
from shoal.model.ids import NodeId
from shoal.model.resources import GIB, Capacity, Device

if TYPE_CHECKING:
    from collections.abc import Callable

SPAN_S: Final = 60.0
LIMIT: Final = 64
RARE: Final = 100
"""One node of so many has a GPU that few have."""

CAPACITIES: Final = (
    Capacity(4_000, 8 * GIB),
    Capacity(16_000, 64 * GIB),
    Capacity(8_000, 32 * GIB, devices=(Device("g", "nvidia", "RTX3090", 24 * GIB),)),
)
SPECIAL: Final = Capacity(
    64_000, 512 * GIB, devices=(Device("g", "nvidia", "H100", 80 * GIB),)
)


def directory_load(
    nodes: int, seed: int, *, from_root: bool, progress: Callable[[float], None]
) -> dict[str, Any]:
    """Return how often keys are asked; `from_root`: as if everybody began there."""
    rng = Random(f"{seed}/{nodes}/directory")
    directory = BranchedDirectory(rng)
    believed = 1 if from_root else nodes
    for number in range(nodes):
        directory.provide(NodeId(f"n{number}"), _keys(number), believed)
        if number % 1_000 == 0:
            progress(0.9 * number / nodes)
    directory.reset()
    came = round(nodes * log(2) / SESSION_S * SPAN_S)
    for number in range(nodes, nodes + came):
        directory.forget(NodeId(f"n{rng.randrange(nodes)}"))
        directory.provide(NodeId(f"n{number}"), _keys(number), believed)
    asked = round(nodes / SUBMIT_SHARE / JOB_EVERY_S * SPAN_S)
    found: list[int] = []
    for number in range(asked):
        key = "gpu-model/H100" if number % 10 == 0 else ANY
        found.append(len(directory.find(key, LIMIT, believed)[0]))
        if number % 1_000 == 0:
            progress(0.9 + 0.1 * number / asked)
    progress(1.0)
    (key, visits), *_ = directory.visits.most_common(1) or [("", 0)]
    return {
        "benchmark": "scale-directory",
        "nodes": nodes,
        "seed": seed,
        "from_root": from_root,
        "came": came,
        "looked_up": asked,
        "asked_per_node_s": round(directory.asked / nodes / SPAN_S, 5),
        "busiest_key": key,
        "busiest_key_per_s": round(visits / SPAN_S, 3),
        "found_least": min(found, default=0),
    }


def _keys(number: int) -> tuple[str, ...]:
    if number % RARE == 0:
        return capability_keys(SPECIAL)
    return capability_keys(CAPACITIES[number % len(CAPACITIES)])
