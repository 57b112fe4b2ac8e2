"""Decide which announcements a worker answers, so that not all answer at once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from random import Random

    from shoal.model.resources import Ledger
    from shoal.protocol.messages import Announcement

SPARE: Final = 4.0  # answers wanted per task: some have gone elsewhere by then
BUSY_FROM_SEQ: Final = 2  # workers without room answer only if repeats go on
GROWTH: Final = 4.0  # per repeat: the first estimate may have been far too large


def answer_probability(wanted: int, nodes: int, seq: int) -> float:
    """Return the probability that one of `nodes` workers answers the `seq`-th repeat.

    About `SPARE` answers per wanted task if every node could serve it. If few can,
    the repeats reach certainty after log4(nodes) announcements.
    """
    assert wanted >= 0
    assert seq >= 0
    growth = GROWTH ** min(seq, 32)
    return min(1.0, SPARE * wanted * growth / max(1, nodes))


def answers(wanted: int, nodes: int, seq: int, rng: Random) -> bool:
    """Draw whether this worker answers; a worker that can serve nothing does not."""
    return wanted > 0 and rng.random() < answer_probability(wanted, nodes, seq)


def servable(announcement: Announcement, ledger: Ledger) -> int:
    """Return how many of the wanted tasks are of a profile that fits."""
    return sum(
        want.count
        for want in announcement.wants
        if not isinstance(ledger.fit(want.profile), str)
    )
