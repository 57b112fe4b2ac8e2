"""Who makes a call, and so whose jobs it is about.

The user of the node has all of it. A member that comes by its certificate, or over a
link, has what its grant says: the jobs of its owner, its priority and its quota. To
everything else it gets the answer that somebody gets who asks for what is not there.
"""

from __future__ import annotations

import hashlib
from contextvars import ContextVar
from typing import TYPE_CHECKING, Final, Literal

import msgspec

from shoal.model.ids import JobId, NodeId, OwnerId
from shoal.runtime.clients import Submitter

if TYPE_CHECKING:
    from collections.abc import Iterable

    from shoal.core.jobs import JobRecord
    from shoal.protocol.messages import Grant

Way = Literal["socket", "token", "certificate", "link"]
"""How a call came; the page shows the token, too."""

MARK_CHARS: Final = 8
JOB_ID_CHARS_MAX: Final = 64


class Caller(msgspec.Struct, frozen=True, kw_only=True):
    """In whose name a call is made. The default is the user of the node."""

    way: Way = "socket"
    node: NodeId = NodeId("")  # of the member that calls; empty: the node's user
    owner: OwnerId | None = None  # whose jobs these are about; None: everybody's
    grant: Grant | None = None  # by which it submits; None: by that of the node
    is_own: bool = True  # whether it is of the owner of this node
    uses_secrets: bool = True  # those of the node's user

    @property
    def submitter(self) -> Submitter:
        """In whose name it hands jobs in."""
        return Submitter(
            owner=self.owner, grant=self.grant, uses_secrets=self.uses_secrets
        )

    def sees(self, record: JobRecord) -> bool:
        """Whether it may know of a job."""
        return self.owner is None or record.job.owner == self.owner

    def visible(self, records: Iterable[JobRecord]) -> list[JobRecord]:
        """Return the jobs that it may know of, in their order."""
        return [record for record in records if self.sees(record)]

    def id_for(self, drawn: str) -> JobId:
        """Return the id of a job that it hands in under an id that it drew.

        Those of other owners have a mark of the owner at the end. So nobody finds out
        whether somebody else has a job of some id by trying to take the id, and a
        repeat is still the same job.
        """
        if self.is_own or self.owner is None:
            return JobId(drawn)
        mark = hashlib.sha256(self.owner.encode()).hexdigest()[:MARK_CHARS]
        return JobId(f"{drawn[: JOB_ID_CHARS_MAX - MARK_CHARS - 1]}-{mark}")


USER: Final = Caller()
_caller: Final[ContextVar[Caller]] = ContextVar("caller", default=USER)


def current() -> Caller:
    """Return who makes the call that this task answers."""
    return _caller.get()


def answer_for(caller: Caller) -> None:
    """Answer `caller` for the rest of this task."""
    _caller.set(caller)
