"""What a worker knows of kept jobs: who may take their attempts over.

Theory of operation. An assignment of a kept job names the job's members, and the term
in which its scheduler leads it. A member that took the job up says so by `Adoption`,
with a new name for each attempt. The worker believes it if it is a member, and leads
in a higher term than the scheduler before it: most members promised that term to nobody
else. From then on, assignments of lower terms are refused.

The process of an adopted attempt goes on under the name that it was started by: the
host knows no other. So facts of the host are told here by that name, and turned into
the new one; what is asked of the host is turned back. Its output is counted anew from
the first piece that comes after.

Nothing is durable. `TERMS_MAX` jobs are remembered.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, final

import msgspec

from shoal.core.events import TaskWrote
from shoal.model.ids import Attempt, JobId, NodeId

if TYPE_CHECKING:
    from collections.abc import Iterable

    from shoal.core.events import Event
    from shoal.protocol.messages import Assignment, OutputStream
    from shoal.protocol.succession.messages import Adoption

TERMS_MAX: Final = 1_000


class _Kin(msgspec.Struct, frozen=True):
    """Whose an attempt may become, and in which term it is now."""

    job: JobId
    term: int
    members: tuple[NodeId, ...]


class _Alias(msgspec.Struct):
    """The new name of an attempt, and where its output began then."""

    attempt: Attempt
    begins: dict[OutputStream, int] = {}


@final
class Kinship:
    """Knows who may have which attempt, and by which name the host knows it."""

    def __init__(self) -> None:
        self._kin: dict[Attempt, _Kin] = {}  # of what runs, waits or is reported
        self._terms: dict[JobId, int] = {}
        self._aliases: dict[Attempt, _Alias] = {}  # by the names that the host knows
        self._names: dict[Attempt, Attempt] = {}  # that the host knows, by our own

    def superseded(self, assignment: Assignment) -> bool:
        """Whether another scheduler leads the job of an assignment by now."""
        return 0 < assignment.term < self._terms.get(assignment.task.job, 0)

    def note(self, assignment: Assignment) -> None:
        """Remember who may take an accepted attempt over."""
        if assignment.members:
            job, term = assignment.task.job, assignment.term
            self._kin[assignment.attempt] = _Kin(job, term, assignment.members)
            self._remember(job, term)

    def is_kept(self, attempt: Attempt | None) -> bool:
        """Whether the job of an attempt is kept."""
        return attempt in self._kin

    def kept_job(self, attempt: Attempt) -> JobId:
        """Return the job of an attempt, if it is kept."""
        kin = self._kin.get(attempt)
        return JobId("") if kin is None else kin.job

    def admits(self, peer: NodeId, was: Attempt, adoption: Adoption) -> bool:
        """Whether a scheduler may have an attempt that another one began."""
        kin = self._kin.get(was)
        if kin is None or kin.job != adoption.job or peer not in kin.members:
            return False
        known = max(kin.term, self._terms.get(kin.job, 0))
        if adoption.term == known and kin.term < known:
            return True  # Other attempts of the job are its own already.
        return adoption.term > known

    def adopt(
        self,
        was: Attempt,
        attempt: Attempt,
        term: int,
        begins: dict[OutputStream, int],
    ) -> None:
        """Give an attempt its new name; what is left of its output `begins` there."""
        kin = self._kin.pop(was)
        self._kin[attempt] = msgspec.structs.replace(kin, term=term)
        self._remember(kin.job, term)
        name = self._names.pop(was, was)
        self._names[attempt] = name
        before = self._aliases.get(name, _Alias(was)).begins
        begun: dict[OutputStream, int] = {}
        for stream, offset in begins.items():
            begun[stream] = before.get(stream, 0) + offset
        self._aliases[name] = _Alias(attempt, begun)

    def forget(self, peer: NodeId, attempts: Iterable[Attempt]) -> None:
        """Forget attempts whose ends their scheduler acknowledged."""
        for attempt in attempts:
            if attempt.scheduler != peer:
                continue
            self._kin.pop(attempt, None)
            if (name := self._names.pop(attempt, None)) is not None:
                self._aliases.pop(name, None)

    def name_of(self, attempt: Attempt) -> Attempt:
        """Return the name by which the host knows an attempt."""
        return self._names.get(attempt, attempt)

    def told(self, event: Event) -> Event:
        """Return a fact of the host under the name that an attempt has now."""
        if not self._aliases:
            return event
        told: Any = event
        alias = self._aliases.get(getattr(told, "attempt", None) or _NONE)
        if alias is None:
            return event
        if isinstance(event, TaskWrote):
            begin = alias.begins.setdefault(event.stream, event.offset)
            offset = max(0, event.offset - begin)
            return TaskWrote(alias.attempt, event.stream, offset, event.data)
        renamed: Event = msgspec.structs.replace(told, attempt=alias.attempt)
        return renamed

    def _remember(self, job: JobId, term: int) -> None:
        term = max(term, self._terms.pop(job, 0))
        self._terms[job] = term
        if len(self._terms) > TERMS_MAX:
            del self._terms[next(iter(self._terms))]


_NONE: Final = Attempt(NodeId(""), 0, 0)
