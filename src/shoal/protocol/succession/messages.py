"""Messages between the nodes that keep a job, and to the workers that run its tasks.

A job that is kept has *members*: its scheduler and its keepers. `core/succession` says
how they use these messages. Each answer names the term, and the beat or the candidacy,
that it answers.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from shoal.model.ids import Attempt, JobId, LeaseId, NodeId
from shoal.model.text.bounds import Count, Seconds
from shoal.protocol.limits import KEPT_BYTES_MAX, KEPT_ENTRIES_MAX, LEASES_MAX
from shoal.protocol.message import Message

MEMBERS_MAX = 5

Members = Annotated[tuple[NodeId, ...], Meta(max_length=MEMBERS_MAX)]
Entries = Annotated[
    tuple[Annotated[bytes, Meta(max_length=KEPT_BYTES_MAX)], ...],
    Meta(max_length=KEPT_ENTRIES_MAX),
]


class Keep(Message, frozen=True, tag="keep"):
    """The sender schedules this job in this term. Keep these entries of its log.

    They follow on the first `start` entries. The log is of use from `base` entries on:
    so many there were when the term began. Without entries it says that the scheduler
    lives. `over` says that the job has ended, and need not be kept. `forward` says that
    the receiver is to schedule the job alone, once it has all of it and was let.
    """

    job: JobId
    term: Count
    members: Members
    base: Count
    start: Count
    beat: Count
    entries: Entries = ()
    over: bool = False
    forward: bool = False


class Kept(Message, frozen=True, tag="kept"):
    """The sender has so many entries of the log of this term on its disk.

    `vowed` is the highest term that it promised anybody; if that is beyond `term`, it
    keeps nothing more in this one. Of the last `lacking` of the entries some files are
    not there yet.
    """

    job: JobId
    term: Count
    have: Count
    beat: Count
    vowed: Count
    lacking: Count = 0


class Candidacy(Message, frozen=True, tag="candidacy"):
    """The sender wants to schedule this job; its log ends with that term and size."""

    job: JobId
    term: Count
    log_term: Count
    size: Count


class Ballot(Message, frozen=True, tag="ballot"):
    """Whether the sender promised this term to the receiver, and to nobody else.

    `over` says that the job has ended.
    """

    job: JobId
    term: Count
    granted: bool
    vowed: Count
    over: bool = False


class Handover(Message, frozen=True, tag="handover"):
    """The sender schedules this job no longer; `to` may have it in a later term."""

    job: JobId
    term: Count
    to: NodeId


class Claim(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """An attempt of an earlier scheduler, its lease, and its name from now on."""

    was: Attempt
    attempt: Attempt
    lease: LeaseId


class Adoption(Message, frozen=True, tag="adoption"):
    """The sender took a job up in this term: these attempts and leases are its own.

    Answered by `Renewed`. Reports that nobody acknowledged come under the new names.
    """

    job: JobId
    term: Count
    lease_s: Seconds
    claims: Annotated[tuple[Claim, ...], Meta(max_length=LEASES_MAX)]


class SchedulerLoad(Message, frozen=True, tag="scheduler-load"):
    """The sender schedules about so many tasks that have not ended.

    Whoever says this takes whole jobs of its owner, unless it is `full`.
    """

    open: Count
    full: bool = False


ToKeeper = Keep | Kept | Candidacy | Ballot | Handover
