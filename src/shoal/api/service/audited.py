"""Records API calls in the audit log, whichever way they came.

`audited` wraps the methods of the service. Every method is in exactly one of the tables
`AUDITED` and `NOT_AUDITED`, which a test checks, so none can be forgotten. A call is
recorded when it ends, or with its first reply if it streams. Refusals are recorded for
all methods.
"""

from __future__ import annotations

import functools
import os
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, TypeVar, cast, final

from shoal.api import shoal_pb2 as pb
from shoal.api.methods import snake
from shoal.api.service import callers
from shoal.core.durability.audit_chain import AuditEntry, Result
from shoal.errors import NotAllowedError
from shoal.model.ids import JobId

if TYPE_CHECKING:
    from shoal.api.service.callers import Caller
    from shoal.runtime.node import Node

T = TypeVar("T")


class Origin(NamedTuple):
    """Where a call came from, and who made it."""

    way: str = "socket"  # or token, page, certificate, link
    node: str = ""
    owner: str = ""
    address: str = ""


_origin: Final[ContextVar[Origin | None]] = ContextVar("origin", default=None)
_address: Final[ContextVar[str]] = ContextVar("address", default="")


def origin() -> Origin:
    """Return the origin of the call that the current task answers."""
    known = _origin.get()
    return known if known is not None else origin_of(callers.current(), _address.get())


def origin_of(caller: Caller, address: str = "") -> Origin:
    """Return the origin of an authorised caller."""
    return Origin(caller.way, caller.node, caller.owner or "", address)


def came_by(place: Origin) -> None:
    """Set the origin of the call for the rest of the current task."""
    _origin.set(place)


def came_from(address: str) -> None:
    """Set the caller's address for the rest of the current task."""
    _address.set(address)


AUDITED: Final[dict[str, str]] = {
    "Submit": "submit",
    "Retry": "retry",
    "Cancel": "cancel",
    "Logs": "read-output",
    "Outputs": "read-output",
    "GetBlobs": "read-blobs",
    "Calls": "call-functions",
    "Remove": "remove",
    "Channel": "enter-task",
    "Invite": "invite",
    "Accept": "accept",
    "Revoke": "revoke",
    "SetSecret": "secret-set",
    "RemoveSecret": "secret-remove",
    "RotateToken": "token",
    "Forget": "forget",
    "Drain": "drain",
    "Allocations": "allocations",
    "Shutdown": "shutdown",
}
"""Methods that are recorded, done, failed or refused, and their name in the log."""

_SHOWS: Final = "it shows what is there, and no output"
NOT_AUDITED: Final[dict[str, str]] = {
    **dict.fromkeys(("Get", "List", "ListEverywhere", "Watch", "Explain"), _SHOWS),
    **dict.fromkeys(("Nodes", "Info", "Ping", "Plan", "Events", "Metrics"), _SHOWS),
    **dict.fromkeys(("Curves", "Requests", "ListSecrets", "Usage", "Inspect"), _SHOWS),
    "Forward": "the node that answers writes down what was asked, and by which node",
    "MissingBlobs": "it says which of some hashes are known",
    "PutBlobs": "it keeps bytes; the job that uses them is written down",
}
"""Methods that are recorded only if refused, and why."""


@final
class CallAudit:
    """The API's access to the audit log of a node."""

    def __init__(self, node: Node) -> None:
        self._node = node

    def note(self, entry: AuditEntry) -> None:
        """Write an entry."""
        self._node.audit.note(entry)

    def opened_calls(self) -> None:
        """Record that a local program began to call functions."""
        self.note(AuditEntry(what="call-functions", **_from(Origin())))

    def owner_of(self, job: str) -> str:
        """Return the owner of a job; empty if the job is unknown."""
        scheduler = self._node.scheduler
        record = scheduler.book.jobs.get(JobId(job)) if scheduler is not None else None
        return record.job.owner if record is not None else ""


class Audited(Protocol):
    """A service whose calls are recorded."""

    audit: CallAudit


