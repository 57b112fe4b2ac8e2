"""Routes of the page: static files for everybody, documents with the token.

Documents are those of `--json`, described in docs/reference/json.md.
"""

from __future__ import annotations

import gzip
import hmac
import ipaddress
import socket
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeVar, final

import msgspec
from starlette.convertors import Convertor, register_url_convertor
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import Route

from shoal import validation
from shoal.api import documents
from shoal.api import shoal_pb2 as pb
from shoal.api.server.http_app import (
    JSON,
    RefusalError,
    body_of,
    encoded,
    guest_of,
    header_of,
    make_app,
)
from shoal.api.service.audited import Origin, came_by, origin, refused
from shoal.errors import NotAllowedError, UsageError
from shoal.interfaces import is_loopback
from shoal.web.downloads import DownloadBody, Downloads, Tickets
from shoal.web.streams import (
    LOG_BYTES,
    LOG_BYTES_MAX,
    TASKS_MAX,
    EventStream,
    Streams,
    info_fields,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from starlette.requests import Request
    from starlette.types import ASGIApp, Scope

    from shoal.api.service.service import Service
    from shoal.core.durability.audit_chain import AuditEntry
    from shoal.runtime.node import Node

T = TypeVar("T")

JOBS_MAX: Final = 1_000
TASKS_ASKED_MAX: Final = 10_000
EVENTS_MAX: Final = 200
LISTING: Final = "docs/guides/web.md lists what there is"
TYPES: Final = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}

JobIdText = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9_-]{1,64}$")]


class SpecBody(msgspec.Struct, forbid_unknown_fields=True):
    """A job spec in YAML, and so also in JSON."""

    spec: str


class SubmitBody(msgspec.Struct, forbid_unknown_fields=True):
    """A job spec, and the job id that the page generated."""

    spec: str
    job_id: JobIdText


class CancelBody(msgspec.Struct, forbid_unknown_fields=True):
    """Why a job is cancelled."""

    reason: Annotated[str, msgspec.Meta(max_length=1_000)] = ""


class RetryBody(msgspec.Struct, forbid_unknown_fields=True):
    """The id of the new run, and whether to rerun only failed tasks."""

    job_id: JobIdText
    failed_only: bool = False


class AcceptBody(msgspec.Struct, forbid_unknown_fields=True):
    """The node that asked to join, the code it shows, and whether to decline."""

    node: str
    code: str = ""
    decline: bool = False


class ForgetBody(msgspec.Struct, forbid_unknown_fields=True):
    """The node to forget."""

    node: str


class _JobConvertor(Convertor[str]):
    """A job's id, a prefix of it, or `last`, as a path segment."""

    regex = "[A-Za-z0-9_-]{1,64}"

    def convert(self, value: str) -> str:
        """Return the text unchanged."""
        return value

    def to_string(self, value: str) -> str:
        """Return the text unchanged."""
        return value


register_url_convertor("job", _JobConvertor())


