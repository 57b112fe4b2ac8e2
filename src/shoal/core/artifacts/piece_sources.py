"""What is known of the peers that serve blobs: their pace and their honesty."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from shoal.protocol.limits import PIECE_BYTES_MAX

if TYPE_CHECKING:
    from shoal.model.ids import NodeId

WINDOW_FIRST: Final = 4 * PIECE_BYTES_MAX
WINDOW_MAX: Final = 64 * PIECE_BYTES_MAX
WINDOW_MIN: Final = 2 * PIECE_BYTES_MAX
"""Bytes that one peer is asked for at a time: at first, at most, and at least if it
answers. While one piece is taken in, another is on its way: a link is never idle."""

SAMPLE_BYTES: Final = 1 << 20
"""Bytes that tell how much a link carries."""

ROOM_MIN: Final = 4_096
"""Less room than this is none: no piece counts less."""

QUEUE_S: Final = 0.15
"""How much longer than the quickest an answer may take before we ask for less."""

SLOWER: Final = 0.7
LATE_MIN_S: Final = 4.0
LATE_MAX_S: Final = 15.0
LATE_FIRST_S: Final = 5.0
REST_S: Final = 1.0
REST_MAX_S: Final = 5.0
WRONG_MAX: Final = 3
DISTRUST_S: Final = 600.0
"""A peer that sent too many wrong pieces is not asked for this long."""

KNOWN_MAX: Final = 4_096
FORGET_QUICKEST: Final = 1.001
"""By which the quickest answer is forgotten with every other: ways change."""


@final
class Source:
    """One peer, as far as blobs go. `under_way` counts bytes asked for."""

    def __init__(self) -> None:
        self.under_way = 0
        self.wrong = 0
        self.window = float(WINDOW_FIRST)
        self._quickest_s: float | None = None
        self._typical_s = LATE_FIRST_S / 4
        self._late_in_a_row = 0
        self._resting_until = 0.0
        self._slowed_at = 0.0  # what was asked before says nothing new
        self.answered_at = 0.0
        self.lost_at: float | None = None  # since when there is no link to it
        self.heard_at = 0.0  # or when it was asked, while nothing was under way
        self._came, self._came_since = 0, 0.0  # bytes, while some are always under way

    def room(self, now: float) -> int:
        """Return how many bytes more it may be asked for."""
        if now < self._resting_until:
            return 0
        return int(self.window) - self.under_way

    def batch(self) -> int:
        """Return how many bytes are worth a question: piece by piece costs more."""
        return int(self.window) // 4

    def asked(self, cost: int, now: float) -> None:
        """Note that it was asked for `cost` bytes."""
        if not self.under_way:
            self.heard_at = self._came_since = now
            self._came = 0
        self.under_way += cost

    def answered(self, cost: int, took_s: float, now: float) -> None:
        """Note an answer, and ask for more or less from now on."""
        self.under_way -= cost
        self.answered_at = self.heard_at = now
        self._came += cost
        quickest_s = min(took_s, (self._quickest_s or took_s) * FORGET_QUICKEST)
        self._quickest_s = quickest_s
        self._typical_s += (took_s - self._typical_s) / 8
        self._late_in_a_row = 0
        if took_s <= quickest_s + QUEUE_S:
            self.window = min(WINDOW_MAX, self.window + cost)
        elif now - took_s >= self._slowed_at:
            # Once for all that was under way: it waited in the same queue.
            self.window = max(WINDOW_MIN, self.window * SLOWER)
            self._slowed_at = now

    def sample(self, now: float) -> tuple[int, float] | None:
        """Return how many bytes came in which time, if they are enough to tell."""
        if self._came < SAMPLE_BYTES:
            return None
        found = self._came, now - self._came_since
        self._came, self._came_since = 0, now
        return found

    def late_at(self) -> float | None:
        """When to stop waiting for it, if it owes something."""
        if not self.under_way:
            return None
        patience_s = min(LATE_MAX_S, max(LATE_MIN_S, 4 * self._typical_s))
        return self.heard_at + patience_s

    def was_late(self, now: float) -> None:
        """Ask it for less, and not at once."""
        self.window = float(PIECE_BYTES_MAX)
        self._late_in_a_row += 1
        self.rest(now)

    def rest(self, now: float) -> None:
        """Leave it alone for a while, the longer the more often it was late."""
        rest_s = REST_S * (1 + self._late_in_a_row)
        self._resting_until = now + min(REST_MAX_S, rest_s)

    def shun(self, now: float) -> None:
        """Ask it for nothing for a long time."""
        self._resting_until = now + DISTRUST_S

    def is_prompt(self, now: float) -> bool:
        """Whether it may be asked, and was not late when it was asked last."""
        return self._late_in_a_row == 0 and now >= self._resting_until

    def rested_at(self, now: float) -> float | None:
        """When it may be asked again, if not now."""
        return self._resting_until if self._resting_until > now else None


@final
class Sources:
    """The peers asked recently."""

    def __init__(self) -> None:
        self._known: dict[NodeId, Source] = {}

    def __contains__(self, peer: NodeId) -> bool:
        return peer in self._known

    def get(self, peer: NodeId) -> Source:
        """Return what is known of a peer."""
        found = self._known.get(peer)
        if found is None:
            if len(self._known) >= KNOWN_MAX:
                self._forget_one()
            found = self._known[peer] = Source()
        return found

    def _forget_one(self) -> None:
        """Forget whom we know longest and owe nothing, if possible not a liar."""
        idle = [peer for peer, source in self._known.items() if not source.under_way]
        honest = [peer for peer in idle if not self._known[peer].wrong]
        for peer in (honest or idle)[:1]:
            del self._known[peer]

    def distrust(self, peer: NodeId, now: float) -> None:
        """Note that a peer sent what was wrong."""
        source = self.get(peer)
        source.wrong += 1
        if source.wrong >= WRONG_MAX:
            source.shun(now)

    def any_room(self, now: float) -> bool:
        """Whether any peer can be asked for anything now."""
        return any(source.room(now) >= ROOM_MIN for source in self._known.values())

    def late(self, now: float) -> list[NodeId]:
        """Return the peers that have not answered in time."""
        return [
            peer
            for peer, source in self._known.items()
            if (at := source.late_at()) is not None and at <= now
        ]

    def next_deadline(self, now: float) -> float | None:
        """When a peer will be late, or may be asked again."""
        known = self._known.values()
        due = [at for source in known if (at := source.late_at()) is not None]
        due += [at for source in known if (at := source.rested_at(now)) is not None]
        return min(due, default=None)
