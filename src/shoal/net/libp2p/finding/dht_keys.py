"""The DHT keys of capabilities.

A record of the DHT stays for two days, has no value, and a key has room for twenty
of them, whoever comes first. So:

- A key holds for one span of time, and the next span has another key. Dead nodes are
  gone after a span or two, and their places with them. Clocks that differ by minutes
  do no harm, because records are written ahead and the span before is asked, too.
- A key that is full has two branches. A node stands at the first key with room on
  the path that the hash of its id takes. Whoever looks for many goes down at random,
  and gets a sample; a rare capability is found whole, with one question.
"""

from __future__ import annotations

import hashlib
from itertools import zip_longest
from typing import TYPE_CHECKING, Final

from shoal.model.capability import ANY

if TYPE_CHECKING:
    from collections.abc import Sequence

    from shoal.model.ids import NodeId

KEYS_MAX: Final = 10
"""Keys that one worker provides: each costs every node near it."""

SPAN_S: Final = 1_800.0
AHEAD_S: Final = 300.0
"""Records for the next span are written so long before it begins, at random."""

LEVELS_MAX: Final = 12
FULL: Final = 16
"""So many records under a key mean that there may be more below it."""

_SHA2_256: Final = bytes((0x12, 32))


def prioritised(keys: Sequence[str], limit: int = KEYS_MAX) -> tuple[str, ...]:
    """Return the most telling of `keys`: the rarest of each kind, then the next.

    Within a kind, which is the part before the slash, a later key is rarer. The key
    for all workers is always among them.
    """
    kinds: dict[str, list[str]] = {}
    for key in keys:
        if key != ANY:
            kinds.setdefault(key.partition("/")[0], []).insert(0, key)
    rows = zip_longest(*kinds.values())
    ranked = [key for row in rows for key in row if key is not None]
    if ANY in keys:
        return (*ranked[: limit - 1], ANY)
    return tuple(ranked[:limit])


def span(wall_s: float) -> int:
    """Return the number of the span of time that this moment is in."""
    return int(wall_s // SPAN_S)


def path(node: NodeId) -> str:
    """Return which branches a node takes, as digits 0 and 1."""
    digest = hashlib.sha256(b"shoal-branch\0" + node.encode()).digest()
    return f"{int.from_bytes(digest[:2], 'big'):016b}"[:LEVELS_MAX]


def record_key(shoal: str, key: str, branch: str, at_span: int) -> bytes:
    """Return the key in the DHT, a multihash as others expect it."""
    text = f"shoal-key-v1\0{shoal}\0{key}\0{branch}\0{at_span}"
    return _SHA2_256 + hashlib.sha256(text.encode()).digest()
