"""Where the records of a capability stand in the DHT, and how they are found.

A record of the DHT stays for two days, has no value, and a key has room for twenty of
them, whoever comes first. So a key that is full has two branches, and a node stands at
the first key with room on the path that the hash of its id takes. Whoever looks for
many takes a path at random, and gets a sample.

If everybody began at the root of that tree, the few nodes that keep the root would hear
of everybody. So all begin about where the records of a capability that every node has
would end (`first_level`), go down while keys are full, and up while the key above has
room as well. The root is asked for rare capabilities only, by those few that have them;
and a rare capability is still found whole, because whoever looks for more than it
found goes up to the root.
"""

from __future__ import annotations

import hashlib
from itertools import zip_longest
from typing import TYPE_CHECKING, Final, TypeVar

from shoal.model.directory.capability import ANY

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from shoal.model.ids import NodeId

Y = TypeVar("Y")
S = TypeVar("S")

KEYS_MAX: Final = 10
"""Keys that one worker provides: each costs every node near it."""

LEVELS_MAX: Final = 16
FULL: Final = 16
"""So many records under a key mean that there may be more below it."""


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


def path(node: NodeId) -> str:
    """Return which branches a node takes, as digits 0 and 1."""
    digest = hashlib.sha256(b"shoal-branch\0" + node.encode()).digest()
    return f"{int.from_bytes(digest[:2], 'big'):016b}"[:LEVELS_MAX]


def first_level(nodes: int) -> int:
    """Return the level at which to begin in a shoal of about so many nodes.

    There a capability of every node fills its keys, though the estimate be twice too
    high. Estimates that differ do no harm: everybody goes up or down from there.
    """
    return max(0, min(LEVELS_MAX, (nodes // (4 * FULL)).bit_length() - 1))


def placing(first: int) -> Generator[tuple[int, bool], bool, int]:
    """Yield levels and whether to write there; take in whether each is full of others.

    Returns where the record stands. It is written before it is known whether there was
    room, and once more below if there was none: many may come at once.
    """
    level = first
    if level > 0 and not (yield level, False):
        while level > 0 and not (yield level - 1, False):
            level -= 1
    while (yield level, True) and level < LEVELS_MAX:
        level += 1
    return level


def searching(first: int, limit: int) -> Generator[int, tuple[bool, int], None]:
    """Yield levels to ask, take in whether each is full, and how many were found.

    It ends when `limit` were found, or when no key on the path can have any more.
    """
    is_full, found = yield first
    level = first
    while is_full and found < limit and level < LEVELS_MAX:
        level += 1
        is_full, found = yield level
    for above in range(first - 1, -1, -1):
        if found >= limit:
            return
        _, found = yield above


def following(steps: Generator[Y, S, object], seen: S) -> Y | None:
    """Return the next step after this was seen, or None if that was all."""
    try:
        return steps.send(seen)
    except StopIteration:
        return None
