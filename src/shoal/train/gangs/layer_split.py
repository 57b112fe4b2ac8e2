"""Split layers over pipeline stages, so that the slowest stage is fastest.

In a pipeline every micro-batch goes through all stages, so its pace is that of the
slowest: computing its layers, and sending what comes out to the next. Layers stay in
their order; stages are given to peers in any order.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Final

import msgspec

from shoal.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

ORDERS_MAX: Final = 6
"""Peers up to which every order is tried; more stay in the order of their ranks."""


class Layer(msgspec.Struct, frozen=True):
    """A layer's costs: compute per micro-batch, memory, activation bytes."""

    flops: float
    memory_bytes: int
    output_bytes: int


class StagePeer(msgspec.Struct, frozen=True):
    """A peer's speed and memory."""

    flops_per_s: float
    memory_bytes: int


class Split(msgspec.Struct, frozen=True):
    """Peers by stage, the first layer of each stage, and the pace of the slowest."""

    peers: tuple[int, ...]
    starts: tuple[int, ...]
    slowest_s: float


def split(
    layers: Sequence[Layer],
    peers: Sequence[StagePeer],
    bytes_per_s: Sequence[Sequence[float]],
) -> Split:
    """Return the best split; `bytes_per_s` is measured from each peer to each other.

    Every peer gets at least one layer. Ties go to the first order of peers.
    """
    if len(layers) < len(peers):
        raise UsageError(
            f"{len(layers)} layers cannot be split over {len(peers)} peers",
            because="each peer computes at least one",
            hint=f"write `nodes: {len(layers)}` or fewer, or take more layers",
        )
    ranks = range(len(peers))
    orders = itertools.permutations(ranks) if len(peers) <= ORDERS_MAX else [ranks]
    best: Split | None = None
    for order in orders:
        found = _best_cuts(layers, [peers[n] for n in order], order, bytes_per_s)
        if found is not None and (best is None or found.slowest_s < best.slowest_s):
            best = found
    if best is None:
        need = sum(layer.memory_bytes for layer in layers)
        have = sum(peer.memory_bytes for peer in peers)
        raise UsageError(
            "the model does not fit into the memory of these peers",
            because=f"it needs {need >> 20} MiB, and they have {have >> 20} MiB in all",
            hint="take more peers, or a smaller model",
        )
    return best


def _best_cuts(
    layers: Sequence[Layer],
    peers: Sequence[StagePeer],
    order: Sequence[int],
    bytes_per_s: Sequence[Sequence[float]],
) -> Split | None:
    """Cut the layers for peers in this order, by trying all cuts stage by stage."""
    count = len(layers)
    # For each end of the stages so far: the pace of the slowest, and where they begin.
    reached: dict[int, tuple[float, tuple[int, ...]]] = {0: (0.0, ())}
    for stage, peer in enumerate(peers):
        is_last = stage == len(peers) - 1
        following: dict[int, tuple[float, tuple[int, ...]]] = {}
        for start, (slowest, starts) in sorted(reached.items()):
            flops, memory = 0.0, 0
            for end in range(start + 1, count - (len(peers) - stage - 1) + 1):
                flops += layers[end - 1].flops
                memory += layers[end - 1].memory_bytes
                if memory > peer.memory_bytes:
                    break
                if is_last and end != count:
                    continue
                spent_s = flops / peer.flops_per_s
                if not is_last:
                    rate = bytes_per_s[order[stage]][order[stage + 1]]
                    spent_s += layers[end - 1].output_bytes / rate
                pace = max(slowest, spent_s)
                known = following.get(end)
                if known is None or pace < known[0]:
                    following[end] = (pace, (*starts, start))
        reached = following
    if count not in reached:
        return None
    slowest, starts = reached[count]
    return Split(tuple(order), starts, slowest)
