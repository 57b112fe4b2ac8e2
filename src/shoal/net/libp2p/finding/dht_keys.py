"""The DHT keys of capabilities.

A record of the DHT stays for two days. So a key holds for one span of time, and the
next span has another key. Dead nodes are gone after a span or two, and their places
with them. Clocks that differ by minutes do no harm, because records are written ahead
and the span before is asked, too. A key that is full has branches, see
`model.directory.branches`.
"""

from __future__ import annotations

import hashlib
from typing import Final

SPAN_S: Final = 1_800.0
AHEAD_S: Final = 300.0
"""Records for the next span are written so long before it begins, at random."""

_SHA2_256: Final = bytes((0x12, 32))


def span(wall_s: float) -> int:
    """Return the number of the span of time that this moment is in."""
    return int(wall_s // SPAN_S)


def record_key(shoal: str, key: str, branch: str, at_span: int) -> bytes:
    """Return the key in the DHT, a multihash as others expect it."""
    text = f"shoal-key-v1\0{shoal}\0{key}\0{branch}\0{at_span}"
    return _SHA2_256 + hashlib.sha256(text.encode()).digest()
