"""What the page answers: files that everybody may see, and what the token opens.

Documents are those of `--json`, as docs/reference/json.md describes them.
"""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Annotated, Any, Final, final

import msgspec

from shoal.api import documents
from shoal.api import shoal_pb2 as pb
from shoal.api.auditing import Origin, came_by, origin, refused
from shoal.errors import NotFoundError, UsageError
from shoal.web.connection import Connection
from shoal.web.exchange import RefusalError, Response, Stream, told
from shoal.web.guarding import GUARDED, Guard
from shoal.web.streams import TASKS_MAX, Streams, info_fields

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Awaitable, Callable

    from shoal.api.far_pages import Find
    from shoal.api.service import Service
    from shoal.runtime.node import Node
    from shoal.web.exchange import Request

    Handler = Callable[[Request, str], Awaitable[Response | Stream]]

JOBS_MAX: Final = 1_000
EVENTS_MAX: Final = 200
TYPES: Final = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}
_JOB: Final = r"(?P<job>[A-Za-z0-9_-]{1,64})"
_PAGE: Final = re.compile(rf"/(jobs/{_JOB}|submit)?")

JobIdText = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9_-]{1,64}$")]


class SpecBody(msgspec.Struct, forbid_unknown_fields=True):
    """A job spec, in YAML or JSON; JSON is YAML too."""

    spec: str


class SubmitBody(msgspec.Struct, forbid_unknown_fields=True):
    """A job spec, and the id that the page has drawn for it."""

    spec: str
    job_id: JobIdText


class CancelBody(msgspec.Struct, forbid_unknown_fields=True):
    """Why a job is cancelled."""

    reason: Annotated[str, msgspec.Meta(max_length=1_000)] = ""


class RetryBody(msgspec.Struct, forbid_unknown_fields=True):
    """Under which id a job is run again, and how much of it."""

    job_id: JobIdText
    failed_only: bool = False


class AcceptBody(msgspec.Struct, forbid_unknown_fields=True):
    """Who asked to join, the code on its screen, and whether that is declined."""

    node: str
    code: str = ""
    decline: bool = False


