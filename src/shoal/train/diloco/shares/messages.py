"""Messages between the workers that average shares and who coordinates them.

As in `diloco.messages`, both sides repeat their whole state, so any message may be
lost, repeated or late. Deltas and outcomes never pass the coordinator: it says who
averages which share of a sync and what counts, and hears what came of it.
"""

from __future__ import annotations

import math
import zlib
from typing import Annotated, Final, TypeVar

import msgspec
from msgspec import Meta

from shoal.errors import ProtocolError
from shoal.train.diloco.messages import (
    SHARES_MAX,
    Amount,
    Count,
    Directive,
    KeptState,
    Name,
    Status,
    unsqueezed,
)

SOURCES_MAX: Final = 1_024
MARK: Final = 16
"""So much of a contribution's name tells it from the others of its worker."""

OPEN_MAX: Final = 8
_Number = Annotated[int, Meta(ge=0, lt=SHARES_MAX)]
_Numbers = Annotated[tuple[_Number, ...], Meta(max_length=SHARES_MAX)]
_Names = Annotated[tuple[Name, ...], Meta(max_length=SHARES_MAX)]


class ShareSource(msgspec.Struct, frozen=True, array_like=True):
    """A worker's contribution, and the files of those shares that the receiver has."""

    worker: Name
    contribution: Name
    files: _Names


class ShareWeight(msgspec.Struct, frozen=True, array_like=True):
    """What a worker's contribution counts."""

    worker: Name
    samples: Count
    scale: Amount = 1.0


class Reduction(msgspec.Struct, frozen=True, omit_defaults=True):
    """The shares of a sync that the receiver averages.

    Until it is said what counts, it only fetches and measures.
    """

    sync: Count
    shares: _Numbers
    sources: Annotated[tuple[ShareSource, ...], Meta(max_length=SOURCES_MAX)]
    order: Count = 0  # rises with every decision, or presumption; 0 before the first
    parts: Annotated[tuple[ShareWeight, ...], Meta(max_length=SOURCES_MAX)] = ()
    expected: Count = 0  # sources in all, with those that are still to come

    @property
    def is_complete(self) -> bool:
        """Whether all is told that others wait for."""
        return self.order > 0 or len(self.sources) >= self.expected


class Duties(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag=True):
    """Everything that the coordinator wants of a worker that averages shares."""

    epoch: Count
    seq: Count
    life: Count = 0  # of the worker that this is for
    offer: Count | None = None  # publish all weights, after so many syncs or more
    reductions: Annotated[tuple[Reduction, ...], Meta(max_length=OPEN_MAX)] = ()


class ShareNorm(msgspec.Struct, frozen=True, array_like=True):
    """How large one share of a contribution is: the sum of its squares."""

    worker: Name
    mark: Name  # the beginning of the contribution's name
    share: _Number
    squares: float
    fault: str = ""
    seconds: Amount = 0.0  # that fetching took

    @property
    def is_usable(self) -> bool:
        """Whether the share can be averaged with others."""
        return not self.fault and math.isfinite(self.squares)


class ShareOutcome(msgspec.Struct, frozen=True, array_like=True):
    """What to add to one share of the weights, and its CRC-32 afterwards."""

    share: _Number
    file: Name
    check: Count
    bytes: Count = 0


class Reduced(msgspec.Struct, frozen=True, omit_defaults=True):
    """How far a worker is with its shares of a sync."""

    sync: Count
    norms: Annotated[
        tuple[ShareNorm, ...], Meta(max_length=SOURCES_MAX * SHARES_MAX)
    ] = ()
    order: Count = 0  # that the outcomes are of
    outcomes: Annotated[tuple[ShareOutcome, ...], Meta(max_length=SHARES_MAX)] = ()


SPOILED_MAX: Final = 8


class ShareReport(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag=True
):
    """Which of its duties a worker has done."""

    worker: Name
    life: Count = 0
    seq: Count = 0
    heard: tuple[Count, Count] = (0, 0)  # epoch and number of the last duties
    offered: KeptState | None = None
    reduced: Annotated[tuple[Reduced, ...], Meta(max_length=OPEN_MAX)] = ()
    spoiled: Annotated[tuple[Name, ...], Meta(max_length=SPOILED_MAX)] = ()
    # Files of outcomes that it has fetched and cannot merge.


FromWorker = Status | ShareReport
ForWorker = Directive | Duties
_Received = msgspec.msgpack.Decoder[FromWorker]
_Told = msgspec.msgpack.Decoder[ForWorker]
_FROM_WORKER: Final[_Received] = msgspec.msgpack.Decoder(FromWorker)
_FOR_WORKER: Final[_Told] = msgspec.msgpack.Decoder(ForWorker)
T = TypeVar("T")
BAD: Final = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, zlib.error)


def decode_from_worker(data: bytes) -> FromWorker:
    """Return what a worker says; raise `ProtocolError` if it is nothing."""
    return _decoded(_FROM_WORKER, data)


def decode_for_worker(data: bytes) -> ForWorker:
    """Return what a worker is told; raise `ProtocolError` if it is nothing."""
    return _decoded(_FOR_WORKER, data)


def _decoded(decoder: msgspec.msgpack.Decoder[T], data: bytes) -> T:
    try:
        return decoder.decode(unsqueezed(data))
    except BAD as error:
        raise ProtocolError("not what a trainer says", because=str(error)) from error
