"""Which gossip is accepted: of bounded size and rate, whole, and never twice.

Everybody pays for gossip, and anybody who gets a connection can send some. So each
message passes these checks before it is believed or passed on, the cheap ones first.
Members that the node vouches for have an allowance each. All others share one, so
that a thousand made-up identities may say no more than one.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from typing import Final, Generic, TypeVar, final

from shoal.errors import ProtocolError
from shoal.model.ids import NodeId
from shoal.protocol.codec import Gossip, decode_gossip
from shoal.protocol.limits import GOSSIP_BYTES_MAX

ORIGINS_MAX: Final = 4_096
"""Origins whose allowance and last messages are remembered, the latest heard."""

FORWARDERS_MAX: Final = 1_024
ORIGIN_PER_S: Final = 2.0
ORIGIN_BURST: Final = 20.0
STRANGERS_PER_S: Final = 10.0
STRANGERS_BURST: Final = 100.0
FORWARDER_PER_S: Final = 200.0
FORWARDER_BURST: Final = 400.0
FAULTS_PER_S: Final = 0.2
FAULTS_BURST: Final = 20.0
"""A neighbour that passes on more rubbish than this is cut off: honest ones check."""

BAN_S: Final = 600.0
WINDOW: Final = 64
"""How many messages of one origin may overtake another."""

FORGET_S: Final = 900.0
"""An origin that was silent so long may begin anew, should its clock have gone back."""

K = TypeVar("K")
V = TypeVar("V")


@final
class Bucket:
    """Limits a rate: an average per second, and a burst."""

    def __init__(self, per_s: float, burst: float, now: float) -> None:
        self._per_s = per_s
        self._burst = burst
        self._left = burst
        self._at = now

    def take(self, now: float) -> bool:
        """Use up one; return False if there is none."""
        self._left = min(self._burst, self._left + (now - self._at) * self._per_s)
        self._at = now
        if self._left < 1:
            return False
        self._left -= 1
        return True


@final
class Latest(Generic[K, V]):
    """A table that forgets what was not used for longest."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._rows: OrderedDict[K, V] = OrderedDict()

    def get(self, key: K) -> V | None:
        """Return the row, and keep it longer for that."""
        if key in self._rows:
            self._rows.move_to_end(key)
        return self._rows.get(key)

    def put(self, key: K, row: V) -> V:
        """Add or replace a row; return it."""
        self._rows[key] = row
        self._rows.move_to_end(key)
        if len(self._rows) > self._limit:
            self._rows.popitem(last=False)
        return row

    def pop(self, key: K) -> V | None:
        """Forget a row; return what it was."""
        return self._rows.pop(key, None)

    def __contains__(self, key: K) -> bool:
        return key in self._rows

    def __len__(self) -> int:
        return len(self._rows)


@final
class SeenGossip:
    """The last numbers that an origin used, as one number with a bit for each."""

    def __init__(self, now: float) -> None:
        self.heard_at = now
        self._highest = -1
        self._seen = 0  # Bit n: the number n below the highest was heard.

    def is_new(self, number: int, now: float) -> bool:
        """Return whether `number` was not heard before, as far as is remembered."""
        if now - self.heard_at > FORGET_S or number > self._highest:
            return True
        age = self._highest - number
        return age < WINDOW and not self._seen >> age & 1

    def note(self, number: int, now: float) -> None:
        """Remember that `number` was heard."""
        if now - self.heard_at > FORGET_S:
            self._highest, self._seen = -1, 0
        self.heard_at = now
        if number > self._highest:
            shift = min(number - self._highest, WINDOW)
            self._seen = (self._seen << shift | 1) & ((1 << WINDOW) - 1)
            self._highest = number
        else:
            self._seen |= 1 << (self._highest - number)


@final
class GossipGuard:
    """Checks the gossip of one node, and counts what it keeps out by reason."""

    def __init__(self, now: float) -> None:
        self.counts: Counter[str] = Counter()
        self._strangers = Bucket(STRANGERS_PER_S, STRANGERS_BURST, now)
        self._trusted: Latest[NodeId, Bucket] = Latest(ORIGINS_MAX)
        # Two tables, or a crowd of strangers would push the members out.
        self._members: Latest[NodeId, SeenGossip] = Latest(ORIGINS_MAX)
        self._others: Latest[NodeId, SeenGossip] = Latest(ORIGINS_MAX)
        self._forwarders: Latest[NodeId, Bucket] = Latest(FORWARDERS_MAX)
        self._faults: Latest[NodeId, Bucket] = Latest(FORWARDERS_MAX)
        self._banned: Latest[NodeId, float] = Latest(FORWARDERS_MAX)

    def trust(self, origin: NodeId, now: float) -> None:
        """Give a member an allowance of its own."""
        if self._trusted.get(origin) is not None:
            return
        self._trusted.put(origin, Bucket(ORIGIN_PER_S, ORIGIN_BURST, now))
        history = self._others.pop(origin)
        if history is not None:
            self._members.put(origin, history)

    def passes(self, forwarder: NodeId, size: int, now: float) -> bool:
        """Return whether a message is worth a look at its signature."""
        if self.is_banned(forwarder, now):
            return self._refuse("banned")
        bucket = self._forwarders.get(forwarder) or self._forwarders.put(
            forwarder, Bucket(FORWARDER_PER_S, FORWARDER_BURST, now)
        )
        if not bucket.take(now):
            return self._refuse("too-fast-from-neighbour")
        if size > GOSSIP_BYTES_MAX:
            self.blame(forwarder, "oversized", now)
            return False
        return True

    def read(
        self, forwarder: NodeId, origin: NodeId, number: int, data: bytes, now: float
    ) -> Gossip | None:
        """Return the message that `origin` signed, if it is good and new."""
        try:
            message = decode_gossip(data)
        except ProtocolError as error:
            if error.kind == "unknown-tag":
                self.counts["unknown-tag"] += 1  # A newer node, no fault of anybody.
            else:
                self.blame(forwarder, error.kind, now)
            return None
        allowance = self._trusted.get(origin)
        histories = self._others if allowance is None else self._members
        history = histories.get(origin) or SeenGossip(now)
        if not history.is_new(number, now):
            self.counts["replayed"] += 1
            return None
        if not (allowance or self._strangers).take(now):
            self.counts["too-fast"] += 1
            return None
        history.note(number, now)
        histories.put(origin, history)
        return message

    def blame(self, forwarder: NodeId, reason: str, now: float) -> None:
        """Count what no honest neighbour would have passed on."""
        self.counts[reason] += 1
        bucket = self._faults.get(forwarder) or self._faults.put(
            forwarder, Bucket(FAULTS_PER_S, FAULTS_BURST, now)
        )
        if not bucket.take(now):
            self._banned.put(forwarder, now + BAN_S)

    def is_banned(self, forwarder: NodeId, now: float) -> bool:
        """Return whether a neighbour was cut off, and not long ago."""
        until = self._banned.get(forwarder)
        if until is None:
            return False
        if now < until:
            return True
        self._banned.pop(forwarder)
        return False

    def _refuse(self, reason: str) -> bool:
        self.counts[reason] += 1
        return False