@final
class Site:
    """Answers for one node."""

    def __init__(self, node: Node, service: Service, token: str, host: str) -> None:
        self._service = service
        self._guard = Guard(token, host)
        self._streams = Streams(node, service)
        routes: list[tuple[str, str, Handler]] = [
            ("GET", "/api/info", self._info),
            ("GET", "/api/nodes", self._nodes),
            ("GET", "/api/jobs", self._jobs),
            ("GET", "/api/events", self._events),
            ("GET", "/api/stream", self._stream),
            ("GET", f"/api/jobs/{_JOB}", self._job),
            ("GET", f"/api/jobs/{_JOB}/explain", self._explain),
            ("POST", "/api/accept", self._accept),
            ("POST", "/api/plan", self._plan),
            ("POST", "/api/jobs", self._submit),
            ("POST", f"/api/jobs/{_JOB}/cancel", self._cancel),
            ("POST", f"/api/jobs/{_JOB}/retry", self._retry),
        ]
        self._routes = [(m, re.compile(path), do) for m, path, do in routes]

    async def serve(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        find: Find | None = None,
    ) -> None:
        """Serve one visitor; `find` says who that is, if it came through a door."""
        came_by(_origin(writer))

        async def answer(request: Request) -> Response | Stream:
            guest = find() if find is not None else None
            if guest is not None and guest.address:
                came_by(Origin("page", address=guest.address))
            answered = await self.answer(request)
            if guest is not None and request.path.startswith(GUARDED):
                guest.prove("token")  # Else it would have been refused.
            return answered

        await Connection(reader, writer, answer).run()

    async def answer(self, request: Request) -> Response | Stream:
        """Answer one request."""
        try:
            self._guard.check(request)
        except RefusalError as refusal:
            what = f"page {request.path[:40]}"
            refused(self._service.audit.note, what, origin(), str(refusal.error))
            raise
        if (file := _file_of(request.path)) is not None:
            if request.method not in ("GET", "HEAD"):
                raise _not_so("GET, HEAD")
            return file
        allowed: list[str] = []
        for each, path, handler in self._routes:
            if found := path.fullmatch(request.path):
                if each == request.method:
                    return await handler(request, found.groupdict().get("job", ""))
                allowed.append(each)
        if allowed:
            raise _not_so(", ".join(allowed))
        raise NotFoundError(
            f"there is no '{request.path[:80]}' here",
            because="no page and no answer has this name",
            hint="docs/guides/web.md lists what there is",
        )

    # What is asked.

    async def _info(self, request: Request, job: str) -> Response:
        del request, job
        return told(info_fields(await self._service.on_info(pb.InfoRequest())))

    async def _nodes(self, request: Request, job: str) -> Response:
        del request, job
        nodes = (await self._service.on_nodes(pb.NodesRequest())).nodes
        return told({"nodes": [documents.node_fields(node) for node in nodes]})

    async def _jobs(self, request: Request, job: str) -> Response:
        del request, job
        reply = await self._service.on_list(pb.ListRequest(jobs_max=JOBS_MAX))
        jobs = [documents.job_fields(each) for each in reply.jobs]
        return told({"jobs": jobs, "total": reply.total})

    async def _job(self, request: Request, job: str) -> Response:
        del request
        found = await self._service.on_get(pb.GetRequest(job=job, tasks_max=TASKS_MAX))
        tasks = [documents.task_fields(task) for task in found.tasks]
        return told({"job": documents.job_fields(found), "tasks": tasks})

    async def _events(self, request: Request, job: str) -> Response:
        del request, job
        latest = self._service.on_events(pb.EventsRequest(latest=EVENTS_MAX))
        return told({"events": [documents.event_fields(each) async for each in latest]})

    async def _explain(self, request: Request, job: str) -> Response:
        asked = pb.ExplainRequest(job=job, task=request.query.get("task", ""))
        reply = await self._service.on_explain(asked)
        tasks = [documents.explanation_fields(task) for task in reply.tasks]
        return told({"job": reply.job_id, "tasks": tasks, "more": reply.more})

    async def _stream(self, request: Request, job: str) -> Stream:
        job = request.query.get("job", "")
        if not job:
            return Stream(self._streams.overview)
        found = await self._service.on_get(pb.GetRequest(job=job, tasks_max=TASKS_MAX))
        return Stream(self._streams.of_job(found.id, request.query.get("task", "")))

    # What is done.

    async def _accept(self, request: Request, job: str) -> Response:
        del job
        body = _read(request, AcceptBody)
        asked = pb.AcceptRequest(node=body.node, decline=body.decline, code=body.code)
        reply = await self._service.on_accept(asked)
        return told({"node": documents.name_fields(reply.node)})

    async def _plan(self, request: Request, job: str) -> Response:
        del job
        body = _read(request, SpecBody)
        reply = await self._service.on_plan(pb.PlanRequest(yaml=body.spec))
        return told(documents.plan_fields(reply))

    async def _submit(self, request: Request, job: str) -> Response:
        del job
        body = _read(request, SubmitBody)
        asked = pb.SubmitRequest(job_id=body.job_id, yaml=body.spec)
        return _submitted(await self._service.on_submit(asked))

    async def _cancel(self, request: Request, job: str) -> Response:
        body = _read(request, CancelBody)
        asked = pb.CancelRequest(job=job, reason=body.reason)
        reply = await self._service.on_cancel(asked)
        job_ = documents.job_fields(reply.job)
        return told({"job": job_, "had_ended": reply.had_ended})

    async def _retry(self, request: Request, job: str) -> Response:
        body = _read(request, RetryBody)
        asked = pb.RetryRequest(
            job=job, job_id=body.job_id, failed_only=body.failed_only
        )
        return _submitted(await self._service.on_retry(asked))


def _submitted(reply: pb.SubmitReply) -> Response:
    return told(
        {
            "job": documents.job_fields(reply.job),
            "needs": reply.needs,
            "notes": list(reply.notes),
        }
    )


def _read(request: Request, kind: Any) -> Any:  # noqa: ANN401 - One of the bodies.
    try:
        return msgspec.json.decode(request.body or b"{}", type=kind)
    except msgspec.DecodeError as error:
        raise UsageError(
            f"that is not what is asked for: {error}",
            because="the body must be the JSON that docs/guides/web.md describes",
            hint="use the page itself, or `shoal` on the command line",
        ) from None


def _not_so(allowed: str) -> RefusalError:
    error = UsageError(
        "that cannot be done with this",
        because=f"it takes {allowed}",
        hint="docs/guides/web.md lists what there is",
    )
    return RefusalError(405, error)


# Files.


@cache
def _static() -> dict[str, Response]:
    """Return all files by path: no name that is asked for ever reaches the disk."""
    found: dict[str, Response] = {}
    for file in files("shoal.web").joinpath("static").iterdir():
        kind = TYPES.get(file.name.rpartition(".")[2])
        if kind is not None:
            found[f"/static/{file.name}"] = Response(200, file.read_bytes(), kind)
    return found


def _file_of(path: str) -> Response | None:
    if _PAGE.fullmatch(path):
        return _static()["/static/index.html"]
    return _static().get(path)


def _origin(writer: asyncio.StreamWriter) -> Origin:
    name = writer.get_extra_info("peername")
    return Origin(way="page", address=str(name[0]) if name else "")