@final
class Site:
    """Answers requests about one node."""

    def __init__(
        self, node: Node, service: Service, token: Callable[[], str], host: str
    ) -> None:
        self._service = service
        self._guard = Guard(token, host, service.audit.note)
        self._streams = Streams(node, service)
        self._downloads = Downloads(service)
        self._tickets = Tickets()

    def app(self) -> ASGIApp:
        """Return the ASGI application."""
        routes = [
            Route("/", _index),
            Route("/submit", _index),
            Route("/nodes", _index),
            Route("/nodes/{node:job}", _index),
            Route("/compare", _index),
            Route("/jobs/{job:job}", _index),
            Route("/static/{name}", _file),
            _get("/api/info", self._info),
            _get("/api/nodes", self._nodes),
            _get("/api/jobs", self._jobs),
            _get("/api/events", self._events),
            _get("/api/stream", self._stream),
            _get("/api/jobs/{job:job}", self._job),
            _get("/api/jobs/{job:job}/explain", self._explain),
            _get("/api/jobs/{job:job}/curves", self._curves),
            _get("/api/jobs/{job:job}/outputs", self._outputs),
            _get("/api/nodes/{node:job}", self._node),
            _get("/downloads/{ticket:job}", self._download),
            Route("/api/downloads", self._ticket, methods=["POST"]),
            Route("/api/forget", self._forget, methods=["POST"]),
            Route("/api/accept", self._accept, methods=["POST"]),
            Route("/api/plan", self._plan, methods=["POST"]),
            Route("/api/jobs", self._submit, methods=["POST"]),
            Route("/api/jobs/{job:job}/cancel", self._cancel, methods=["POST"]),
            Route("/api/jobs/{job:job}/retry", self._retry, methods=["POST"]),
        ]
        return make_app(routes, self._guard, LISTING)

    # Queries.

    async def _info(self, request: Request) -> Response:
        del request
        return _told(info_fields(await self._service.on_info(pb.InfoRequest())))

    async def _nodes(self, request: Request) -> Response:
        del request
        nodes = (await self._service.on_nodes(pb.NodesRequest())).nodes
        return _told({"nodes": [documents.node_fields(node) for node in nodes]})

    async def _jobs(self, request: Request) -> Response:
        del request
        reply = await self._service.on_list(pb.ListRequest(jobs_max=JOBS_MAX))
        jobs = [documents.job_fields(each) for each in reply.jobs]
        return _told({"jobs": jobs, "total": reply.total})

    async def _job(self, request: Request) -> Response:
        asked = pb.GetRequest(
            job=request.path_params["job"],
            tasks_max=_number(request, "tasks", TASKS_MAX, TASKS_ASKED_MAX),
        )
        found = await self._service.on_get(asked)
        tasks = [documents.task_fields(task) for task in found.tasks]
        return _told(
            {
                "job": documents.job_fields(found),
                "tasks": tasks,
                "steps": documents.steps_fields(found),
            }
        )

    async def _events(self, request: Request) -> Response:
        del request
        latest = self._service.on_events(pb.EventsRequest(latest=EVENTS_MAX))
        events = [documents.event_fields(each) async for each in latest]
        return _told({"events": events})

    async def _explain(self, request: Request) -> Response:
        asked = pb.ExplainRequest(
            job=request.path_params["job"], task=request.query_params.get("task", "")
        )
        reply = await self._service.on_explain(asked)
        tasks = [documents.explanation_fields(task) for task in reply.tasks]
        return _told({"job": reply.job_id, "tasks": tasks, "more": reply.more})

    async def _stream(self, request: Request) -> Response:
        job = request.query_params.get("job", "")
        if not job:
            return EventStream(self._streams.overview)
        found = await self._service.on_get(pb.GetRequest(job=job, tasks_max=TASKS_MAX))
        task = request.query_params.get("task", "")
        log_bytes = _number(request, "log_bytes", LOG_BYTES, LOG_BYTES_MAX)
        return EventStream(self._streams.of_job(found.id, task, log_bytes))

    async def _curves(self, request: Request) -> Response:
        since_s = _number(request, "since_s", 0, 1 << 40)
        asked = pb.CurvesRequest(job=request.path_params["job"], since_s=since_s)
        reply = await self._service.on_curves(asked)
        found: dict[str, dict[str, Any]] = {}
        for curve in reply.curves:
            points = zip(curve.at_s, curve.steps, curve.values, strict=True)
            found.setdefault(curve.task, {})[curve.name] = list(points)
        return _told(found)

    async def _outputs(self, request: Request) -> Response:
        job, task = request.path_params["job"], request.query_params.get("task", "")
        return _told(await self._downloads.listing(job, task))

    async def _node(self, request: Request) -> Response:
        asked = pb.InspectRequest(
            node=request.path_params["node"],
            since_s=_number(request, "since_s", 0, 1 << 40),
        )
        return _told(documents.inspection_fields(await self._service.on_inspect(asked)))

    async def _download(self, request: Request) -> Response:
        wanted = self._tickets.take(request.path_params["ticket"])
        return await self._downloads.response(wanted)

    # Actions.

    async def _ticket(self, request: Request) -> Response:
        wanted = await _read(request, DownloadBody)
        return _told({"url": f"/downloads/{self._tickets.give(wanted)}"})

    async def _forget(self, request: Request) -> Response:
        body = await _read(request, ForgetBody)
        reply = await self._service.on_forget(pb.ForgetRequest(node=body.node))
        return _told({"forgotten": documents.name_fields(reply.node)})

    async def _accept(self, request: Request) -> Response:
        body = await _read(request, AcceptBody)
        asked = pb.AcceptRequest(node=body.node, decline=body.decline, code=body.code)
        reply = await self._service.on_accept(asked)
        return _told({"node": documents.name_fields(reply.node)})

    async def _plan(self, request: Request) -> Response:
        body = await _read(request, SpecBody)
        reply = await self._service.on_plan(pb.PlanRequest(yaml=body.spec))
        return _told(documents.fields_of(reply))

    async def _submit(self, request: Request) -> Response:
        body = await _read(request, SubmitBody)
        asked = pb.SubmitRequest(job_id=body.job_id, yaml=body.spec)
        return _submitted(await self._service.on_submit(asked))

    async def _cancel(self, request: Request) -> Response:
        body = await _read(request, CancelBody)
        asked = pb.CancelRequest(job=request.path_params["job"], reason=body.reason)
        reply = await self._service.on_cancel(asked)
        job = documents.job_fields(reply.job)
        return _told({"job": job, "had_ended": reply.had_ended})

    async def _retry(self, request: Request) -> Response:
        body = await _read(request, RetryBody)
        asked = pb.RetryRequest(
            job=request.path_params["job"],
            job_id=body.job_id,
            failed_only=body.failed_only,
        )
        return _submitted(await self._service.on_retry(asked))


