"""Messages between DiLoCo workers and their aggregator.

Both sides repeat their whole state, so any message may be lost, repeated or late:
the next one says it again. A *sync* is one exchange of one fragment of the model, and
syncs are counted through: with `fragments` of 1 a sync is a round, otherwise a round
has so many of them. A *segment* is what a worker computes between two syncs.
"""

from __future__ import annotations

import zlib
from hashlib import sha256
from typing import TYPE_CHECKING, Annotated, Final, Literal

import msgspec
from msgspec import Meta

if TYPE_CHECKING:
    from collections.abc import Sequence

CONTRIBUTIONS_MAX: Final = 64
CONTRIBUTIONS_TOLD: Final = 16
"""A status lists so many at the most, from the first sync that is still open."""

UPDATES_MAX: Final = 64
SHARES_TOLD: Final = 128
"""A directive names so many files of updates at the most."""

SHARES_MAX: Final = 64
"""Parts of a fragment that workers average themselves, if there is no centre."""

IN_FLIGHT_MAX: Final = 2
"""Syncs that a worker may be ahead of their outcome: so long may a link take. Without a
centre it is one more, since an outcome comes by one more exchange of messages."""

SQUEEZED_FROM: Final = 256
"""Larger messages are squeezed: most of one are names of files, again and again."""

MESSAGE_BYTES_MAX: Final = 1 << 20
_SQUEEZED: Final = b"\x78"  # begins what zlib made, and nothing that msgpack did

Name = Annotated[str, Meta(max_length=256)]
COUNT_MAX: Final = 1 << 53
Count = Annotated[int, Meta(ge=0, le=COUNT_MAX)]
Amount = Annotated[float, Meta(ge=0)]


def in_flight(fragments: int, shares: int = 0) -> int:
    """Return how many syncs a worker may be ahead: all of different fragments."""
    return min(IN_FLIGHT_MAX + bool(shares), fragments - 1)


def same_content(one: str, other: str) -> bool:
    """Whether two names mean the same content; after an @ comes its location."""
    return one.partition("@")[0] == other.partition("@")[0]


def joined_check(checks: Sequence[int]) -> int:
    """Return one check of several shares, in their order."""
    return zlib.crc32(b"".join(each.to_bytes(4, "little") for each in checks))


class Contribution(msgspec.Struct, frozen=True, omit_defaults=True):
    """A worker's delta for one sync: a file, and the work behind it."""

    sync: Count
    file: Name
    samples: Count
    steps: Count
    seconds: Amount = 0.0  # of computing, without waiting
    bytes: Count = 0
    loss: float = 0.0
    tokens: Count = 0  # if that is what samples are made of
    fetch_s: Amount = 0.0  # what it took to fetch the outcome of an earlier sync
    shares: Annotated[tuple[Name, ...], Meta(max_length=SHARES_MAX)] = ()
    # Contents of the files of its shares, if there is no centre; `file` names them all.


def of_shares(contribution: Contribution, files: Sequence[str]) -> Contribution:
    """Return a contribution that consists of the files of its shares."""
    contents = tuple(file.partition("@")[0] for file in files)
    _, at, node = files[0].partition("@")
    whole = sha256("".join(contents).encode()).hexdigest()[:32]  # No file has it.
    return msgspec.structs.replace(
        contribution, file=f"{whole}{at}{node}", shares=contents
    )


def files_of(contribution: Contribution) -> tuple[str, ...]:
    """Return the files of a contribution; its shares are in one file."""
    _, at, node = contribution.file.partition("@")
    shares = tuple(f"{content}{at}{node}" for content in contribution.shares)
    return shares or (contribution.file,)


class KeptState(msgspec.Struct, frozen=True):
    """A checkpoint after this many syncs, and the file that holds it."""

    syncs: Count
    file: Name


