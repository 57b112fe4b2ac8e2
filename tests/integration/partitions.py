"""Split a shoal in two while both sides work, join it again, and time agreement."""

from functools import partial
from typing import NamedTuple

from tests.integration.islands import Islands
from tests.integration.live_shoal import LiveNode, LiveShoal, eventually
from tests.integration.live_work import Work, violations

SEEN_S = 30.0
PATIENCE_S = 120.0


class Healed(NamedTuple):
    """How long it took, after the cable was mended, until both sides agreed."""

    linked_s: float  # every scheduler knew all workers again
    whole_s: float  # and a gang that needs all of them had begun


def split_and_heal(shoal: LiveShoal, net: Islands, left: int) -> Healed:
    """Let the shoal work through a split; raise if anything is lost or doubled.

    The first node takes jobs on the left, and the first behind the cable on the right.
    """
    sides = shoal.nodes[:left], shoal.nodes[left:]
    works = [Work(shoal), Work(shoal, sides[1][0])]
    for work in works:
        shoal.meet(PATIENCE_S, work.boss)
    works[0].order("before", {"array": 2 * len(shoal.workers)}, seconds=2.0)
    eventually(lambda: len(works[0].begun("before")) > left, PATIENCE_S)

    net.split()
    for work, side, name in zip(works, sides, ("l", "r"), strict=True):
        work.order(f"{name}-during", {"array": len(side)}, seconds=0.5)
    for work, side in zip(works, sides, strict=True):
        eventually(partial(_knows_only, work.boss, shoal, side), SEEN_S)
        work.finish(PATIENCE_S)  # Each side goes on alone.
    works[0].order("whole", {"nodes": 2 * len(shoal.workers)}, seconds=0.5)

    net.heal()
    linked_s = max(shoal.meet(PATIENCE_S, work.boss) for work in works)
    gang = 2 * len(shoal.workers)
    whole_s = eventually(lambda: len(works[0].begun("whole")) == gang, PATIENCE_S)
    for work in works:
        work.finish(PATIENCE_S)
        found = violations(work, rerun=["before"])
        assert not found, "\n".join(found)
    return Healed(linked_s, linked_s + whole_s)


def _knows_only(boss: LiveNode, shoal: LiveShoal, side: list[LiveNode]) -> bool:
    known = boss.views().keys()
    return all((node.id in known) == (node in side) for node in shoal.nodes)
