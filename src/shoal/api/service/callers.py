"""The caller of an API call, which decides whose jobs it can see and change.

The user of the node can access everything. A member that calls with its certificate, or
over a link, has what its grant gives: the jobs of its owner, its priority and its
quota. A task sees the jobs that descend from it, and no others. Anything else is
answered as if it did not exist. Servers set the caller of the current task by
`answer_for`; the service reads it by `current`.
"""

from __future__ import annotations

import hashlib
from contextvars import ContextVar
from typing import TYPE_CHECKING, Final, Literal

import msgspec

from shoal.model.ids import JOB_ID_LENGTH_MAX, Attempt, JobId, NodeId, OwnerId
from shoal.runtime.clients import Submitter

if TYPE_CHECKING:
    from collections.abc import Iterable

    from shoal.core.records.records import JobRecord
    from shoal.protocol.messages import Grant

Way = Literal["socket", "token", "certificate", "link", "task"]
"""How a caller authenticated; the web page uses the token."""

MARK_CHARS: Final = 8


class Caller(msgspec.Struct, frozen=True, kw_only=True):
    """The identity behind a call. The default is the node's user."""

    way: Way = "socket"
    node: NodeId = NodeId("")  # the calling member; empty: the user
    owner: OwnerId | None = None  # whose jobs it sees; None: all
    grant: Grant | None = None  # to submit by; None: the node's
    is_own: bool = True  # has the same owner as the node
    uses_secrets: bool = True  # may use secrets of the node's user
    parent: Attempt | None = None  # of the task that calls, if one does

    @property
    def submitter(self) -> Submitter:
        """The identity under which the caller submits jobs."""
        return Submitter(
            owner=self.owner,
            grant=self.grant,
            uses_secrets=self.uses_secrets,
            parent=self.parent,
        )

    def sees(self, record: JobRecord) -> bool:
        """Return whether the caller may see a job."""
        if self.parent is not None:
            return record.parent is not None and self.parent in record.parent.line
        return self.owner is None or record.job.owner == self.owner

    def visible(self, records: Iterable[JobRecord]) -> list[JobRecord]:
        """Return the jobs that the caller may see, in the given order."""
        return [record for record in records if self.sees(record)]

    def id_for(self, drawn: str) -> JobId:
        """Return the job id for an id that the caller generated.

        Ids of other owners and of tasks get a suffix derived from who they are. So
        nobody can probe whether another has a job of some id, and a repeated submission
        still gives the same job.
        """
        if self.parent is None and (self.is_own or self.owner is None):
            return JobId(drawn)
        who = str(self.parent or self.owner)
        mark = hashlib.sha256(who.encode()).hexdigest()[:MARK_CHARS]
        return JobId(f"{drawn[: JOB_ID_LENGTH_MAX - MARK_CHARS - 1]}-{mark}")


USER: Final = Caller()
_caller: Final[ContextVar[Caller]] = ContextVar("caller", default=USER)


def current() -> Caller:
    """Return the caller that the current task answers."""
    return _caller.get()


def answer_for(caller: Caller) -> None:
    """Set the caller for the rest of the current task."""
    _caller.set(caller)
