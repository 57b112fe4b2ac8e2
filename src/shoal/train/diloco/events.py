"""What happens to an aggregator, and what it does about it."""

from __future__ import annotations

from typing import Literal

import msgspec

from shoal.train.diloco.messages import (
    Contribution,
    Directive,
    KeptState,
    Status,
    Update,
)
from shoal.train.diloco.screening import CountedPart

# Facts.


class StatusReceived(msgspec.Struct, frozen=True):
    """A worker reported its status."""

    status: Status


class WorkerLost(msgspec.Struct, frozen=True):
    """A worker is gone for sure."""

    worker: str


class Fetched(msgspec.Struct, frozen=True):
    """The file of a contribution is here.

    `norm` is that of its delta, and not finite if a value is not; `fault` says why the
    file cannot be read, if so.
    """

    worker: str
    contribution: Contribution
    norm: float = 0.0
    fault: str = ""
    seconds: float = 0.0  # that fetching took


class FetchFailed(msgspec.Struct, frozen=True):
    """The file of a contribution cannot be fetched now."""

    worker: str
    contribution: Contribution


class Loaded(msgspec.Struct, frozen=True):
    """The weights are here, as they were after this many syncs.

    `inner` is a file of what a loop kept, if that was with them.
    """

    syncs: int
    inner: str = ""


class LoadFailed(msgspec.Struct, frozen=True):
    """This worker's weights cannot be fetched."""

    worker: str


class Averaged(msgspec.Struct, frozen=True):
    """The outcome of a sync is computed."""

    update: Update


class Published(msgspec.Struct, frozen=True):
    """The weights, or the whole state, can be fetched as they were after `syncs`."""

    kind: Literal["weights", "checkpoint"]
    syncs: int
    file: str
    holder: str = ""  # a worker, or nobody but us


class PartsLost(msgspec.Struct, frozen=True):
    """What a worker contributed to a sync is gone before it could be averaged."""

    sync: int
    worker: str


class UpdatesLost(msgspec.Struct, frozen=True):
    """Outcomes are gone with a worker that had averaged them.

    If somebody has not merged one of them, what workers have merged counts.
    """

    syncs: tuple[int, ...] = ()
    unmerged: bool = True


class InnerSaved(msgspec.Struct, frozen=True):
    """What a loop keeps is here, or cannot be had: that is all the same at the end."""


class RoundDeadline(msgspec.Struct, frozen=True):
    """The time that `next_deadline` named has come."""


Event = (
    StatusReceived
    | WorkerLost
    | Fetched
    | FetchFailed
    | Loaded
    | LoadFailed
    | Averaged
    | Published
    | PartsLost
    | UpdatesLost
    | InnerSaved
    | RoundDeadline
)


# Orders.


class DirectMember(msgspec.Struct, frozen=True):
    """Send a worker its directive."""

    worker: str
    directive: Directive


class Fetch(msgspec.Struct, frozen=True):
    """Get the file of a contribution; answered by `Fetched` or `FetchFailed`."""

    worker: str
    contribution: Contribution


class LoadState(msgspec.Struct, frozen=True):
    """Get weights to begin with; answered by `Loaded` or `LoadFailed`."""

    kind: Literal["initial", "checkpoint", "weights"]
    worker: str  # who has them; empty if that is an earlier life of the aggregator
    syncs: int
    file: str


class Average(msgspec.Struct, frozen=True):
    """Compute the outcome of a sync; answered by `Averaged`."""

    sync: int
    fragment: int
    parts: tuple[CountedPart, ...]
    missing: tuple[str, ...] = ()
    refused: dict[str, str] = {}


class PublishState(msgspec.Struct, frozen=True):
    """Offer the weights, or the whole state, as they are; answered by `Published`."""

    kind: Literal["weights", "checkpoint"]


class SaveInner(msgspec.Struct, frozen=True):
    """Get what a worker's loop keeps, for who resumes; answered by `InnerSaved`."""

    worker: str
    kept: KeptState


class ReportMember(msgspec.Struct, frozen=True):
    """Tell people about a worker."""

    kind: Literal["refused", "clipped", "left-out", "alike", "relieved"]
    worker: str
    sync: int
    reason: str


class StopTraining(msgspec.Struct, frozen=True):
    """All is done and every worker knows; or it cannot go on, for this reason."""

    failure: str = ""


Effect = (
    DirectMember
    | Fetch
    | LoadState
    | Average
    | PublishState
    | SaveInner
    | ReportMember
    | StopTraining
)
