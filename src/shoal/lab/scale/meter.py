"""Count what nodes say to each other: messages and bytes, by kind and by node.

A message counts with its encoded bytes and `OVERHEAD_BYTES` for its frame, its TLS
record and its headers, as if it travelled alone. Nodes put what goes to one peer at one
moment into one frame, so real figures are a little smaller.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final, final

from shoal.protocol.codec import encode_one

if TYPE_CHECKING:
    from shoal.protocol.messages import AnyMessage

OVERHEAD_BYTES: Final = 69
"""Of a message alone: 40 for IP and TCP, 22 for TLS, 7 for the frame."""


@final
class TrafficMeter:
    """Messages and bytes since the last `reset`."""

    def __init__(self, nodes: int) -> None:
        self.messages: Counter[str] = Counter()
        self.bytes: Counter[str] = Counter()
        self.handled = [0] * nodes  # messages sent and received, by place of the node
        self._last: AnyMessage | None = None
        self._last_size = 0

    def reset(self) -> None:
        """Forget what was counted."""
        self.messages.clear()
        self.bytes.clear()
        self.handled = [0] * len(self.handled)

    def carried(self, src: int, dst: int, message: AnyMessage) -> None:
        """Count one message from one node to another."""
        if message is not self._last:
            # Often the same object goes to several peers in turn.
            self._last = message
            self._last_size = len(encode_one(message)) + OVERHEAD_BYTES
        kind = type(message).__name__
        self.messages[kind] += 1
        self.bytes[kind] += self._last_size
        self.handled[src] += 1
        self.handled[dst] += 1

    def published(self, receivers: int, copies: float, message: AnyMessage) -> None:
        """Count gossip to so many nodes, each of which gets several copies."""
        size = len(encode_one(message)) + OVERHEAD_BYTES
        count = round(receivers * copies)
        self.messages["published"] += count
        self.bytes["published"] += count * size
