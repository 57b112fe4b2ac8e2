"""Probes: a few hundred kilobytes of no use, to learn what a link carries.

A probe has two parts: `FIRST_BYTES`, and the rest only if these came quickly, so that a
narrow link is not held up. How long it takes counts from the question to the last byte,
less one round trip.

Probes are rare. A node has a budget for those it asks for, and another for those it
answers, of which one peer can take only its own share. Both refill slowly. Nothing is
asked or answered while this node has tasks or moves blobs: they need the network, and
what they move is measured anyway.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

import msgspec

from shoal.protocol.limits import PROBE_BYTES_MAX, PROBE_PIECE_BYTES_MAX
from shoal.protocol.proximity.messages import ProbePiece, ProbeWanted

if TYPE_CHECKING:
    from shoal.model.ids import NodeId

FIRST_BYTES: Final = PROBE_PIECE_BYTES_MAX
REST_BYTES: Final = PROBE_BYTES_MAX
SLOW_S: Final = 0.1
"""After a first part that took longer, the rest is not asked for."""

LATE_S: Final = 15.0
"""A probe that takes longer is given up."""

PAUSE_S: Final = 0.5
"""Between two probes of one node."""

SOON_S: Final = 20.0
AGAIN_S: Final = 1_800.0
"""Between two probes of one link, until there are `ENOUGH`, and from then on."""

ENOUGH: Final = 2
BUDGET_BYTES: Final = 8 << 20
REFILL_BYTES_S: Final = 1_024.0
"""What a node asks for at once and per second, and as much that it answers."""

PEER_BYTES: Final = 4 * (FIRST_BYTES + REST_BYTES)
PEER_REFILL_BYTES_S: Final = 256.0
"""What one peer gets at once and per second."""

ZEROS: Final = bytes(PROBE_PIECE_BYTES_MAX)


@final
class ByteBudget:
    """Bytes that may be spent: some at once, and a few more every second."""

    __slots__ = ("_at", "_left", "_most", "_per_s")

    def __init__(self, most: int, per_s: float) -> None:
        self._most, self._per_s = most, per_s
        self._left, self._at = float(most), 0.0  # full since the beginning of time

    def has(self, size: int, now: float) -> bool:
        """Whether so many bytes may be spent now."""
        self._left = min(self._most, self._left + (now - self._at) * self._per_s)
        self._at = now
        return self._left >= size

    def spend(self, size: int) -> None:
        """Take so many bytes, which it has."""
        self._left -= size


class _Probe(msgspec.Struct, gc=False):
    peer: NodeId
    number: int
    size: int
    asked_at: float
    came: int = 0


@final
class Probes:
    """The probes that one node asks for and answers."""

    def __init__(self) -> None:
        self._numbers = 0
        self._open: _Probe | None = None
        self._next_at = 0.0  # when the next may begin
        self._due: dict[NodeId, float] = {}
        self._asking = ByteBudget(BUDGET_BYTES, REFILL_BYTES_S)
        self._answering = ByteBudget(BUDGET_BYTES, REFILL_BYTES_S)
        self._peers: dict[NodeId, ByteBudget] = {}

    def forget(self, peer: NodeId) -> None:
        """Forget what was asked of a peer that is not linked any more."""
        self._due.pop(peer, None)
        if self._open is not None and self._open.peer == peer:
            self._open = None

    def may_begin(self, now: float) -> bool:
        """Whether any probe may begin: there is one at a time, within the budget."""
        if self._open is not None:
            if now - self._open.asked_at < LATE_S:
                return False
            self._open = None
        if now < self._next_at:
            return False
        return self._asking.has(FIRST_BYTES + REST_BYTES, now)

    def begin(self, peer: NodeId, known: int, now: float) -> ProbeWanted | None:
        """Ask a peer for a probe, if it is time; `known` measurements are there."""
        if now < self._due.get(peer, 0.0):
            return None
        self._asking.spend(FIRST_BYTES + REST_BYTES)
        self._next_at = now + PAUSE_S
        self._due[peer] = now + (AGAIN_S if known + 1 >= ENOUGH else SOON_S)
        return self._ask(peer, FIRST_BYTES, now)

    def on_piece(
        self, peer: NodeId, piece: ProbePiece, rtt_s: float, now: float
    ) -> tuple[int, float] | ProbeWanted | None:
        """Take some bytes of a probe; return what was measured, or what to ask next."""
        probe = self._open
        if probe is None or probe.peer != peer or probe.number != piece.probe:
            return None  # Late, repeated, or made up.
        probe.came += len(piece.data)
        if probe.came < probe.size:
            return None
        self._open = None
        took_s = now - probe.asked_at - rtt_s
        if probe.size == FIRST_BYTES and took_s < SLOW_S:
            return self._ask(peer, REST_BYTES, now)
        return probe.size, took_s

    def answer(self, peer: NodeId, wanted: ProbeWanted, now: float) -> list[ProbePiece]:
        """Return the bytes that a peer asks for; none if that is too much."""
        share = self._peers.get(peer)
        if share is None:
            if len(self._peers) >= PEERS_MAX:
                del self._peers[next(iter(self._peers))]
            share = self._peers[peer] = ByteBudget(PEER_BYTES, PEER_REFILL_BYTES_S)
        size = wanted.size
        if not (share.has(size, now) and self._answering.has(size, now)):
            return []
        share.spend(size)
        self._answering.spend(size)
        whole, rest = divmod(size, PROBE_PIECE_BYTES_MAX)
        pieces = [ZEROS] * whole + ([ZEROS[:rest]] if rest else [])
        return [ProbePiece(probe=wanted.probe, data=data) for data in pieces]

    def _ask(self, peer: NodeId, size: int, now: float) -> ProbeWanted:
        self._numbers += 1
        self._open = _Probe(peer, self._numbers, size, now)
        return ProbeWanted(probe=self._numbers, size=size)


PEERS_MAX: Final = 4_096
"""Peers whose share is remembered; it outlives their links."""
