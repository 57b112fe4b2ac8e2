"""Live updates for visitors, as server-sent events with one-line JSON documents.

While somebody watches, the state of the node is read whenever the node signals news,
and every few seconds for what it does not signal, such as the load of other nodes.
Reading takes at most `SHARE_MAX` of the time. Unchanged documents are not sent again.

Visitors of the overview share one snapshot; each visitor of a job has a `_JobPage`. A
slow visitor holds up only its own stream, which buffers one event.
"""

from __future__ import annotations

import asyncio
import codecs
import contextlib
import time
from typing import TYPE_CHECKING, Any, Final, cast, final

from starlette.responses import StreamingResponse

from shoal.api import documents
from shoal.api import shoal_pb2 as pb
from shoal.api.failures import shown_of
from shoal.api.results import best_first
from shoal.api.server.http_app import encoded, error_fields
from shoal.model.ids import TaskId
from shoal.runtime.monitoring.event_log import KEPT_MAX

if TYPE_CHECKING:
    from collections.abc import (
        AsyncGenerator,
        AsyncIterator,
        Awaitable,
        Callable,
        Iterator,
    )

    from starlette.types import Receive, Scope
    from starlette.types import Send as AsgiSend

    from shoal.api.service.service import Service
    from shoal.runtime.node import Node

    Send = Callable[[str, bytes], Awaitable[None]]
    """Sends a visitor one event: its name, and a one-line document."""

    Run = Callable[[Send], Awaitable[None]]

JOBS_MAX: Final = 200
TASKS_MAX: Final = 200
EVENTS_MAX: Final = 100
LOOK_S: Final = 0.4
"""Minimum time between two reads of the state."""

TICK_S: Final = 2.0
"""Longest wait for news after that pause, while somebody watches."""

SHARE_MAX: Final = 0.05
LOG_BYTES: Final = 1 << 19
"""Earlier output to show of a job, all tasks together."""

LOG_BYTES_MAX: Final = 1 << 26
"""The same for a visitor who wants more."""

LOG_BYTES_OF_A_TASK: Final = 4_096
"""Earlier output to show of each task at least."""


BEAT_S: Final = 15.0
"""Keep-alive interval, so that a vanished visitor is noticed."""


@final
class EventStream(StreamingResponse):
    """Server-sent events from `run`, until it returns or the visitor leaves.

    At most one event is buffered: `run` waits until the visitor has taken it, so
    nothing piles up.
    """

    def __init__(self, run: Run) -> None:
        self._pieces = _pieces(run)
        headers = {"Content-Type": "text/event-stream"}  # UTF-8 by definition.
        super().__init__(self._pieces, headers=headers)

    async def __call__(self, scope: Scope, receive: Receive, send: AsgiSend) -> None:
        """Stream the events; `run` has ended when this returns."""
        async with contextlib.aclosing(self._pieces):
            await super().__call__(scope, receive, send)


async def _pieces(run: Run) -> AsyncGenerator[bytes]:
    queue: asyncio.Queue[bytes | None] = asyncio.Queue(1)

    async def send(name: str, document: bytes) -> None:
        await queue.put(b"event: %b\ndata: %b\n\n" % (name.encode(), document))

    async def tell() -> None:
        try:
            await run(send)
        except Exception as error:  # noqa: BLE001 - Reported to the visitor.
            shown, _ = shown_of(_cause(error))
            await send("error", encoded(error_fields(shown)))
        await queue.put(None)

    telling = asyncio.ensure_future(tell())
    try:
        while True:
            try:
                async with asyncio.timeout(BEAT_S):
                    piece = await queue.get()
            except TimeoutError:
                piece = b": still here\n\n"
            if piece is None:
                return
            yield piece
    finally:
        telling.cancel()
        await asyncio.gather(telling, return_exceptions=True)


def _cause(error: Exception) -> Exception:
    """Return the first error of a possibly nested exception group."""
    while isinstance(error, ExceptionGroup):
        group = cast("ExceptionGroup[Exception]", error)
        error = group.exceptions[0]
    return error


