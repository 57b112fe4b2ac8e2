"""Check promises about measuring the network: X1 and X2."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Final, final

from shoal.core.proximity.coordinates import distance_us
from shoal.core.proximity.network_map import NEAR_US
from shoal.core.proximity.probing import (
    BUDGET_BYTES,
    PEER_BYTES,
    PEER_REFILL_BYTES_S,
    REFILL_BYTES_S,
)
from shoal.core.proximity.proximity import Proximity
from shoal.model.ids import NodeId
from shoal.protocol.proximity.messages import ProbePiece, ProbeWanted
from shoal.sim.checkers.violations import Violations
from shoal.sim.node.host import SimHost

WRONG_SHARE: Final = 0.4
"""Share of a round trip by which an honest estimate may be wrong, liars or not."""


@final
class ProximityPromises:
    """Checks the probes of a world, and where its nodes think they are."""

    def __init__(self, violations: Violations, greedy: Sequence[NodeId]) -> None:
        """Check all nodes but the `greedy` ones, who ask for what they should not."""
        self._violations = violations
        self._greedy = tuple(greedy)
        self._asked: dict[tuple[NodeId, int], int] = {}
        self._given: dict[tuple[NodeId, int, NodeId | None], int] = {}

    # X1: probes stay within their budget.

    def asked(self, host: SimHost, peer: NodeId, message: object) -> None:
        """Count what a node asks of others in one life."""
        assert isinstance(message, ProbeWanted)
        if host.id in self._greedy:
            return
        key = (host.id, host.life)
        self._asked[key] = self._asked.get(key, 0) + message.size
        most = BUDGET_BYTES + REFILL_BYTES_S * host.now_local
        if self._asked[key] > most:
            what = f"{host.id} asks for {self._asked[key]} bytes, last of {peer}"
            self._violations.report("X1", what)

    def given(self, host: SimHost, peer: NodeId, message: object) -> None:
        """Count what a node sends: to all, and to one peer."""
        assert isinstance(message, ProbePiece)
        now = host.now_local
        for who, most in (
            (None, BUDGET_BYTES + REFILL_BYTES_S * now),
            (peer, PEER_BYTES + PEER_REFILL_BYTES_S * now),
        ):
            key = (host.id, host.life, who)
            self._given[key] = self._given.get(key, 0) + len(message.data)
            if self._given[key] > most:
                what = f"{host.id} sends {self._given[key]} bytes to {who or 'all'}"
                self._violations.report("X1", what)

    # X2: a liar moves nobody else beyond a bound.

    def check_places(
        self,
        nodes: Mapping[NodeId, Proximity],
        rtts_us: Mapping[frozenset[NodeId], int],
    ) -> None:
        """Compare estimates between honest nodes with what really is between them."""
        for one, other in combinations(sorted(nodes), 2):
            here, there = nodes[one].map.own, nodes[other].map.own
            if here is None or there is None:
                self._violations.report("X2", f"{one} or {other} does not know where")
                continue
            real_us = rtts_us[frozenset((one, other))]
            off_us = abs(distance_us(here, there) - real_us)
            if off_us > max(NEAR_US, WRONG_SHARE * real_us):
                what = f"{one} and {other} are wrong by {off_us:.0f} of {real_us} us"
                self._violations.report("X2", what)
