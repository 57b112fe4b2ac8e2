"""Split a shoal in two while both sides work, join it again, and time agreement."""

import time
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

from tests.integration.islands import Islands
from tests.integration.live_shoal import LiveNode, LiveShoal, eventually
from tests.integration.live_work import Work, violations

SEEN_S = 180.0
PATIENCE_S = 180.0
SLOTS_OF_A_WORKER = 2


class Healed(NamedTuple):
    """How long it took, after the cable was mended, until both sides agreed."""

    linked_s: float  # the scheduler on the left was linked to everybody
    whole_s: float  # a gang that needs all workers had begun


def split_and_heal(shoal: LiveShoal, net: Islands, left: int) -> Healed:
    """Let the shoal work through a split; raise if anything is lost or doubled.

    The first node takes jobs on the left, and the first behind the cable on the right.
    """
    sides = shoal.nodes[:left], shoal.nodes[left:]
    works = [Work(shoal), Work(shoal, sides[1][0])]
    slots = SLOTS_OF_A_WORKER * len(shoal.workers)
    eventually(partial(_is_linked_to, shoal.boss, shoal.nodes), PATIENCE_S)
    works[0].order("before", {"array": slots}, seconds=2.0)
    eventually(lambda: len(works[0].begun("before")) > left, PATIENCE_S)

    net.split()
    for work, side, name in zip(works, sides, ("l", "r"), strict=True):
        work.order(f"{name}-during", {"array": len(side)}, seconds=0.5)
    for work, others in zip(works, reversed(sides), strict=True):
        eventually(partial(_has_lost, work.boss, others), SEEN_S)
        work.finish(PATIENCE_S)  # Each side goes on alone.
    works[0].order("whole", {"nodes": slots}, seconds=0.5)

    net.heal()
    began = time.monotonic()
    eventually(partial(_is_linked_to, shoal.boss, shoal.nodes), PATIENCE_S)
    linked_s = time.monotonic() - began
    eventually(lambda: len(works[0].begun("whole")) == slots, PATIENCE_S)
    whole_s = time.monotonic() - began
    works[1].order("r-after", {"array": slots}, seconds=0.1)
    for work in works:
        work.finish(PATIENCE_S)
        found = violations(work, rerun=["before"])
        assert not found, "\n".join(found)
    return Healed(linked_s, whole_s)


def _is_linked_to(node: LiveNode, others: Sequence[LiveNode]) -> bool:
    return node.views().keys() >= {other.id for other in others}


def _has_lost(node: LiveNode, others: Sequence[LiveNode]) -> bool:
    return node.views().keys().isdisjoint(other.id for other in others)
