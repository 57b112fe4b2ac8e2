"""A node as the page sees it: what it is asked, and answers that never change."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast

from shoal.api import shoal_pb2 as pb
from shoal.api.server.http_server import HttpLimits
from shoal.api.service.service import Service
from shoal.blobs import trees
from shoal.blobs.trees import TreeEntry
from shoal.core.durability.audit_chain import AuditEntry
from shoal.errors import NotFoundError, ShoalError
from shoal.protocol.blob_hashing import name_of_bytes
from shoal.runtime.home import Home
from shoal.runtime.monitoring.change_signal import ChangeSignal
from shoal.runtime.monitoring.metric_history import MetricHistory
from shoal.runtime.node import Node
from shoal.web.page import LIMITS, WebPage

TOKEN = "token-of-the-node"


class FakeService:
    """Answers as a node with one job would; `asked` is all that it was asked."""

    def __init__(self) -> None:
        self.asked: list[Any] = []
        self.audit = self
        self.noted: list[AuditEntry] = []
        self.nodes = [
            pb.Node(name=pb.NodeName(id="n0", petname="calm-heron-01"), self=True)
        ]
        self.job = pb.Job(id="abc", name="<b>bold</b>", state=pb.STATE_RUNNING)
        self.job.counts.running = 1
        self.job.tasks.add(id="abc.main.0", state=pb.STATE_RUNNING, attempts=1)
        self.output = [b"gr\xc3", b"\xbc\xc3\x9fe\n"]
        self.left: dict[str, bytes] = {}  # what its task has left, by path
        self.fails: Exception | None = None

    async def on_info(self, request: pb.InfoRequest) -> pb.NodeInfo:
        return pb.NodeInfo(name=self.nodes[0].name, shoal="reef")

    async def on_nodes(self, request: pb.NodesRequest) -> pb.NodesReply:
        return pb.NodesReply(nodes=self.nodes)

    async def on_requests(self, request: pb.RequestsRequest) -> pb.RequestsReply:
        newcomer = pb.Newcomer(
            name=pb.NodeName(id="n9", petname="old-crow-09"), has="2 CPU", code="elk-42"
        )
        return pb.RequestsReply(shoal="reef", newcomers=[newcomer])

    def note(self, entry: AuditEntry) -> None:
        self.noted.append(entry)

    async def on_accept(self, request: pb.AcceptRequest) -> pb.AcceptReply:
        self.asked.append(request)
        return pb.AcceptReply(node=pb.NodeName(id=request.node))

    async def on_list(self, request: pb.ListRequest) -> pb.ListReply:
        return pb.ListReply(jobs=[self.job], total=1)

    async def on_get(self, request: pb.GetRequest) -> pb.Job:
        if self.fails is not None:
            raise self.fails
        if request.job != self.job.id:
            raise NotFoundError(f"no job '{request.job}'", hint="`shoal ps`")
        return self.job

    async def on_events(self, request: pb.EventsRequest) -> AsyncIterator[pb.Event]:
        yield pb.Event(number=1, what="submitted", text="job abc", job="abc")
        yield pb.Event(number=2, what="linked", text="somebody is linked")
        if request.follow:
            await asyncio.Event().wait()

    async def on_logs(self, request: pb.LogsRequest) -> AsyncIterator[pb.LogPiece]:
        self.asked.append(request)
        for data in self.output:
            yield pb.LogPiece(
                task="abc.main.0", stream=pb.STREAM_STDOUT, attempt=1, data=data
            )

    async def on_curves(self, request: pb.CurvesRequest) -> pb.CurvesReply:
        self.asked.append(request)
        curve = pb.Curve(
            task="abc.main.0", name="loss", at_s=[5], steps=[7], values=[2]
        )
        return pb.CurvesReply(curves=[curve])

    async def on_inspect(self, request: pb.InspectRequest) -> pb.InspectReply:
        self.asked.append(request)
        use = pb.Use(at_s=9.0, cpu_milli=700)
        there = pb.TaskThere(task="abc.main.0", job="abc", scheduler=self.nodes[0].name)
        return pb.InspectReply(node=self.nodes[0], history=[use], tasks=[there])

    async def on_forget(self, request: pb.ForgetRequest) -> pb.ForgetReply:
        self.asked.append(request)
        return pb.ForgetReply(node=pb.NodeName(id=request.node))

    async def on_outputs(self, request: pb.OutputsRequest) -> pb.OutputsReply:
        reply = pb.OutputsReply(job_id="abc")
        if self.left:
            entries = [
                TreeEntry(path, "file", name_of_bytes(data))
                for path, data in self.left.items()
            ]
            tree = trees.encode(trees.make(b"salt", entries))
            reply.tasks.add(task="abc.main.0", blob="tree", tree=tree)
        return reply

    async def on_get_blobs(
        self, request: pb.GetBlobsRequest
    ) -> AsyncIterator[pb.BlobPart]:
        for data in self.left.values():
            if name_of_bytes(data) in request.blobs:
                yield pb.BlobPart(blob=name_of_bytes(data), data=data[:3])
                yield pb.BlobPart(data=data[3:])

    async def on_explain(self, request: pb.ExplainRequest) -> pb.ExplainReply:
        self.asked.append(request)
        return pb.ExplainReply(job_id="abc", tasks=[pb.TaskExplanation(task="t")])

    async def on_cancel(self, request: pb.CancelRequest) -> pb.CancelReply:
        self.asked.append(request)
        return pb.CancelReply(job=self.job)

    async def on_retry(self, request: pb.RetryRequest) -> pb.SubmitReply:
        self.asked.append(request)
        raise ShoalError("job abc has not ended", because="it would run twice")

    async def on_submit(self, request: pb.SubmitRequest) -> pb.SubmitReply:
        self.asked.append(request)
        return pb.SubmitReply(job=self.job, needs="1 CPU", notes=["mind the gap"])

    async def on_plan(self, request: pb.PlanRequest) -> pb.PlanReply:
        self.asked.append(request)
        return pb.PlanReply(fits_now=True, groups=[pb.GroupPlan(group="main")])


class FakeMetrics:
    """The curves of tasks."""

    def __init__(self) -> None:
        self.curves = MetricHistory()


class FakeOutputs:
    """The figures of tasks."""

    def __init__(self) -> None:
        self.metrics = FakeMetrics()


class FakeNode:
    """What streams wait for, where figures are, and where sockets may be."""

    home = Home(Path("/nonexistent"))
    identity = None

    def __init__(self) -> None:
        self.news = ChangeSignal()
        self.outputs = FakeOutputs()


def make_page(
    service: FakeService | None = None,
    node: FakeNode | None = None,
    where: str = "127.0.0.1:0",
    limits: HttpLimits = LIMITS,
) -> WebPage:
    """Return the page of such a node."""
    live = cast("Node", node or FakeNode())
    return WebPage(
        live, cast("Service", service or FakeService()), TOKEN, where, limits
    )