def _get(path: str, endpoint: Callable[[Request], Awaitable[Response]]) -> Route:
    """Return a GET-only route; Starlette would run the endpoint for HEAD too."""
    route = Route(path, endpoint, methods=["GET"])
    route.methods = {"GET"}
    return route


def _number(request: Request, name: str, default: int, most: int) -> int:
    """Return a number of the query, at most `most`; the default if it is none."""
    text = request.query_params.get(name, "")
    digits = text.partition(".")[0]
    is_number = digits.isascii() and digits.isdigit() and len(digits) < 16
    return min(int(digits), most) if is_number else default


def _told(document: Any) -> Response:  # noqa: ANN401 - Any JSON value.
    return Response(encoded(document), media_type=JSON)


def _submitted(reply: pb.SubmitReply) -> Response:
    return _told(
        {
            "job": documents.job_fields(reply.job),
            "needs": reply.needs,
            "notes": list(reply.notes),
        }
    )


async def _read(request: Request, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(await body_of(request) or b"{}", type=kind)
    except msgspec.ValidationError as error:
        _, path = validation.told(error)
        raise UsageError(
            validation.sentence(error),
            because="it must be the JSON that docs/guides/web.md describes",
            hint=validation.advice(kind, path)
            or "use the page itself, or `shoal` on the command line",
        ) from None
    except msgspec.DecodeError as error:
        raise UsageError(
            f"the body is not understood: {error}",
            because="it must be the JSON that docs/guides/web.md describes",
            hint="use the page itself, or `shoal` on the command line",
        ) from None


# Static files.


@cache
def _static() -> dict[str, tuple[bytes, bytes, str]]:
    """Load all static files by name, so no requested path reaches the disk.

    Each as it is and compressed: over a slow link the page is there in a third of the
    time. Nothing in it is secret, so its compressed length tells nothing.
    """
    found: dict[str, tuple[bytes, bytes, str]] = {}
    for file in files("shoal.web").joinpath("static").iterdir():
        kind = TYPES.get(file.name.rpartition(".")[2])
        if kind is not None:
            data = file.read_bytes()
            found[file.name] = (data, gzip.compress(data, mtime=0), kind)
    return found


async def _index(request: Request) -> Response:
    return _sent("index.html", request)


async def _file(request: Request) -> Response:
    return _sent(request.path_params["name"], request)


def _sent(name: str, request: Request) -> Response:
    found = _static().get(name)
    if found is None:
        raise HTTPException(404)
    plain, compressed, kind = found
    headers = {"Vary": "Accept-Encoding"}
    if "gzip" not in request.headers.get("accept-encoding", ""):
        return Response(plain, media_type=kind, headers=headers)
    headers["Content-Encoding"] = "gzip"
    return Response(compressed, media_type=kind, headers=headers)


GUARDED: Final = "/api/"
"""Paths below this need the token."""

HERE: Final = frozenset({"localhost", "127.0.0.1", "::1"})


@final
class Guard:
    """Authorises each request by token, `Host` and `Origin`.

    The token comes in the `Authorization` header, which no other site can make a
    browser send. That alone defeats cross-site forms and DNS rebinding; checking host
    and origin is a second line of defence. Static files need no token. Every refusal is
    audited.
    """

    def __init__(
        self, token: Callable[[], str], host: str, note: Callable[[AuditEntry], None]
    ) -> None:
        """Guard a page that listens on `host`; off loopback, the page uses TLS.

        `note` writes refusals into the audit log.
        """
        self._token = token
        self._is_open = not is_loopback(host)
        self._scheme = "https" if self._is_open else "http"
        self._names = HERE | {host, socket.gethostname().lower()}
        self._note = note

    def __call__(self, scope: Scope) -> None:
        """Raise `RefusalError`, and audit it, unless the request is allowed."""
        guest = guest_of(scope)
        came_by(Origin("page", address=guest.address))
        try:
            self.check(scope)
        except RefusalError as refusal:
            what = f"page {scope['path'][:40]}"
            refused(self._note, what, origin(), str(refusal.error))
            raise
        if scope["path"].startswith(GUARDED):
            guest.prove("token")

    def check(self, scope: Scope) -> None:
        """Raise `RefusalError` on a wrong host, origin, token or content type."""
        host = header_of(scope, b"host") or ""
        self._check_host(host)
        self._check_origin(header_of(scope, b"origin"), host)
        if not scope["path"].startswith(GUARDED):
            return
        shown = (header_of(scope, b"authorization") or "").encode()
        if not hmac.compare_digest(shown, f"Bearer {self._token()}".encode()):
            error = NotAllowedError(
                "the page does not know you",
                because="a wrong token was shown" if shown else "no token was shown",
                hint="`shoal web` on the machine of the node opens it with its token",
            )
            raise RefusalError(401, error)
        if scope["method"] == "POST":
            kind = (header_of(scope, b"content-type") or "").partition(";")[0].strip()
            if kind.lower() != JSON:
                raise RefusalError(415, _not_json(kind))

    def _check_host(self, text: str) -> None:
        """Refuse host names that others may have pointed here (DNS rebinding)."""
        host = _host_of(text)
        if host in self._names or (self._is_open and _is_address(host)):
            return
        error = NotAllowedError(
            f"this page is not '{host[:80]}'",
            because="it answers to addresses, and to the name of its machine",
            hint="open the address that `shoal web` prints",
        )
        raise RefusalError(421, error)

    def _check_origin(self, origin: str | None, host: str) -> None:
        """Refuse requests whose `Origin` is another site."""
        if origin is None or origin == f"{self._scheme}://{host}":
            return
        error = NotAllowedError(
            f"'{origin[:80]}' may not ask this",
            because="only the page of the node itself may",
            hint="open the address that `shoal web` prints",
        )
        raise RefusalError(403, error)


def _not_json(kind: str) -> UsageError:
    return UsageError(
        f"'{kind[:40]}' is not understood here",
        because="the page takes requests in JSON only",
        hint=f"send it with content-type: {JSON}",
    )


def _host_of(text: str) -> str:
    """Return the host of `localhost:7420` or `[::1]:7420`."""
    if text.startswith("["):
        return text[1:].partition("]")[0].lower()
    return text.partition(":")[0].lower()


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