class Status(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag=True):
    """A worker's whole state, sent periodically and on every change."""

    worker: Name
    life: Count = 0  # rises when the worker is started again
    seq: Count = 0
    heard: tuple[Count, Count] = (0, 0)  # epoch and number of the last directive
    merged: Count = 0  # syncs whose outcome is in its weights
    check: Count = 0  # CRC-32 of the fragment that it merged last
    initial: Name = ""  # file of the weights that it would begin with
    loaded: bool = False  # whether it has the shared weights
    segment: Count = 0  # it contributes to no sync before this, but for those it lists
    listed_from: Count = 0  # the first sync that the list would name
    contributions: Annotated[
        tuple[Contribution, ...], Meta(max_length=CONTRIBUTIONS_MAX)
    ] = ()
    holds: KeptState | None = None  # the latest checkpoint that it keeps for others
    offered: KeptState | None = (
        None  # its shared weights, because it was asked for them
    )
    validation: dict[Name, float] = {}  # figures of the shared weights, if measured
    validated: Count = 0  # after this many syncs
    steps_total: Count = 0
    received: dict[Name, Count] = {}  # bytes from other nodes, by kind
    inner_is: Literal["none", "fresh", "trained"] = "none"  # what its loop keeps
    inner: KeptState | None = None  # a file of it, because it was asked
    values: Count = 0  # that the workers share
    leaving: bool = False

    def denies(self, sync: int) -> bool:
        """Whether the list would name a contribution to a sync, if there was one."""
        listed = self.contributions
        if self.listed_from > sync:
            return False
        if any(each.sync == sync for each in listed):
            return False
        return len(listed) < CONTRIBUTIONS_TOLD or sync < listed[-1].sync


class Update(msgspec.Struct, frozen=True, omit_defaults=True):
    """The outcome of a sync: what to add to the shared weights of its fragment."""

    sync: Count
    file: Name
    check: Count  # CRC-32 of the fragment of the shared weights afterwards
    bytes: Count = 0
    missing: tuple[Name, ...] = ()  # who was left out: what they sent does not count
    shares: Annotated[tuple[Name, ...], Meta(max_length=SHARES_MAX)] = ()
    # Files of the shares, if there is no centre; `file` names them all.
    workers: Amount = 1.0  # as many equal ones would have a mean as noisy


class Directive(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag=True
):
    """Everything the aggregator wants of one worker."""

    epoch: Count
    seq: Count
    life: Count = 0  # of the worker that this is for
    running: bool = False  # whether there is anything to do yet
    syncs: Count = 0  # closed so far
    first: Count = 0  # the first sync that the worker takes part in
    weights: KeptState | None = None  # shared weights, for who cannot follow updates
    updates: Annotated[tuple[Update, ...], Meta(max_length=UPDATES_MAX)] = ()
    reload: bool = False  # take `weights`: yours differ from the shared ones
    steps: dict[str, Count] = {}  # how many for which segment
    keep: KeptState | None = None  # fetch this checkpoint, and keep it
    keep_over_s: Amount = 0.0  # without haste: over this time
    safe: Count = 0  # contributions to syncs before this are needed no more
    validate: bool = False  # measure the shared weights once they are merged
    offer: bool = False  # publish your shared weights: there is no checkpoint
    inner: KeptState | None = None  # what a loop keeps, for who lacks it
    inner_comes: bool = False  # wait: it will be here soon
    share_inner: Count = 0  # publish what your loop keeps, after so many syncs or more
    refused: str = ""  # why your last contribution did not count
    start_over: Count = 0  # once for each number: go on from the shared weights
    shares: Count = 0  # that contributions are cut into; 0 if there is a centre
    finished: bool = False


_ENCODER: Final = msgspec.msgpack.Encoder()


def encode(message: msgspec.Struct) -> bytes:
    """Return a message as bytes; `shares.messages` decodes all there are."""
    data = _ENCODER.encode(message)
    return data if len(data) < SQUEEZED_FROM else zlib.compress(data)


def unsqueezed(data: bytes) -> bytes:
    """Return a message as msgpack; raise `zlib.error` if it is none, or too large."""
    if data[:1] != _SQUEEZED:
        return data
    squeezed = zlib.decompressobj()
    plain = squeezed.decompress(data, MESSAGE_BYTES_MAX)
    if not squeezed.eof:
        raise zlib.error("it ends early, or does not end")
    return plain
