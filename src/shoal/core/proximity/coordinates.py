"""Network coordinates: Vivaldi with heights, for peers that may lie.

Each node has a point in space and a height above it. The round trip between two nodes
is about the distance of their points, which stands for the long way, plus both heights,
which stand for the way from each node to where the long way begins. A node that
measures a round trip moves a little towards the peer, or away from it, until the
estimates agree with what is measured. Nobody needs to measure all pairs.

A peer may lie about its point, or answer late. What it can do to others is bounded:
one round trip counts for no more than the usual disagreement with all peers, and for
less the further beyond that it is, so up to a quarter of them may lie: the others
outweigh them. How sure a peer says it is counts for little.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final, final

from shoal.protocol.limits import DISTANCE_US_MAX
from shoal.protocol.proximity.messages import Position

if TYPE_CHECKING:
    from random import Random

    from shoal.model.ids import NodeId

STEP: Final = 0.25
"""Share of a disagreement by which a node moves at once."""

SURE: Final = 0.25
"""A node that is wrong by less than this takes smaller steps: it has arrived."""

ERROR_STEP: Final = 0.1
"""Share by which one round trip changes how sure a node is."""

PEER_ERROR_MIN: Final = 0.1
"""No peer is believed to be more sure than this."""

HEIGHT_MIN_US: Final = 10.0
RTT_MIN_US: Final = 200.0
"""Round trips are not told apart below this: it is what a busy processor adds."""

COARSE_US: Final = 2_000.0
"""Disagreements are shares of a round trip, or of this: nobody needs to know better."""

LIMIT_MIN_US: Final = 1_000.0
"""A disagreement counts for no more than the usual one, or than this.

Twice the limit counts for half of it, and so on. If it counted for all of it, one liar
among five could hold two neighbours apart for seconds: each of them feels the liar as
much as the other.
"""

GRAVITY_US: Final = 1_000_000.0
"""How far from the origin nodes are pulled back by 1 % at once: they drift together."""

Point = tuple[float, float, float]


def distance_us(one: Position, other: Position) -> float:
    """Return how long a round trip between two nodes should take."""
    away = math.dist(_point(one), _point(other))
    return away + one.height_us + other.height_us


def _point(position: Position) -> Point:
    return (position.x_us, position.y_us, position.z_us)


@final
class Coordinates:
    """Where one node is, as far as its round trips tell."""

    def __init__(self, rng: Random) -> None:
        """Start at the origin; `rng` parts nodes that are at the same point."""
        self._rng = rng
        self._at: Point = (0.0, 0.0, 0.0)
        self._height_us = HEIGHT_MIN_US
        self._off_us: dict[NodeId, float] = {}  # disagreement with each peer, last time
        self.error = 1.0  # share of a round trip by which we are wrong, about

    @property
    def position(self) -> Position:
        """This node's point and height, without its links."""
        x, y, z = (round(each) for each in self._at)
        return Position(
            x_us=x,
            y_us=y,
            z_us=z,
            height_us=round(self._height_us),
            error_milli=round(1_000 * self.error),
        )

    def measured(self, peer: NodeId, told: Position, rtt_us: float) -> None:
        """Move so that a round trip to a peer agrees better with where it is."""
        rtt_us = min(max(rtt_us, RTT_MIN_US), DISTANCE_US_MAX)
        away_us = math.dist(self._at, _point(told))
        expected_us = away_us + self._height_us + told.height_us
        off_us = rtt_us - expected_us
        self._off_us[peer] = abs(off_us)
        limit_us = max(LIMIT_MIN_US, self._usual_us())
        peer_error = max(PEER_ERROR_MIN, told.error_milli / 1_000)
        weight = self.error / (self.error + peer_error)
        felt_us = off_us * min(1.0, (limit_us / max(limit_us, abs(off_us))) ** 2)
        wrong = min(1.0, abs(felt_us) / max(rtt_us, COARSE_US))
        self.error += ERROR_STEP * weight * (wrong - self.error)
        step = STEP * weight * min(1.0, self.error / SURE)
        self._move(_point(told), away_us, told.height_us, step * felt_us)

    def _usual_us(self) -> float:
        """Return the third quartile of disagreements with peers.

        Not their median: a node that is wrong about a third of its peers, all of one
        site, would never get to them.
        """
        found = sorted(self._off_us.values())
        return found[(3 * len(found) - 1) // 4]

    def forget(self, peer: NodeId) -> None:
        """Forget a peer that is no longer linked."""
        self._off_us.pop(peer, None)

    def _move(
        self, from_: Point, away_us: float, peer_height_us: float, force_us: float
    ) -> None:
        """Move away from a point, or towards it if the force is below 0."""
        x, y, z = self._at
        if away_us > 1.0:
            unit_x = (x - from_[0]) / away_us
            unit_y = (y - from_[1]) / away_us
            unit_z = (z - from_[2]) / away_us
            # Of what is missing, heights take their share of the whole way.
            heights_us = self._height_us + peer_height_us
            raised_us = force_us * heights_us / (heights_us + away_us)
            height_us = max(HEIGHT_MIN_US, self._height_us + raised_us)
            self._height_us = min(height_us, DISTANCE_US_MAX)
        else:
            unit_x, unit_y, unit_z = self._drawn_unit()
        x += force_us * unit_x
        y += force_us * unit_y
        z += force_us * unit_z
        away = math.hypot(x, y, z)
        pull = max(0.0, 1.0 - 0.01 * (away / GRAVITY_US) ** 2)
        x, y, z = pull * x, pull * y, pull * z
        if away > DISTANCE_US_MAX:  # It is rare, and no part is longer than the whole.
            x, y, z = _bounded(x), _bounded(y), _bounded(z)
        self._at = (x, y, z)

    def _drawn_unit(self) -> Point:
        """Draw a direction, for nodes at the same point."""
        x, y, z = (self._rng.uniform(-1.0, 1.0) for _ in range(3))
        length = math.hypot(x, y, z) or 1.0
        return (x / length, y / length, z / length)


def _bounded(part_us: float) -> float:
    return min(float(DISTANCE_US_MAX), max(-float(DISTANCE_US_MAX), part_us))