def audited(service: type[T]) -> type[T]:
    """Wrap the answering methods of a service class to record their calls."""
    for method in pb.DESCRIPTOR.services_by_name["Shoal"].methods:
        name = f"on_{snake(method.name)}"
        what = AUDITED.get(method.name)
        wrap = _streaming if method.server_streaming else _answering
        if what is not None:
            setattr(service, name, wrap(what, getattr(service, name)))
    return service


def refused(
    log: Callable[[AuditEntry], None], method: str, place: Origin, why: str
) -> None:
    """Record that a call was refused."""
    what = AUDITED.get(method, method.lower())
    log(AuditEntry(what=what, result="refused", because=why, **_from(place)))


def entered(
    log: Callable[[AuditEntry], None], place: Origin, job: str, task: str
) -> None:
    """Record that another node opened a channel to a task, for its user."""
    log(AuditEntry(what=AUDITED["Channel"], job=job, target=task, **_from(place)))


def _answering(
    what: str, call: Callable[[Any, Any], Awaitable[Any]]
) -> Callable[[Any, Any], Awaitable[Any]]:
    @functools.wraps(call)
    async def answer(self: Audited, request: Any) -> Any:  # noqa: ANN401
        try:
            reply = await call(self, request)
        except Exception as error:
            _note(self, what, request, error)
            raise
        _note(self, what, request, None, reply)
        return reply

    return answer


def _streaming(
    what: str, call: Callable[[Any, Any], AsyncGenerator[Any]]
) -> Callable[[Any, Any], AsyncGenerator[Any]]:
    @functools.wraps(call)
    async def answer(self: Audited, request: Any) -> AsyncGenerator[Any]:  # noqa: ANN401
        is_noted = False
        try:
            async with aclosing(call(self, request)) as replies:
                async for reply in replies:
                    if not is_noted:
                        is_noted = True
                        _note(self, what, request, None, reply)
                    yield reply
            if not is_noted:
                _note(self, what, request, None)
        except Exception as error:
            if not is_noted:
                _note(self, what, request, error)
            raise

    return answer


def _note(
    service: Audited,
    what: str,
    request: Any,  # noqa: ANN401 - Any request.
    error: Exception | None,
    reply: Any = None,  # noqa: ANN401
) -> None:
    fields: dict[str, Any] = {"what": what, **_fields(what, request, reply)}
    came = origin()
    result: Result = "done"
    if error is not None:
        result = "refused" if isinstance(error, NotAllowedError) else "failed"
        fields["because"] = str(error)
    if fields.get("job"):
        owner = service.audit.owner_of(cast("str", fields["job"]))
        fields["of"] = "" if owner == came.owner else owner
    service.audit.note(AuditEntry(result=result, **_from(came), **fields))


def _fields(what: str, request: Any, reply: Any) -> dict[str, str]:  # noqa: ANN401
    """Return the fields of an entry that describe the call itself."""
    match what:
        case "submit" | "retry":
            return {"job": reply.job.id if reply is not None else request.job_id}
        case "remove" if reply is not None:
            return {"job": reply.job.id}
        case "enter-task":
            return {"job": reply.job, "target": reply.task} if reply else {}
        case "cancel" | "remove" | "read-output":
            return {"job": request.job}
        case "allocations":
            return {"target": request.name, "because": request.verb}
        case "secret-set" | "secret-remove":
            return {"target": request.name}
        case "revoke" | "accept":
            is_no = what == "accept" and request.decline
            node = reply.node.id if reply is not None else request.node
            return {"target": node, **({"what": "decline"} if is_no else {})}
        case "invite":
            uses = "once" if request.uses == 1 else f"{request.uses} times"
            role, whose = request.role or "member", "mine" if request.mine else ""
            because = f"as {role}, {uses}, for {request.ttl_s:g} s"
            return {"because": because, "target": whose or request.owner}
        case _:
            return {}


def _from(place: Origin) -> dict[str, Any]:
    uid = os.geteuid() if place.way == "socket" else None
    return {**place._asdict(), "uid": uid}