@final
class Streams:
    """Makes the streams of all visitors; overviews share one snapshot."""

    def __init__(self, node: Node, service: Service) -> None:
        self._node = node
        self._service = service
        self._looked_at = -LOOK_S
        self._seen: dict[str, bytes] = {}

    async def overview(self, send: Send) -> None:
        """Stream the node, all nodes, the latest jobs, and events."""
        events = self._events(EVENTS_MAX, "")
        async with asyncio.TaskGroup() as group:
            group.create_task(self._watch(self._look, send))
            group.create_task(_tell_all(events, send))

    def of_job(
        self, job: str, task: str, log_bytes: int = LOG_BYTES
    ) -> Callable[[Send], Awaitable[None]]:
        """Return a stream of one job: its state, curves, events and output.

        `task` limits the output to one task, `log_bytes` what is past of it.
        """

        async def run(send: Send) -> None:
            page = _JobPage(self._node, self._service, job)
            async with asyncio.TaskGroup() as group:
                group.create_task(self._watch(page.look, send))
                group.create_task(_tell_all(self._events(KEPT_MAX, job), send))
                group.create_task(page.tell_output(task, log_bytes, send))

        return run

    async def _watch(
        self, look: Callable[[], Awaitable[dict[str, bytes]]], send: Send
    ) -> None:
        told: dict[str, bytes] = {}
        while True:
            news = asyncio.ensure_future(self._node.news.wait())
            try:
                began = time.perf_counter()
                seen = await look()
                spent_s = time.perf_counter() - began
                for name, document in seen.items():
                    if told.get(name) != document:
                        await send(name, document)
                        told[name] = document
                await asyncio.sleep(max(LOOK_S, spent_s / SHARE_MAX))
                await asyncio.wait([news], timeout=TICK_S)
            finally:
                news.cancel()

    async def _look(self) -> dict[str, bytes]:
        """Return the overview's documents; reuse those newer than `LOOK_S`."""
        now = time.perf_counter()
        if now - self._looked_at >= LOOK_S:
            self._looked_at = now
            service = self._service
            info = await service.on_info(pb.InfoRequest())
            nodes = (await service.on_nodes(pb.NodesRequest())).nodes
            asked = pb.ListRequest(jobs_max=JOBS_MAX, active_max=JOBS_MAX)
            jobs = await service.on_list(asked)
            asking = await service.on_requests(pb.RequestsRequest())
            latest = [documents.job_fields(job) for job in reversed(jobs.jobs)]
            self._seen = {
                "info": encoded(info_fields(info)),
                "nodes": encoded([documents.node_fields(node) for node in nodes]),
                "jobs": encoded({"jobs": latest, "total": jobs.total}),
                "requests": encoded(documents.requests_fields(asking)),
            }
        return self._seen

    async def _events(self, latest: int, job: str) -> AsyncIterator[tuple[str, bytes]]:
        """Yield events, of one job if given; past events come as one list."""
        number = 0
        past: list[dict[str, Any]] = []
        async for event in self._service.on_events(pb.EventsRequest(latest=latest)):
            number = event.number
            if job in ("", event.job):
                past.append(documents.event_fields(event))
        yield "happened", encoded(past)
        asked = pb.EventsRequest(latest=KEPT_MAX, follow=True)
        async for event in self._service.on_events(asked):
            if event.number > number and job in ("", event.job):
                yield "happened", encoded([documents.event_fields(event)])


