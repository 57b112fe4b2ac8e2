"""What visitors are told as it happens: events with documents, each on one line.

A look at the node is taken when it has news, and every few seconds for what is no news,
such as how busy others are; only while somebody watches, and for at most a twentieth
of the time. What has not changed is not told again.
"""

from __future__ import annotations

import asyncio
import codecs
import contextlib
import time
from typing import TYPE_CHECKING, Any, Final, cast, final

from shoal.api import documents
from shoal.api import shoal_pb2 as pb
from shoal.model.ids import TaskId
from shoal.runtime.happenings import KEPT_MAX
from shoal.web.exchange import encoded

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable

    from shoal.api.service import Service
    from shoal.runtime.node import Node
    from shoal.web.exchange import Send

JOBS_MAX: Final = 200
TASKS_MAX: Final = 200
EVENTS_MAX: Final = 100
LOOK_S: Final = 0.4
"""Between two looks at least."""

TICK_S: Final = 2.0
"""Between two looks at most, while somebody watches."""

SHARE_MAX: Final = 0.05
LOG_BYTES: Final = 1 << 19
"""So much of what a job wrote before is shown, all tasks together."""

LOG_BYTES_OF_A_TASK: Final = 4_096
"""Of each task at least so much."""


@final
class Streams:
    """Makes the streams of all visitors, who share their looks at the node."""

    def __init__(self, node: Node, service: Service) -> None:
        self._node = node
        self._service = service
        self._looked_at = -LOOK_S
        self._seen: dict[str, bytes] = {}

    async def overview(self, send: Send) -> None:
        """Tell of the node, all nodes, the latest jobs, and what happens."""
        events = self._events(EVENTS_MAX, "")
        async with asyncio.TaskGroup() as group:
            group.create_task(self._watch(self._look, send))
            group.create_task(_tell_all(events, send))

    def of_job(self, job: str, task: str) -> Callable[[Send], Awaitable[None]]:
        """Return what tells of a job: what it is, figures, events, and its output.

        `task` limits the output to one task.
        """

        async def run(send: Send) -> None:
            page = _JobPage(self._node, self._service, job)
            async with asyncio.TaskGroup() as group:
                group.create_task(self._watch(page.look, send))
                group.create_task(_tell_all(self._events(KEPT_MAX, job), send))
                group.create_task(page.tell_output(task, send))

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
        """Return what the first page shows; two visitors at once get the same."""
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
        """Return what happens to a job, or at all: those of the past in one list."""
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
    """What one visitor has been told of one job."""

    def __init__(self, node: Node, service: Service, job: str) -> None:
        self._node = node
        self._service = service
        self._job = job
        self._curves_told_s = 0.0

    async def look(self) -> dict[str, bytes]:
        """Return the job and its tasks, and the points of curves that are new."""
        asked = pb.GetRequest(job=self._job, tasks_max=TASKS_MAX)
        job = await self._service.on_get(asked)
        tasks = [documents.task_fields(task) for task in job.tasks]
        info = await self._service.on_info(pb.InfoRequest())
        seen = {
            "info": encoded(info_fields(info)),
            "job": encoded({"job": documents.job_fields(job), "tasks": tasks}),
        }
        if curves := self._new_curves([TaskId(task.id) for task in job.tasks]):
            seen["curves"] = encoded(curves)
        return seen

    def _new_curves(self, tasks: list[TaskId]) -> dict[str, Any]:
        """Return points by task and figure: when, at which step, and how much."""
        curves = self._node.outputs.curves
        since_s = self._curves_told_s
        found: dict[str, Any] = {}
        for task in tasks:
            if later := curves.since(task, since_s):
                found[task] = later
                last_s = max(points[-1].at_s for points in later.values())
                self._curves_told_s = max(self._curves_told_s, last_s)
        return found

    async def tell_output(self, task: str, send: Send) -> None:
        """Tell what the job writes, from a while ago until it has ended."""
        asked = pb.GetRequest(job=self._job, tasks_max=0)
        count = 1 if task else sum(_counts(await self._service.on_get(asked)))
        request = pb.LogsRequest(
            job=self._job,
            task=task,
            follow=True,
            last_bytes=max(LOG_BYTES_OF_A_TASK, LOG_BYTES // max(1, count)),
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
                    "text": decoder.decode(piece.data),
                    "cut": is_first and piece.offset > 0,
                }
                await send("output", encoded(fields))
        await send("output-end", b"{}")


_utf8: Final = codecs.getincrementaldecoder("utf-8")


def _counts(job: pb.Job) -> list[int]:
    return [getattr(job.counts, field.name) for field in pb.Counts.DESCRIPTOR.fields]


async def _tell_all(events: AsyncIterator[tuple[str, bytes]], send: Send) -> None:
    async for name, document in events:
        await send(name, document)


def info_fields(info: pb.NodeInfo) -> dict[str, Any]:
    """Return what a node is, for the head of the page; nothing that always changes."""
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
