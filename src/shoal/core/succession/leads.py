"""What a leader knows of a job that it schedules: its log, and how far others have it.

`succession` says how these values are used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from shoal.protocol.limits import BATCH_BYTES_MAX, KEPT_ENTRIES_MAX

if TYPE_CHECKING:
    from collections.abc import Iterable

    from shoal.core.events import Effect
    from shoal.model.ids import JobId, NodeId
    from shoal.protocol.succession.messages import Keep

BEATS_MAX: Final = 16


class Held(msgspec.Struct, frozen=True):
    """An effect that waits until so many entries are safe."""

    size: int
    effect: Effect


class Lead(msgspec.Struct, kw_only=True):
    """A job that this node schedules; before it is `elected`, one that it wants to."""

    job: JobId
    term: int
    members: tuple[NodeId, ...]
    entries: list[bytes] = []
    base: int = 0
    elected: bool = True
    leaving: bool = False  # another member is to have it, as soon as one has all of it
    yielded: bool = False  # one was told that it may
    forward: bool = False  # nobody keeps it: the other is to have it alone
    have: dict[NodeId, int] = {}  # how many entries
    whole: dict[NodeId, int] = {}  # and how many with all their files
    sent: dict[NodeId, tuple[int, float]] = {}  # up to which entry, and when
    swayed: dict[NodeId, float] = {}  # when the latest beat that each answered was sent
    beat: int = 0
    beats: dict[int, float] = {}  # when the latest were sent; at most BEATS_MAX
    held: list[Held] = []

    @property
    def needed(self) -> int:
        """How many members beside this one are most of them together with it."""
        return len(self.members) // 2

    def most(self, values: Iterable[float]) -> float:
        """Return what most members have at least, of what the others have."""
        ranked = sorted(values, reverse=True)
        return ranked[self.needed - 1] if len(ranked) >= self.needed else float("-inf")


class JobKeeper(NamedTuple):
    """A node that keeps a job; `whole`: it has all of it, with all files."""

    node: NodeId
    whole: bool
    away: bool


class Stand(msgspec.Struct):
    """A candidacy, how often it was said, and who has granted it."""

    term: int
    said: int = 0
    granted: dict[NodeId, None] = {}


class Parting(msgspec.Struct):
    """A job that is over, and who has not heard of it yet."""

    keep: Keep
    unheard: dict[NodeId, None]
    tries: int = 0


def batch_of(entries: list[bytes], start: int) -> tuple[bytes, ...]:
    """Return the next entries that go in one message: at least one, if there is one."""
    taken: list[bytes] = []
    size = 0
    for entry in entries[start : start + KEPT_ENTRIES_MAX]:
        if taken and size + len(entry) > BATCH_BYTES_MAX:
            break
        taken.append(entry)
        size += len(entry)
    return tuple(taken)