@final
class _JobPage:
    """What one visitor has been sent about one job."""

    def __init__(self, node: Node, service: Service, job: str) -> None:
        self._node = node
        self._service = service
        self._job = job
        self._curves_told_s = 0.0

    async def look(self) -> dict[str, bytes]:
        """Return the job, its tasks, and new points of its curves."""
        asked = pb.GetRequest(job=self._job, tasks_max=TASKS_MAX)
        job = await self._service.on_get(asked)
        tasks = [documents.task_fields(task) for task in job.tasks]
        info = await self._service.on_info(pb.InfoRequest())
        seen = {
            "info": encoded(info_fields(info)),
            "job": encoded(
                {
                    "job": documents.job_fields(job),
                    "tasks": tasks,
                    "steps": documents.steps_fields(job),
                    "best": _best(job),
                }
            ),
        }
        if curves := self._new_curves([TaskId(task.id) for task in job.tasks]):
            seen["curves"] = encoded(curves)
        return seen

    def _new_curves(self, tasks: list[TaskId]) -> dict[str, Any]:
        """Return new points (time, step, value) by task and metric."""
        curves = self._node.outputs.metrics.curves
        since_s = self._curves_told_s
        found: dict[str, Any] = {}
        for task in tasks:
            if later := curves.since(task, since_s):
                found[task] = later
                last_s = max(points[-1].at_s for points in later.values())
                self._curves_told_s = max(self._curves_told_s, last_s)
        return found

    async def tell_output(self, task: str, log_bytes: int, send: Send) -> None:
        """Stream the job's output, from its recent past until the job ends."""
        asked = pb.GetRequest(job=self._job, tasks_max=0)
        count = 1 if task else sum(_counts(await self._service.on_get(asked)))
        request = pb.LogsRequest(
            job=self._job,
            task=task,
            follow=True,
            last_bytes=max(LOG_BYTES_OF_A_TASK, log_bytes // max(1, count)),
            times=True,
        )
        decoders: dict[tuple[str, int, int], codecs.IncrementalDecoder] = {}
        found = cast("AsyncGenerator[pb.LogPiece]", self._service.on_logs(request))
        async with contextlib.aclosing(found) as pieces:
            async for piece in pieces:
                key = (piece.task, piece.attempt, piece.stream)
                is_first = key not in decoders
                decoder = decoders.setdefault(key, _utf8("replace"))
                fields = {
                    "task": piece.task,
                    "stream": documents.stream_of(piece),
                    "attempt": piece.attempt,
                    "pieces": [
                        (at_s, decoder.decode(data)) for at_s, data in timed(piece)
                    ],
                    "cut": is_first and piece.offset > 0,
                    "missing": piece.missing,  # Why, if lines may be.
                }
                await send("output", encoded(fields))
        await send("output-end", b"{}")


def timed(piece: pb.LogPiece) -> Iterator[tuple[float | None, bytes]]:
    """Go through the parts of some output, each with when it came, if that is known."""
    begin, at_s = 0, None
    for each in piece.times:
        place = min(max(0, each.offset - piece.offset), len(piece.data))
        if place > begin:
            yield at_s, piece.data[begin:place]
            begin = place
        at_s = each.at_s
    if begin < len(piece.data):
        yield at_s, piece.data[begin:]


def _best(job: pb.Job) -> dict[str, Any] | None:
    """Return by which metric the tasks of a job are compared, if that is known."""
    order = best_first(job)
    return None if order is None else order._asdict()


_utf8: Final = codecs.getincrementaldecoder("utf-8")


def _counts(job: pb.Job) -> list[int]:
    return [getattr(job.counts, field.name) for field in pb.Counts.DESCRIPTOR.fields]


async def _tell_all(events: AsyncIterator[tuple[str, bytes]], send: Send) -> None:
    async for name, document in events:
        await send(name, document)


def info_fields(info: pb.NodeInfo) -> dict[str, Any]:
    """Return the page header's facts on a node; none that change constantly."""
    network = info.network
    return {
        **documents.name_fields(info.name),
        "version": info.version,
        "shoal": info.shoal,
        "roles": list(info.roles),
        "policy": info.policy,
        "jobs": info.jobs,
        "active_jobs": info.active_jobs,
        "relays": network.relays,
        "p2p": network.p2p,
        "gates": [
            {**documents.name_fields(gate.name), "path": gate.path}
            for gate in network.gates
        ],
    }
