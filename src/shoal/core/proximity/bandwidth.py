"""Bandwidth in classes: powers of two of a megabit per second.

What is measured is never more than what a link could carry: the other end may be slow,
the link in use, or the transfer over before it was at full speed. So the best of the
last few measurements counts. It is given up as soon as none of these confirms it.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final, final

from shoal.protocol.limits import BANDWIDTH_CLASS_MAX, NARROW_MAX

if TYPE_CHECKING:
    from shoal.model.ids import NodeId

MEGABIT: Final = 1_000_000
KEPT: Final = 4
"""Measurements of one link, of which the best counts."""

QUICKEST_S: Final = 1e-4
"""Nothing is measured to be quicker than this: clocks are not that exact."""


def class_of(bits_s: float) -> int:
    """Return the class of a link that carries so much; 1 at least."""
    return min(BANDWIDTH_CLASS_MAX, max(1, int(bits_s / MEGABIT).bit_length()))


def bits_s_of(bandwidth: int) -> int:
    """Return what a link of a class carries at least, in bits per second."""
    return MEGABIT << max(0, bandwidth - 1)


def bandwidth_text(bandwidth: int) -> str:
    """Say what a link of a class carries."""
    megabits = bits_s_of(bandwidth) // MEGABIT
    return f"{megabits} Mbit/s" if megabits < 1_024 else f"{megabits >> 10} Gbit/s"


@final
class MeasuredLinks:
    """What was measured of the links from peers to this node."""

    def __init__(self) -> None:
        self._measured: dict[NodeId, deque[int]] = {}
        self.uplink = 0  # the class of the widest link
        # Links that carry less than that, the narrowest first.
        self.narrow: tuple[tuple[NodeId, int], ...] = ()

    def note(self, peer: NodeId, size: int, took_s: float) -> None:
        """Note that so many bytes came from a peer in this time."""
        found = class_of(8 * size / max(QUICKEST_S, took_s))
        self._measured.setdefault(peer, deque(maxlen=KEPT)).append(found)
        self._compare()

    def forget(self, peer: NodeId) -> None:
        """Forget a peer."""
        if self._measured.pop(peer, None) is not None:
            self._compare()

    def count(self, peer: NodeId) -> int:
        """Return how many measurements there are of one link."""
        return len(self._measured.get(peer, ()))

    def get(self, peer: NodeId) -> int:
        """Return the class of one link; 0 if it was never measured."""
        return max(self._measured.get(peer, ()), default=0)

    def _compare(self) -> None:
        best = {peer: max(each) for peer, each in self._measured.items()}
        self.uplink = max(best.values(), default=0)
        order = sorted((each, peer) for peer, each in best.items())
        less = [(peer, each) for each, peer in order if each < self.uplink]
        self.narrow = tuple(less[:NARROW_MAX])
